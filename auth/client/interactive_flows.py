"""Login flows with a user: the authorization code grant with a loopback redirect, and the device grant.

Before a code is redeemed, the response is checked against the request: the state, and the issuer (RFC 9207), for error responses as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import sys
import threading
import webbrowser
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from greenroom.auth.auth_info import number, text
from greenroom.auth.errors import SignInError
from greenroom.supervision import visible
from greenroom.supervision.acceptor import connection_limit, open_files_limit, serve, tcp_sockets

from .dpop_proofs import UNBOUND
from .metadata_discovery import build_authorization_url, check_endpoint, check_web_url, printable_line, refusal_message
from .token_requests import DEVICE, OAuthEndpoint, post_form, request_token, response_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from greenroom.supervision.acceptor import Acceptor
    from greenroom.transports.client.fetch import FetchFunction

    from .client_registration import ClientIdentity, ClientRegistrar
    from .dpop_proofs import GrantBinding, TokenProver
    from .metadata_discovery import AuthorizationServerMetadata, TokenSource
    from .token_requests import TokenResponse

_STEP: Final = "authorization"
_MOST_REGISTRATIONS: Final = 1
"""How often a client that the server no longer knows is registered again."""


class AuthorizationCodeFlow(NamedTuple):
    """The authorization code grant with PKCE, for one login."""

    browser: Browser
    registrar: ClientRegistrar
    fetch: FetchFunction
    port: int
    seconds: float
    redirect_uri: str | None = None
    """A page of the program's own, from which `browser` returns the address; None: the loopback redirect."""
    binding: GrantBinding = UNBOUND

    async def run(self, source: TokenSource, scopes: Sequence[str]) -> tuple[ClientIdentity, TokenResponse]:
        """Run the flow. Raises `SignInError`."""
        server = source.server
        check_code_grant(server)
        if self.redirect_uri is not None:
            return await self._run(source, scopes, self.redirect_uri, None)
        # The configured port, else the port that was registered as redirect URI if it is free, else any free port.
        registered = None if self.port else await self.registrar.registered_redirect(server.issuer)
        port = (urlsplit(registered).port if registered else None) or self.port
        async with LoopbackRedirect(port, pinned=bool(self.port)) as listener:
            return await self._run(source, scopes, listener.redirect_uri, listener)

    async def _run(
        self, source: TokenSource, scopes: Sequence[str], redirect_uri: str, listener: LoopbackRedirect | None
    ) -> tuple[ClientIdentity, TokenResponse]:
        server = source.server
        wanted = " ".join(scopes) or None
        identity = await self.registrar.identity(server, redirect_uri, wanted)
        prover = self.binding.prover(server, registered=identity.binds_tokens)
        assert server.authorization_endpoint is not None and server.token_endpoint is not None  # noqa: PT018 - checked by the caller
        authorization = build_authorization_url(
            server.authorization_endpoint,
            {
                "client_id": identity.client_id,
                "redirect_uri": redirect_uri,
                "scope": wanted,
                "resource": source.resource,
                "prompt": "consent" if "offline_access" in scopes else None,
                "dpop_jkt": None if prover is None else prover.key.thumbprint,  # the code is of use with this key alone
            },
        )
        response = await self._await_response(listener, authorization.url, authorization.state)
        code = check_authorization_response(response, authorization.state, server)
        endpoint = OAuthEndpoint(server.token_endpoint, server.issuer, server.auth_methods)
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": authorization.verifier,
            "redirect_uri": redirect_uri,
        }
        tokens = await request_token(endpoint, identity, self.fetch, form, resource=source.resource, prover=prover)
        return identity, tokens

    async def _await_response(self, listener: LoopbackRedirect | None, url: str, state: str) -> AuthorizationResponse:
        arrival: asyncio.Future[AuthorizationResponse] = (
            asyncio.get_running_loop().create_future()
            if listener is None
            else asyncio.ensure_future(listener.response(state))
        )
        going = asyncio.ensure_future(self.browser(url))
        try:
            async with asyncio.timeout(self.seconds):
                await asyncio.wait((arrival, going), return_when=asyncio.FIRST_COMPLETED)
                if not arrival.done():
                    pasted = await going
                    if pasted is not None:
                        return parse_authorization_response(urlsplit(pasted.strip()).query)
                    if listener is None:
                        raise SignInError(
                            _STEP,
                            "with redirect_uri, `browser` has to return the address to which the user was redirected",
                        )
                return await arrival
        except TimeoutError:
            raise SignInError(
                _STEP, f"the browser did not come back from signing in within {self.seconds:g} s: try again"
            ) from None
        except ValueError:
            raise SignInError(
                _STEP, "the pasted text is not an address: paste the whole address line of the browser"
            ) from None
        finally:
            for each in (arrival, going):
                each.cancel()
            await asyncio.gather(arrival, going, return_exceptions=True)


