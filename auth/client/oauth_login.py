"""`OAuth(…)`: the login of a user, with a browser or with a code for another machine; and the revocation of its tokens.

::

    async with Client("https://calendar.example/mcp", auth=OAuth(store=FileStore())) as client: ...

Settings that are missing are discovered: the authorization server, the client registration, the scopes. No user and no authorization server is asked before the
MCP server requires a login.
"""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from greenroom.auth.auth_info import text, texts
from greenroom.auth.errors import SignInError
from greenroom.errors import ConfigError

from .client_registration import ClientRegistrar, OAuthClientSettings, check_metadata_url, check_redirect_uri
from .interactive_flows import AuthorizationCodeFlow, DeviceFlow, check_code_grant, open_browser
from .metadata_discovery import (
    AuthorizationServerMetadata,
    TokenSource,
    canonical_resource,
    discover_authorization_server,
    printable_line,
)
from .token_requests import LoginMethod, OAuthEndpoint, login_record, post_form, response_object, scopes_to_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.transports.client.fetch import FetchFunction

    from .client_registration import ClientIdentity
    from .interactive_flows import Browser, Shower
    from .token_requests import TokenRequest
    from .token_stores import LoginRecord


@dataclass(frozen=True, kw_only=True)
class OAuth(OAuthClientSettings):
    """Settings of a user's login. A value: each server for which it is used has a login of its own."""

    client_id: str | None = None
    """The client id, if this program is registered at the authorization server."""
    client_metadata_url: str | None = None
    """The URL of the client metadata document of this program, for authorization servers that support it."""
    client_name: str = "greenroom"
    """The name of this program on consent pages."""
    also: Sequence[str] = ()
    """Scopes to request in addition to all others."""
    account: str = "default"
    """The name of the login, for programs with several users."""
    browser: Browser | None = open_browser
    """The function that takes the user to the authorization URL; None: no user is present, and a login that is not stored fails at once."""
    advice: str = "sign in once with a browser"
    """The remedy in errors when a login is needed and no browser may be opened."""
    command: str = ""
    """The command line that signs in at this server, for errors; `--scope` adds a scope."""
    device: Shower | None = None
    """The function that shows a device code to the user: used instead of the browser if the authorization server supports the device grant."""
    port: int = 0
    """The port of the loopback redirect; 0 is any free port."""
    redirect_uri: str | None = None
    """A page of the program's own instead of the loopback redirect: `browser` then returns the address to which the user was redirected."""
    timeout: float = 300.0
    """Seconds for the user to sign in."""
    authorization_endpoint: str | None = None
    """With `token_endpoint`: the endpoints, so that none is discovered."""
    token_endpoint: str | None = None

    def __post_init__(self) -> None:
        """Raises `ConfigError`."""
        if self.client_id is None and (self.client_secret is not None or self.key is not None):
            raise ConfigError("client_secret and key need client_id")
        if (self.authorization_endpoint is None) != (self.token_endpoint is None):
            raise ConfigError("give both authorization_endpoint and token_endpoint, or neither")
        if not 0 <= self.port < 65536:  # noqa: PLR2004 - the range of ports
            raise ConfigError(f"port must be from 0 to 65535, not {self.port!r}")
        if not self.timeout > 0:
            raise ConfigError(f"timeout must be more than 0 seconds, not {self.timeout!r}")
        if self.client_metadata_url is not None:
            check_metadata_url(self.client_metadata_url)
        if self.redirect_uri is not None:
            check_redirect_uri(self.redirect_uri)
            if self.port:
                raise ConfigError("port is of the loopback redirect: give either port or redirect_uri")

    @property
    def patience(self) -> float:
        """How much longer a handshake may take if a user has to sign in first."""
        return 0.0 if self.browser is None and self.device is None else self.timeout

    def login_method(self, url: str, fetch: FetchFunction) -> OAuthLoginMethod:
        """The login method for that server."""
        return OAuthLoginMethod(self, url, fetch)


def login_key(settings: OAuth, url: str) -> str:
    """The store key of the login at that server."""
    return f"user {settings.account} {settings.client_id or ''} {canonical_resource(url)}"


class LoginKey(NamedTuple):
    """The parts of a login's store key."""

    account: str
    client_id: str | None
    url: str


def parse_login_key(key: str) -> LoginKey | None:
    """Parse a key of `login_key`; None for the key of another entry."""
    kind, found, rest = key.partition(" ")
    parts = rest.rsplit(" ", 2)
    if kind != "user" or not found or len(parts) != 3:  # noqa: PLR2004 - account, client and URL
        return None
    account, client_id, url = parts
    return LoginKey(account, client_id or None, url)


