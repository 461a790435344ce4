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

from greenroom.auth.errors import SignInError
from greenroom.auth.grants import text, texts
from greenroom.errors import ConfigError

from .code_flow import CodeFlow, DeviceFlow, check_server, open_browser
from .discovery import Place, ServerMetadata, canonical, discover_authorization_server, plain
from .registration import ClientSettings, Registrar, check_document
from .token_calls import Endpoint, Way, post, record_of, said, scopes_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.transports.client.fetch import Fetch

    from .code_flow import Browser, Shower
    from .registration import Identity
    from .stores import Record
    from .token_calls import Need


@dataclass(frozen=True, kw_only=True)
class OAuth(ClientSettings):
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
            check_document(self.client_metadata_url)

    @property
    def patience(self) -> float:
        """How much longer a handshake may take when a user has to sign in first."""
        return 0.0 if self.browser is None and self.device is None else self.timeout

    def way(self, url: str, fetch: Fetch) -> OAuthWay:
        """How to log in at that server."""
        return OAuthWay(self, url, fetch)


def login_name(settings: OAuth, url: str) -> str:
    """What the login at that server is kept under."""
    return f"user {settings.account} {settings.client_id or ''} {canonical(url)}"


class Login(NamedTuple):
    """Which login a store's entry is."""

    account: str
    client_id: str | None
    url: str


def login_of(key: str) -> Login | None:
    """What `login_name` made the name of; None for an entry that is no login."""
    kind, found, rest = key.partition(" ")
    parts = rest.rsplit(" ", 2)
    if kind != "user" or not found or len(parts) != 3:  # noqa: PLR2004 - account, client, URL
        return None
    account, client_id, url = parts
    return Login(account, client_id or None, url)


class OAuthWay(Way):
    """At one server."""

    def __init__(self, settings: OAuth, url: str, fetch: Fetch) -> None:
        """With these settings."""
        place: Place | None = None
        if settings.token_endpoint is not None:
            server = ServerMetadata(
                settings.issuer or settings.token_endpoint,
                settings.authorization_endpoint,
                settings.token_endpoint,
                challenge_methods=("S256",),
            )
            place = Place(canonical(url), server)
        super().__init__(url, login_name(settings, url), settings.issuer, place)
        self._settings = settings
        self.bound = settings.client_id is not None
        known = None if settings.client_id is None else settings.known_as(settings.client_id)
        self._registrar = Registrar(
            settings.store, fetch, known, settings.client_metadata_url, settings.client_name, settings.account
        )
        self._fetch = fetch

    async def obtain(self, place: Place, need: Need) -> Record:
        """Have the user sign in."""
        settings = self._settings
        asked = scopes_for(settings.scopes, need, place, settings.also)
        if settings.device is not None and place.server.device_endpoint is not None:
            flow = DeviceFlow(settings.device, self._registrar, self._fetch, settings.timeout)
            identity, tokens = await flow.run(place, asked)
        elif settings.browser is None:
            check_server(place.server)
            raise self._needed(place, need)
        else:
            code = CodeFlow(settings.browser, self._registrar, self._fetch, settings.port, settings.timeout)
            identity, tokens = await code.run(place, asked)
        return record_of(place, identity, tokens, asked)

    def _needed(self, place: Place, need: Need) -> SignInError:
        """Why there is no token, and what to run. A login that lacks a scope is not called absent."""
        settings, before = self._settings, need.before
        if before is None or not (need.wider and need.challenged):
            why = "nobody is signed in" if before is None else "the login has expired"
            text = f"{why} at {place.resource}, and nobody is there to do it: {settings.advice}"
            return SignInError("authorization", text, url=self.url)
        missing = [scope for scope in need.challenged if scope not in before.scopes]
        if not missing:
            named = " ".join(need.challenged)
            text = f"the login at {place.resource} was not granted {named}, which the server wants: ask its operator"
        else:
            more = " ".join(f"--scope {shlex.quote(plain(scope))}" for scope in missing)
            what = f"run `{settings.command} {more}` in a terminal" if settings.command else settings.advice
            lacks = f"the scope{'s' if len(missing) > 1 else ''} {', '.join(map(plain, missing))}"
            text = f"the login at {place.resource} lacks {lacks}: {what}"
        return SignInError("authorization", text, code="insufficient_scope", url=self.url)

    async def identity(self, record: Record) -> Identity | None:
        """The client identity with which that login was made."""
        return await self._registrar.kept(record.issuer, record.client_id)

    async def forget(self, record: Record) -> None:
        """Register anew the next time."""
        await self._registrar.forget(record.issuer, record.client_id)


# --- Taking tokens back (RFC 7009): a login that is forgotten here is of no use to a thief of its tokens.
# Only the authorization server that gave them is told, at the place that its own metadata names.

PATIENCE: Final = 10.0
"""Seconds for all of it."""
_STEP: Final = "revocation"


async def revoke(settings: OAuth, url: str, record: Record, *, patience: float = PATIENCE) -> None:
    """Have the authorization server take the tokens of that login back. Raises `SignInError` where it was not told, and says why."""
    try:
        async with asyncio.timeout(patience):
            await _revoked(settings, url, record)
    except TimeoutError:
        raise SignInError(
            _STEP, f"{record.issuer} did not answer within {patience:g} seconds", temporary=True
        ) from None


async def _revoked(settings: OAuth, url: str, record: Record) -> None:
    fetch = settings.fetcher(url)
    server = await discover_authorization_server(record.issuer, fetch)
    place = text(server.raw.get("revocation_endpoint"))
    if place is None:
        raise SignInError(_STEP, f"{record.issuer} takes no tokens back")
    identity = await settings.way(url, fetch).identity(record)
    if identity is None:
        raise SignInError(_STEP, f"it is not known any more as whom that login was made at {record.issuer}")
    methods = texts(server.raw.get("revocation_endpoint_auth_methods_supported")) or server.auth_methods
    # A refresh token first: most servers take all that came of it back as well, and then the other is only made sure of.
    for kind, token in (("refresh_token", record.refresh_token), ("access_token", record.access_token)):
        if token is None:
            continue
        form = {"token": token, "token_type_hint": kind}
        answer = await post(Endpoint(place, record.issuer, methods), identity, fetch, form, _STEP)
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - a success has no body to read
            said(answer, _STEP)
