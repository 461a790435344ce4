"""`OAuth(…)`: sign in as a user, with a browser, or with a code for another machine.

::

    async with Client("https://calendar.example/mcp", auth=OAuth(store=FileStore())) as client: ...

What is not said is found out: where to sign in, as which client, for which scopes. No user and no authorization server is asked before the server wants it.
"""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from greenroom.auth.auth_info import text, texts
from greenroom.auth.errors import SignInError
from greenroom.errors import ConfigError

from .client_registration import ClientRegistrar, OAuthClientSettings, check_metadata_url
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
    """How a user signs in. A value: each server that it is used for has a login of its own."""

    client_id: str | None = None
    """The id by which this program is known there, when that was agreed beforehand."""
    client_metadata_url: str | None = None
    """Where a document says who this program is: for authorization servers that read such."""
    client_name: str = "greenroom"
    """The name under which users see this program."""
    also: Sequence[str] = ()
    """What to ask for besides, whatever else is asked for."""
    account: str = "default"
    """The user of the login, for programs that sign in as several users."""
    browser: Browser | None = open_browser
    """What takes the user there; None: no user is there to sign in, and a login that is not kept already fails at once."""
    advice: str = "sign in once with a browser"
    """What to do where a sign-in is needed and no browser may be opened."""
    command: str = ""
    """The command line that signs in at this server, for errors: with `--scope` it adds one."""
    device: Shower | None = None
    """What tells a user a code for another machine: used instead of the browser wherever the authorization server offers that."""
    port: int = 0
    """Where the user comes back to on this machine; 0 is any port that is free."""
    timeout: float = 300.0
    """Seconds that the user has."""
    authorization_endpoint: str | None = None
    """With `token_endpoint`: where to sign in, so that nothing has to be found out."""
    token_endpoint: str | None = None

    def __post_init__(self) -> None:
        """Raises `ConfigError`."""
        if self.client_id is None and (self.client_secret is not None or self.key is not None):
            raise ConfigError("a client_secret or a key is a client's: give client_id as well")
        if (self.authorization_endpoint is None) != (self.token_endpoint is None):
            raise ConfigError("authorization_endpoint and token_endpoint are given both, or neither")
        if not 0 <= self.port < 65536:  # noqa: PLR2004 - ports
            raise ConfigError(f"port is from 0 to 65535, not {self.port!r}")
        if not self.timeout > 0:
            raise ConfigError(f"timeout must be more than 0 seconds, not {self.timeout!r}")
        if self.client_metadata_url is not None:
            check_metadata_url(self.client_metadata_url)

    @property
    def patience(self) -> float:
        """How much longer a handshake may take when a user has to sign in first."""
        return 0.0 if self.browser is None and self.device is None else self.timeout

    def login_method(self, url: str, fetch: FetchFunction) -> OAuthLoginMethod:
        """How to log in at that server."""
        return OAuthLoginMethod(self, url, fetch)


def login_key(settings: OAuth, url: str) -> str:
    """What the login at that server is kept under."""
    return f"user {settings.account} {settings.client_id or ''} {canonical_resource(url)}"


class LoginKey(NamedTuple):
    """Which login a store's entry is."""

    account: str
    client_id: str | None
    url: str


def parse_login_key(key: str) -> LoginKey | None:
    """What `login_key` made the name of; None for an entry that is no login."""
    kind, found, rest = key.partition(" ")
    parts = rest.rsplit(" ", 2)
    if kind != "user" or not found or len(parts) != 3:  # noqa: PLR2004 - account, client, URL
        return None
    account, client_id, url = parts
    return LoginKey(account, client_id or None, url)


class OAuthLoginMethod(LoginMethod):
    """At one server."""

    def __init__(self, settings: OAuth, url: str, fetch: FetchFunction) -> None:
        """With these settings."""
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
        self.is_issuer_bound = settings.client_id is not None
        known = None if settings.client_id is None else settings.client_identity(settings.client_id)
        self._registrar = ClientRegistrar(
            settings.store, fetch, known, settings.client_metadata_url, settings.client_name, settings.account
        )
        self._fetch = fetch

    async def obtain(self, source: TokenSource, request: TokenRequest) -> LoginRecord:
        """Have the user sign in."""
        settings = self._settings
        asked = scopes_to_request(settings.scopes, request, source, settings.also)
        if settings.device is not None and source.server.device_endpoint is not None:
            flow = DeviceFlow(settings.device, self._registrar, self._fetch, settings.timeout)
            identity, tokens = await flow.run(source, asked)
        elif settings.browser is None:
            check_code_grant(source.server)
            raise self._needed(source, request)
        else:
            code = AuthorizationCodeFlow(
                settings.browser, self._registrar, self._fetch, settings.port, settings.timeout
            )
            identity, tokens = await code.run(source, asked)
        return login_record(source, identity, tokens, asked)

    def _needed(self, source: TokenSource, request: TokenRequest) -> SignInError:
        """Why there is no token, and what to run. A login that lacks a scope is not called absent."""
        settings, before = self._settings, request.previous
        if before is None or not (request.adds_scopes and request.challenged_scopes):
            why = "nobody is signed in" if before is None else "the login has expired"
            text = f"{why} at {source.resource}, and nobody is there to do it: {settings.advice}"
            return SignInError("authorization", text, url=self.url)
        missing = [scope for scope in request.challenged_scopes if scope not in before.scopes]
        if not missing:
            named = " ".join(request.challenged_scopes)
            text = f"the login at {source.resource} was not granted {named}, which the server wants: ask its operator"
        else:
            more = " ".join(f"--scope {shlex.quote(printable_line(scope))}" for scope in missing)
            what = f"run `{settings.command} {more}` in a terminal" if settings.command else settings.advice
            lacks = f"the scope{'s' if len(missing) > 1 else ''} {', '.join(map(printable_line, missing))}"
            text = f"the login at {source.resource} lacks {lacks}: {what}"
        return SignInError("authorization", text, code="insufficient_scope", url=self.url)

    async def identity(self, record: LoginRecord) -> ClientIdentity | None:
        """The client identity with which that login was made."""
        return await self._registrar.registered_identity(record.issuer, record.client_id)

    async def forget(self, record: LoginRecord) -> None:
        """Register anew the next time."""
        await self._registrar.forget(record.issuer, record.client_id)


# --- Taking tokens back (RFC 7009): a login that is forgotten here is of no use to a thief of its tokens.
# Only the authorization server that gave them is told, at the place that its own metadata names.

REVOCATION_TIMEOUT: Final = 10.0
"""Seconds for all of it."""
_STEP: Final = "revocation"


async def revoke(settings: OAuth, url: str, record: LoginRecord, *, patience: float = REVOCATION_TIMEOUT) -> None:
    """Have the authorization server take the tokens of that login back. Raises `SignInError` where it was not told, and says why."""
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
        raise SignInError(_STEP, f"{record.issuer} takes no tokens back")
    identity = await settings.login_method(url, fetch).identity(record)
    if identity is None:
        raise SignInError(_STEP, f"it is not known any more as whom that login was made at {record.issuer}")
    methods = texts(server.raw.get("revocation_endpoint_auth_methods_supported")) or server.auth_methods
    # A refresh token first: most servers take all that came of it back as well, and then the other is only made sure of.
    for kind, token in (("refresh_token", record.refresh_token), ("access_token", record.access_token)):
        if token is None:
            continue
        form = {"token": token, "token_type_hint": kind}
        answer = await post_form(OAuthEndpoint(source, record.issuer, methods), identity, fetch, form, _STEP)
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - a success has no body to read
            response_object(answer, _STEP)