class OAuthLoginMethod(LoginMethod):
    """A user's login at one server."""

    def __init__(self, settings: OAuth, url: str, fetch: FetchFunction) -> None:
        """Reads the endpoints and the client from `settings`."""
        source: TokenSource | None = None
        if settings.token_endpoint is not None:
            server = AuthorizationServerMetadata(
                settings.issuer or settings.token_endpoint,
                settings.authorization_endpoint,
                settings.token_endpoint,
                challenge_methods=("S256",),
            )
            source = TokenSource(canonical_resource(url), server)
        super().__init__(url, login_key(settings, url), settings.issuer, source)
        self._settings = settings
        self.dpop = settings.dpop
        self.is_issuer_bound = settings.client_id is not None
        known = None if settings.client_id is None else settings.client_identity(settings.client_id)
        self._registrar = ClientRegistrar(
            settings.store,
            fetch,
            known,
            settings.client_metadata_url,
            settings.client_name,
            settings.account,
            binds_tokens=settings.dpop == "require",
        )
        self._fetch = fetch

    async def obtain(self, source: TokenSource, request: TokenRequest) -> LoginRecord:
        """Have the user sign in."""
        settings = self._settings
        requested = scopes_to_request(settings.scopes, request, source, settings.also)
        if settings.device is not None and source.server.device_endpoint is not None:
            flow = DeviceFlow(settings.device, self._registrar, self._fetch, settings.timeout, request.binding)
            identity, tokens = await flow.run(source, requested)
        elif settings.browser is None:
            check_code_grant(source.server)
            raise self._needed(source, request)
        else:
            code = AuthorizationCodeFlow(
                settings.browser,
                self._registrar,
                self._fetch,
                settings.port,
                settings.timeout,
                settings.redirect_uri,
                request.binding,
            )
            identity, tokens = await code.run(source, requested)
        return login_record(source, identity, tokens, requested)

    def _needed(self, source: TokenSource, request: TokenRequest) -> SignInError:
        """The error for a login that needs a user: what is missing, and what to run."""
        settings, before = self._settings, request.previous
        if before is None or not (request.adds_scopes and request.challenged_scopes):
            where = source.resource
            why = f"no user is signed in to {where}" if before is None else f"the login at {where} has expired"
            text = f"{why}, and no user is present to sign in: {settings.advice}"
            return SignInError("authorization", text, url=self.url)
        missing = [scope for scope in request.challenged_scopes if scope not in before.scopes]
        if not missing:
            named = " ".join(request.challenged_scopes)
            text = (
                f"the login at {source.resource} was not granted {named}, which the server requires: ask its operator"
            )
        else:
            more = " ".join(f"--scope {shlex.quote(printable_line(scope))}" for scope in missing)
            what = f"run `{settings.command} {more}` in a terminal" if settings.command else settings.advice
            lacks = f"the scope{'s' if len(missing) > 1 else ''} {', '.join(map(printable_line, missing))}"
            text = f"the login at {source.resource} lacks {lacks}: {what}"
        return SignInError("authorization", text, code="insufficient_scope", url=self.url)

    async def identity(self, record: LoginRecord) -> ClientIdentity | None:
        """The client identity of that login."""
        return await self._registrar.registered_identity(record.issuer, record.client_id)

    async def forget(self, record: LoginRecord) -> None:
        """Register the client again at the next login."""
        await self._registrar.forget(record.issuer, record.client_id)


# --- Revocation (RFC 7009), so that the tokens of a deleted login are useless to a thief.
# Only the authorization server that issued them gets the tokens, at the endpoint that its own metadata names.

REVOCATION_TIMEOUT: Final = 10.0
"""Seconds for the whole revocation."""
_STEP: Final = "revocation"


async def revoke(settings: OAuth, url: str, record: LoginRecord, *, patience: float = REVOCATION_TIMEOUT) -> None:
    """Revoke the tokens of that login at the authorization server. Raises `SignInError` if that was not possible."""
    try:
        async with asyncio.timeout(patience):
            await _revoke_tokens(settings, url, record)
    except TimeoutError:
        raise SignInError(
            _STEP, f"{record.issuer} did not answer within {patience:g} seconds", temporary=True
        ) from None


async def _revoke_tokens(settings: OAuth, url: str, record: LoginRecord) -> None:
    fetch = settings.fetcher(url)
    server = await discover_authorization_server(record.issuer, fetch)
    source = text(server.raw.get("revocation_endpoint"))
    if source is None:
        raise SignInError(_STEP, f"{record.issuer} does not support revocation")
    identity = await settings.login_method(url, fetch).identity(record)
    if identity is None:
        raise SignInError(_STEP, f"the client registration of that login at {record.issuer} is no longer known")
    methods = texts(server.raw.get("revocation_endpoint_auth_methods_supported")) or server.auth_methods
    # The refresh token first: most servers revoke its access tokens with it.
    for kind, token in (("refresh_token", record.refresh_token), ("access_token", record.access_token)):
        if token is None:
            continue
        form = {"token": token, "token_type_hint": kind}
        answer = await post_form(OAuthEndpoint(source, record.issuer, methods), identity, fetch, form, _STEP)
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - a success has no body
            response_object(answer, _STEP)