def check_code_grant(server: AuthorizationServerMetadata) -> None:
    """Raises `SignInError` for an authorization server that supports no codes, or no PKCE."""
    if server.authorization_endpoint is None or server.token_endpoint is None:
        raise SignInError(_STEP, f"{server.issuer} names no authorization endpoint for signing in with a browser")
    check_endpoint(server.authorization_endpoint, _STEP)
    check_endpoint(server.token_endpoint, "token")
    if server.challenge_methods is None or "S256" not in server.challenge_methods:
        raise SignInError(
            _STEP,
            f"{server.issuer} does not state that it supports PKCE with S256, which protects codes: its operator has to enable it",
        )


def check_authorization_response(
    response: AuthorizationResponse, state: str, server: AuthorizationServerMetadata
) -> str:
    """The code of a response that matches the request. Raises `SignInError`, which quotes nothing of a response from another issuer."""
    if not equal_in_constant_time(response.state, state):
        raise SignInError(_STEP, "the authorization response has another state than the request: begin again")
    if response.issuer is None and server.sends_issuer:
        raise SignInError(
            _STEP, "the authorization response names no issuer, which this server always does: it was not used"
        )
    if response.issuer is not None and response.issuer != server.issuer:
        raise SignInError(_STEP, f"the authorization response is not from {server.issuer}: it was not used")
    if response.error is not None:
        raise SignInError(
            _STEP, refusal_message(response.error, response.description), code=printable_line(response.error)
        )
    if not response.code:
        raise SignInError(_STEP, "the authorization response contains no code: begin again")
    return response.code


# --- The loopback redirect (RFC 8252): a page on 127.0.0.1 to which the browser returns, for the duration of one login.
# It reads one request head and no body, and answers any other request with an error. Connections that send nothing delay no browser: many are
# allowed, and a new one replaces the oldest. Pages consist of fixed and escaped text, and no script may run in them.

log: Final = logging.getLogger("greenroom.auth")

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
_LARGEST_HEAD: Final = 16 * 1024
_REQUEST_SECONDS: Final = 5.0
_LINGER_SECONDS: Final = 1.0
"""Seconds for which an answered connection is still read."""
_BACKLOG: Final = 1024
"""The listen backlog, for when the event loop is busy: with a full queue, the kernel lets a browser retry only after a second."""
MOST_CONNECTIONS: Final = 256
"""Connections at a time, if the limit of open files permits. Any local program can open idle connections: this is more than can arrive between a
browser's connection and its request, which are a few loop iterations with 64 accepts each.
"""
_HEADERS: Final = (
    "content-type: text/html; charset=utf-8\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\n"
    "content-security-policy: default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "x-content-type-options: nosniff\r\nconnection: close\r\n"
)
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1><p>{text}</p></body></html>
"""


class AuthorizationResponse(NamedTuple):
    """The authorization response (RFC 6749, 4.1.2) in the query of the redirect."""

    code: str | None
    state: str | None
    issuer: str | None
    error: str | None
    description: str | None


def parse_authorization_response(query: str) -> AuthorizationResponse:
    """Parse a query. Parameters that occur twice are ignored."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=64)
    except ValueError:
        pairs = []
    names = [name for name, _ in pairs]
    found = {name: value for name, value in pairs if names.count(name) == 1}
    return AuthorizationResponse(*(found.get(name) for name in ("code", "state", "iss", "error", "error_description")))


