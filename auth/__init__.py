"""Authentication of our callers, and our own logins at other servers.

Tokens are verified and obtained here; which actor acts for which principal is decided in `greenroom.actors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.lazy import load

if TYPE_CHECKING:
    from .bearer import BearerAuth as BearerAuth
    from .client.code_flow import DeviceCode as DeviceCode
    from .client.code_flow import open_browser as open_browser
    from .client.code_flow import paste_back as paste_back
    from .client.code_flow import show_code as show_code
    from .client.door import SignIn as SignIn
    from .client.machine import ClientCredentials as ClientCredentials
    from .client.machine import EnterpriseManaged as EnterpriseManaged
    from .client.machine import GivenTokens as GivenTokens
    from .client.oauth import OAuth as OAuth
    from .client.registration import signing_key as signing_key
    from .client.stores import FileStore as FileStore
    from .client.stores import KeyringStore as KeyringStore
    from .client.stores import MemoryStore as MemoryStore
    from .client.stores import TokenStore as TokenStore
    from .client.stores import best_store as best_store
    from .errors import Denied as Denied
    from .errors import SignInError as SignInError
    from .grants import AuthInfo as AuthInfo
    from .introspection import Introspection as Introspection
    from .introspection import KeySet as KeySet
    from .resource_server import OAuthResource as OAuthResource
    from .shared_secrets import APIKeyAuth as APIKeyAuth
    from .shared_secrets import BasicAuth as BasicAuth
    from .shared_secrets import CustomAuth as CustomAuth
    from .shared_secrets import NoAuth as NoAuth
    from .shared_secrets import hash_key as hash_key
    from .shared_secrets import hash_password as hash_password
    from .shared_secrets import verify_key as verify_key
    from .shared_secrets import verify_password as verify_password
    from .stage import Protected as Protected

# Each module, and the names that the room takes of it: `python -m tests.house --write` makes it of the imports above.
_HOMES: Final[dict[str, str]] = {
    "greenroom.auth.bearer": "BearerAuth",
    "greenroom.auth.client.code_flow": "DeviceCode open_browser paste_back show_code",
    "greenroom.auth.client.door": "SignIn",
    "greenroom.auth.client.machine": "ClientCredentials EnterpriseManaged GivenTokens",
    "greenroom.auth.client.oauth": "OAuth",
    "greenroom.auth.client.registration": "signing_key",
    "greenroom.auth.client.stores": "FileStore KeyringStore MemoryStore TokenStore best_store",
    "greenroom.auth.errors": "Denied SignInError",
    "greenroom.auth.grants": "AuthInfo",
    "greenroom.auth.introspection": "Introspection KeySet",
    "greenroom.auth.resource_server": "OAuthResource",
    "greenroom.auth.shared_secrets": "APIKeyAuth BasicAuth CustomAuth NoAuth hash_key hash_password "
    "verify_key verify_password",
    "greenroom.auth.stage": "Protected",
}

__all__ = sorted(" ".join(_HOMES.values()).split())  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll] - the table says which


if not TYPE_CHECKING:  # a checker that saw this function would believe in every name

    def __getattr__(name: str) -> object:
        """Load `name` when it is first used."""
        return load(__name__, _HOMES, name)


def __dir__() -> list[str]:
    """Name what is not loaded yet as well."""
    return sorted({*globals(), *__all__})
