"""The `auth` option of a client: converts a token, a login method or a program's function into `Credentials`."""

from __future__ import annotations

import inspect
import logging
import re
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Protocol, TypeAlias

from greenroom.auth.errors import SignInError
from greenroom.errors import ConfigError
from greenroom.transports.client.fetch import Fetcher
from greenroom.transports.client.http_address import Guard, ServerUrl, is_local
from greenroom.transports.client.interfaces import FixedHeaders, headers_for_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping

    from greenroom.auth.auth_info import AuthInfo
    from greenroom.transports.client.http_settings import Trust
    from greenroom.transports.client.interfaces import Credentials

_BEARER_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/:]+=*\Z")


class SignIn(Protocol):
    """Settings of a login: `OAuth`, `ClientCredentials`, `EnterpriseManaged`, `GivenTokens`."""

    def credentials(self, url: str) -> Credentials:
        """The credentials for one server."""
        ...


Auth: TypeAlias = "str | SignIn | Credentials"


def credentials_for(auth: Auth, url: str) -> Credentials:
    """The credentials for one server; a string is a bearer token. Raises `ConfigError`."""
    if isinstance(auth, str):
        if not _BEARER_TOKEN.match(auth):
            raise ConfigError(
                "a bearer token must be one word of letters, digits and -._~+/, without `Bearer` before it"
            )
        check_server_url(url)
        return FixedHeaders({"authorization": f"Bearer {auth}"})
    make = getattr(auth, "credentials", None)
    if make is not None:
        made: Credentials = make(url)
        return made
    if hasattr(auth, "headers") and hasattr(auth, "refused"):
        return auth  # type: ignore[return-value]  # it has both methods
    raise ConfigError(f"auth must be a token, OAuth(…) or another login method, not {type(auth).__name__}")


# --- Which addresses a login may reach: a server on this machine may name an authorization server on this machine; no other server may.


def fetcher_for(url: str, *, private: bool = False, trust: Trust | None = None) -> Fetcher:
    """A fetcher for the URLs that a server at `url` names. Raises `ConfigError` for a server that must not get a token."""
    address = check_server_url(url)
    return Fetcher(Guard(loopback=is_local(address.host), private=private), trust=trust)


def check_server_url(url: str) -> ServerUrl:
    """Raises `ConfigError` for a remote server without TLS."""
    address = ServerUrl.of(url)
    if not address.secure and not is_local(address.host):
        raise ConfigError(f"{address.origin} is not https: a token could be read on its way")
    return address


# --- Credentials of a gateway's callers: each caller's connection to an upstream uses what the program's function returns for that caller.
# The function is called before each request, so a revoked login ends with the next request, and nothing is stored beyond the connection.

if TYPE_CHECKING:
    CallerAuth: TypeAlias = "Callable[[CallerIdentity], Auth | Awaitable[Auth | None] | None]"

_log: Final = logging.getLogger("greenroom.gateway")


class CallerIdentity(NamedTuple):
    """The identity of a gateway's caller, equal for all connections, sessions and tokens of one principal.

    It has no scopes or claims: they belong to one token, and a connection may serve several tokens of the principal.

    """

    subject: str | None
    issuer: str | None
    client_id: str | None
    """The client, if it acts for itself and the token has no subject."""


class CallerNotSignedIn(SignInError):
    """A gateway's caller is anonymous, or has no credentials at the upstream. No request was sent. The message may be shown to the caller."""

    reason: ClassVar[str] = "caller_sign_in"

    def __init__(self, message: str) -> None:
        """`message` contains neither credentials nor text from the program's function."""
        super().__init__("caller", message)
        self.args = (message,)  # the constructor's arguments, so that the error can be pickled

    def __str__(self) -> str:
        return self.message


def caller_identity(auth: AuthInfo | None, principal: Hashable) -> CallerIdentity:
    """The identity of an authenticated caller. Raises `CallerNotSignedIn`."""
    if auth is not None and principal is not None and auth.principal == principal:
        client_id = auth.client_id if auth.subject is None else None
        if auth.subject or client_id:
            return CallerIdentity(auth.subject or None, auth.issuer or None, client_id or None)
    raise CallerNotSignedIn(
        "each caller's own login is used there, and this caller is anonymous: sign in at the gateway"
    )


class CallerCredentials:
    """Credentials of one caller for one connection. Its repr and its errors contain no secrets."""

    def __init__(self, ask: CallerAuth, caller: CallerIdentity, url: str) -> None:
        """`ask` is the program's function, `url` the upstream's URL."""
        self._ask = ask
        self._caller = caller
        self._url = url
        self._given: Auth | None = None
        self._made: Credentials | None = None

    def __repr__(self) -> str:
        return "CallerCredentials()"

    async def headers(self) -> Mapping[str, str]:
        """The caller's headers. Raises `CallerNotSignedIn` without any."""
        return await (await self._caller_credentials()).headers()

    async def headers_for(self, method: str, url: str) -> Mapping[str, str]:
        """The caller's headers for one HTTP request. Raises `CallerNotSignedIn` without any."""
        return await headers_for_request(await self._caller_credentials(), method, url)

    def on_nonce(self, url: str, nonce: str) -> None:
        """A response named a nonce for the caller's next proofs."""
        note = getattr(self._made, "on_nonce", None)
        if note is not None:
            note(url, nonce)

    async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
        """Whether the caller has other credentials by now, or can renew these."""
        before = self._made
        own = await self._caller_credentials()
        if isinstance(own, FixedHeaders):
            return dict(await own.headers()) != dict(sent)
        return own is not before or await own.refused(status, challenge, sent)

    async def _caller_credentials(self) -> Credentials:
        try:
            found = self._ask(self._caller)
            given = await found if inspect.isawaitable(found) else found
            if given is not None and (self._made is None or not _is_unchanged(given, self._given)):
                self._made = credentials_for(given, self._url)
                self._given = given
        except Exception as error:  # noqa: BLE001 - the program's function may raise anything, with a secret in its text
            kind = type(error).__name__
            _log.warning("caller_auth failed for one caller: %s%s", kind, _raised_at(error))
            raise CallerNotSignedIn(f"the credentials of this caller could not be obtained ({kind})") from None
        if given is None or self._made is None:
            self._given = self._made = None
            raise CallerNotSignedIn("this caller has no credentials at the upstream")
        return self._made


def _is_unchanged(one: Auth, other: Auth | None) -> bool:
    return one is other or (isinstance(one, str) and isinstance(other, str) and one == other)


def _raised_at(error: BaseException) -> str:
    """Where the exception was raised, for the log: file and line contain no secret, while the exception's text may."""
    trace = error.__traceback__
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f" in {trace.tb_frame.f_code.co_filename}, line {trace.tb_lineno}"