def equal_in_constant_time(one: str | None, other: str) -> bool:
    """Compare two texts in constant time."""
    return one is not None and hmac.compare_digest(one.encode(), other.encode())


def html_page(title: str, text: str) -> str:
    """A page with escaped text."""
    return _PAGE.format(title=escape(title), text=escape(text))


class LoopbackRedirect:
    """The loopback redirect page. `async with LoopbackRedirect(port) as listener:` listens; `await listener.response(state)` waits for the response with that state."""

    def __init__(self, port: int = 0, *, pinned: bool = True) -> None:
        """Port 0 is any free port. A port that is not `pinned` is only preferred: any other is used if it is taken."""
        self._wanted = port
        self._pinned = pinned
        self._acceptor: Acceptor | None = None
        self._most = MOST_CONNECTIONS
        self._open: dict[_RedirectConnection, None] = {}
        self._all_closed = asyncio.Event()
        self._state: str | None = None
        self._response: asyncio.Future[AuthorizationResponse] | None = None

    @property
    def redirect_uri(self) -> str:
        """The redirect URI of this page."""
        assert self._acceptor is not None
        return f"http://{HOST}:{self._acceptor.sockets[0].getsockname()[1]}{PATH}"

    async def __aenter__(self) -> Self:
        try:
            try:
                sockets = await tcp_sockets(HOST, self._wanted, _BACKLOG)
            except OSError:
                if self._pinned:
                    raise
                sockets = await tcp_sockets(HOST, 0, _BACKLOG)
        except OSError as error:
            where = f"port {self._wanted}" if self._wanted and self._pinned else "any port"
            raise SignInError(
                _STEP,
                f"cannot listen at {HOST}, {where}, for the browser to come back to: {error.strerror or error}; pin another port",
            ) from None
        self._most = min(MOST_CONNECTIONS, connection_limit(open_files_limit()))
        self._acceptor = serve(lambda: _RedirectConnection(self), sockets, log)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._acceptor is not None
        self._acceptor.close()
        for each in tuple(self._open):
            each.finish()
        if self._open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REQUEST_SECONDS):
                    await self._all_closed.wait()  # the page is still being sent to the browser
        for each in tuple(self._open):
            each.abort()

    async def response(self, state: str) -> AuthorizationResponse:
        """Wait for the response with this state. A response with another state is refused, and the wait goes on."""
        self._state = state
        self._response = asyncio.get_running_loop().create_future()
        return await self._response

    def on_open(self, connection: _RedirectConnection) -> None:
        """Register a connection. Beyond the limit, the oldest is aborted, since a browser sends its request at once."""
        if len(self._open) >= self._most:
            next(iter(self._open)).abort()
        self._open[connection] = None
        self._all_closed.clear()

    def on_close(self, connection: _RedirectConnection) -> None:
        """Unregister a connection."""
        self._open.pop(connection, None)
        if not self._open:
            self._all_closed.set()

    def page_for(self, request: bytes) -> tuple[str, str, str]:
        """The page for a request: status, title and text."""
        words = request.partition(b"\r\n")[0].decode("latin-1").split(" ")
        parts = urlsplit(words[1]) if len(words) == 3 and words[1].startswith("/") else None  # noqa: PLR2004 - a request line has three words
        if parts is None or words[0] != "GET" or parts.path != PATH:
            return "404 Not Found", "Nothing here", "A browser comes to this page after signing in."
        found = parse_authorization_response(parts.query)
        if self._state is None or not equal_in_constant_time(found.state, self._state):
            return (
                "400 Bad Request",
                "Not expected",
                "No sign-in is waiting for this response. Begin again in the program that sent you.",
            )
        if self._response is None or self._response.done():
            return "400 Bad Request", "Already done", "This response was received before."
        self._response.set_result(found)
        if found.error is not None or found.code is None:
            return "200 OK", "Not signed in", "The program that sent you says why. You can close this window."
        return "200 OK", "Thank you", "You can close this window, and go back to the program that sent you."


