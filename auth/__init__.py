"""Authentication: identifies the callers of a server, and logs a client in at other servers.

Tokens are verified and obtained here. `greenroom.actors` decides which actor acts for which principal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.lazy_names import load_name

if TYPE_CHECKING:
    from .asgi_middleware import Protected as Protected
    from .auth_info import AuthInfo as AuthInfo
    from .bearer_tokens import BearerAuth as BearerAuth
    from .client.auth_option import SignIn as SignIn
    from .client.client_registration import signing_key as signing_key
    from .client.interactive_flows import DeviceCode as DeviceCode
    from .client.interactive_flows import open_browser as open_browser
    from .client.interactive_flows import paste_back as paste_back
    from .client.interactive_flows import show_code as show_code
    from .client.noninteractive_logins import ClientCredentials as ClientCredentials
    from .client.noninteractive_logins import EnterpriseManaged as EnterpriseManaged
    from .client.noninteractive_logins import GivenTokens as GivenTokens
    from .client.oauth_login import OAuth as OAuth
    from .client.token_stores import FileStore as FileStore
    from .client.token_stores import KeyringStore as KeyringStore
    from .client.token_stores import MemoryStore as MemoryStore
    from .client.token_stores import TokenStore as TokenStore
    from .client.token_stores import best_store as best_store
    from .errors import Denied as Denied
    from .errors import SignInError as SignInError
    from .jwks_and_introspection import Introspection as Introspection
    from .jwks_and_introspection import KeySet as KeySet
    from .resource_server import OAuthResource as OAuthResource
    from .shared_secrets import APIKeyAuth as APIKeyAuth
    from .shared_secrets import BasicAuth as BasicAuth
    from .shared_secrets import CustomAuth as CustomAuth
    from .shared_secrets import NoAuth as NoAuth
    from .shared_secrets import hash_key as hash_key
    from .shared_secrets import hash_password as hash_password
    from .shared_secrets import verify_key as verify_key
    from .shared_secrets import verify_password as verify_password

# Each module, and the names that the package exports from it: `python -m tests.house --write` makes the table from the imports above.
_HOMES: Final[dict[str, str]] = {
    "greenroom.auth.asgi_middleware": "Protected",
    "greenroom.auth.auth_info": "AuthInfo",
    "greenroom.auth.bearer_tokens": "BearerAuth",
    "greenroom.auth.client.auth_option": "SignIn",
    "greenroom.auth.client.client_registration": "signing_key",
    "greenroom.auth.client.interactive_flows": "DeviceCode open_browser paste_back show_code",
    "greenroom.auth.client.noninteractive_logins": "ClientCredentials EnterpriseManaged GivenTokens",
    "greenroom.auth.client.oauth_login": "OAuth",
    "greenroom.auth.client.token_stores": "FileStore KeyringStore MemoryStore TokenStore best_store",
    "greenroom.auth.errors": "Denied SignInError",
    "greenroom.auth.jwks_and_introspection": "Introspection KeySet",
    "greenroom.auth.resource_server": "OAuthResource",
    "greenroom.auth.shared_secrets": "APIKeyAuth BasicAuth CustomAuth NoAuth hash_key hash_password "
    "verify_key verify_password",
}

__all__ = sorted(" ".join(_HOMES.values()).split())  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll] - the table says which


if not TYPE_CHECKING:  # a type checker that saw this function would accept any name

    def __getattr__(name: str) -> object:
        """Import `name` on first use."""
        return load_name(__name__, _HOMES, name)


def __dir__() -> list[str]:
    """List the names that are not loaded yet as well."""
    return sorted({*globals(), *__all__})