class _RedirectConnection(asyncio.Protocol):
    """A connection to the redirect page: reads a request head, and sends one response."""

    def __init__(self, listener: LoopbackRedirect) -> None:
        self._listener = listener
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._head = bytearray()
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._listener.on_open(self)
        self._timer = asyncio.get_running_loop().call_later(_REQUEST_SECONDS, self._on_timeout)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        begin = max(0, len(self._head) - 3)  # the end of the head may begin in the previous chunk
        self._head += data[: _LARGEST_HEAD - len(self._head)]
        if self._head.find(b"\r\n\r\n", begin) >= 0:
            self._send_page(*self._listener.page_for(bytes(self._head)))
        elif len(self._head) >= _LARGEST_HEAD:
            self._send_page("431 Request Header Fields Too Large", "Too long", "The request is too large.")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason does not matter
        if self._timer is not None:
            self._timer.cancel()
        self._listener.on_close(self)

    def _on_timeout(self) -> None:
        self._send_page("408 Request Timeout", "Too late", "No request was received.")

    def _send_page(self, status: str, title: str, text: str) -> None:
        """Send a page, and keep reading for a while: closing with unread bytes would reset the connection, and the browser would lose the page."""
        self._answered = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_LINGER_SECONDS, self.abort)
        body = html_page(title, text).encode()
        head = f"HTTP/1.1 {status}\r\n{_HEADERS}content-length: {len(body)}\r\n\r\n".encode("ascii")
        self._transport.write(head + body)
        with contextlib.suppress(OSError):  # the browser has closed the connection
            self._transport.write_eof()

    def finish(self) -> None:
        """Close the connection; a page that is being sent is completed."""
        if self._answered:
            self._transport.close()
        else:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._listener.on_close(self)
        self._transport.abort()


# --- How the user gets to the authorization URL: in a browser, or by copying it.
# A `Browser` is an async function of the URL. It returns None if the browser will be redirected to the loopback page, or the URL at which the user ended,
# as text. Programs pass their own function to open a window, send a message or answer in a test.


if TYPE_CHECKING:
    Browser: TypeAlias = Callable[[str], Awaitable[str | None]]


async def open_browser(url: str, /) -> str | None:
    """Open the user's browser, and print the URL on stderr for users without one."""
    check_web_url(url, "authorization")
    print_to_user(f"To sign in, open this in a browser on this machine:\n\n  {url}\n")
    threading.Thread(
        target=_open_in_browser, args=(url,), name="greenroom browser", daemon=True
    ).start()  # webbrowser.open may block until the browser ends
    return None


def _open_in_browser(url: str) -> None:
    try:
        webbrowser.open(url)
    except (OSError, webbrowser.Error):
        return  # the URL was printed as well


async def paste_back(url: str, /) -> str | None:
    """Print the URL, and read the one at which the user ends, for machines without a browser."""
    check_web_url(url, "authorization")
    print_to_user(
        f"To sign in, open this in a browser on any machine:\n\n  {url}\n\n"
        "In the end it shows a page that cannot be reached. Paste its whole address here:"
    )
    return await _read_line(sys.stdin.readline)


async def _read_line(read: Callable[[], str]) -> str:
    """Read a line in a daemon thread, so that the program can end without it."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def done(line: str) -> None:
        if not typed.done():
            typed.set_result(line.strip())

    def wait() -> None:
        try:
            line = read()
        except (OSError, ValueError):
            line = ""
        if not loop.is_closed():
            loop.call_soon_threadsafe(done, line)

    threading.Thread(target=wait, name="greenroom paste", daemon=True).start()
    return await typed


async def show_code(code: DeviceCode, /) -> None:
    """Print the verification URI and the user code on stderr."""
    print_to_user(
        f"To sign in, open {code.verification_uri} in a browser on any machine, and enter:\n\n  {code.user_code}\n"
    )


def print_to_user(words: str) -> None:
    """Print on stderr; stdout may carry a protocol."""
    print(visible(words, lines=True), file=sys.stderr, flush=True)  # noqa: T201 - printing is the purpose


# --- The device grant (RFC 8628): the user signs in on another machine with a short code, while this one polls the token endpoint.

_DEVICE_STEP: Final = "device authorization"
_SLOW_DOWN_SECONDS: Final = 5.0
_SHORTEST_INTERVAL: Final = 1.0
_LONGEST_INTERVAL: Final = 60.0


class DeviceCode(NamedTuple):
    """The code and the URI that a user needs to sign in on another machine."""

    verification_uri: str
    user_code: str
    complete: str | None
    """The URI with the code in it, for a link or a QR code."""
    expires_in: float


if TYPE_CHECKING:
    Shower: TypeAlias = Callable[[DeviceCode], Awaitable[None]]
    """Shows the code to the user."""


class DeviceFlow(NamedTuple):
    """The device grant, for one login. `sleep` is replaced in tests."""

    show: Shower
    registrar: ClientRegistrar
    fetch: FetchFunction
    seconds: float
    binding: GrantBinding = UNBOUND
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self, source: TokenSource, scopes: Sequence[str]) -> tuple[ClientIdentity, TokenResponse]:
        """Run the flow. Raises `SignInError`."""
        server = source.server
        if server.device_endpoint is None or server.token_endpoint is None:
            raise SignInError(_DEVICE_STEP, f"{server.issuer} does not support the device grant")
        identity = await self.registrar.identity(server, None, " ".join(scopes) or None)
        prover = self.binding.prover(server, registered=identity.binds_tokens)
        form = {"resource": source.resource} | ({"scope": " ".join(scopes)} if scopes else {})
        endpoint = OAuthEndpoint(server.device_endpoint, server.issuer, server.auth_methods)
        answer = response_object(await post_form(endpoint, identity, self.fetch, form, _DEVICE_STEP), _DEVICE_STEP)
        device_code, code, uri = (text(answer.get(name)) for name in ("device_code", "user_code", "verification_uri"))
        if device_code is None or code is None or uri is None:
            raise SignInError(_DEVICE_STEP, f"{server.issuer} returned no user code")
        check_web_url(uri, _DEVICE_STEP)
        complete = text(answer.get("verification_uri_complete"))
        if complete is not None:
            check_web_url(complete, _DEVICE_STEP)
        lives = min(number(answer.get("expires_in")) or self.seconds, self.seconds)
        await self.show(DeviceCode(uri, printable_line(code), complete, lives))
        interval = number(answer.get("interval")) or _SLOW_DOWN_SECONDS
        endpoint = OAuthEndpoint(server.token_endpoint, server.issuer, server.auth_methods)
        return identity, await self._tokens(endpoint, identity, device_code, source.resource, interval, lives, prover)

    async def _tokens(  # noqa: PLR0913, PLR0917 - the device authorization
        self,
        endpoint: OAuthEndpoint,
        identity: ClientIdentity,
        device_code: str,
        resource: str,
        interval: float,
        lives: float,
        prover: TokenProver | None,
    ) -> TokenResponse:
        form = {"grant_type": DEVICE, "device_code": device_code}
        waited = 0.0
        while waited <= lives:
            pause = min(max(interval, _SHORTEST_INTERVAL), _LONGEST_INTERVAL)
            await self.sleep(pause)
            waited += pause
            try:
                return await request_token(endpoint, identity, self.fetch, form, resource=resource, prover=prover)
            except SignInError as error:
                if error.code == "slow_down" or (error.temporary and error.code != "authorization_pending"):
                    interval += _SLOW_DOWN_SECONDS
                elif error.code == "expired_token":
                    break
                elif error.code != "authorization_pending":
                    raise
        raise SignInError(_DEVICE_STEP, "the code was not entered in time: begin again")
