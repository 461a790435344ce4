"""The authorization code grant: a user is sent to sign in, and comes back with a code that only we can redeem.

Before the code is redeemed, what came back is held against what was sent: the state, and the issuer (RFC 9207), of an error as well.
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

from greenroom.auth.errors import SignInError
from greenroom.auth.grants import number, text
from greenroom.supervision import visible
from greenroom.supervision.acceptor import connections_within, open_files_limit, serve, tcp_sockets

from .discovery import build_authorization_url, check_endpoint, check_web, plain, quoted
from .token_calls import DEVICE, Endpoint, ask, post, said

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from greenroom.supervision.acceptor import Acceptor
    from greenroom.transports.client.fetch import Fetch

    from .discovery import Place, ServerMetadata
    from .registration import Identity, Registrar
    from .token_calls import Tokens

_STEP: Final = "authorization"
_MOST: Final = 1
"""How often a client that the server has forgotten is registered anew."""


class CodeFlow(NamedTuple):
    """How it is done."""

    browser: Browser
    registrar: Registrar
    fetch: Fetch
    port: int
    seconds: float

    async def run(self, place: Place, scopes: Sequence[str]) -> tuple[Identity, Tokens]:
        """All of it. Raises `SignInError`."""
        server = place.server
        check_server(server)
        # At the port that was pinned, else where the issuer expects users to come back to, if that is free, else anywhere.
        told = None if self.port else await self.registrar.redirect(server.issuer)
        port = (urlsplit(told).port if told else None) or self.port
        async with Landing(port, pinned=bool(self.port)) as landing:
            wanted = " ".join(scopes) or None
            redirect_uri = landing.redirect_uri
            identity = await self.registrar.identity(server, redirect_uri, wanted)
            assert server.authorization_endpoint is not None and server.token_endpoint is not None  # noqa: PT018 - looked at above
            asked = build_authorization_url(
                server.authorization_endpoint,
                {
                    "client_id": identity.client_id,
                    "redirect_uri": redirect_uri,
                    "scope": wanted,
                    "resource": place.resource,
                    "prompt": "consent" if "offline_access" in scopes else None,
                },
            )
            back = await self._back(landing, asked.url, asked.state)
            code = judge(back, asked.state, server)
            endpoint = Endpoint(server.token_endpoint, server.issuer, server.auth_methods)
            form = {
                "grant_type": "authorization_code",
                "code": code,
                "code_verifier": asked.verifier,
                "redirect_uri": redirect_uri,
            }
            return identity, await ask(endpoint, identity, self.fetch, form, resource=place.resource)

    async def _back(self, landing: Landing, url: str, state: str) -> Return:
        arrival = asyncio.ensure_future(landing.arrival(state))
        going = asyncio.ensure_future(self.browser(url))
        try:
            async with asyncio.timeout(self.seconds):
                await asyncio.wait((arrival, going), return_when=asyncio.FIRST_COMPLETED)
                if not arrival.done():
                    pasted = await going
                    if pasted is not None:
                        return read_return(urlsplit(pasted.strip()).query)
                return await arrival
        except TimeoutError:
            raise SignInError(_STEP, f"nobody came back from signing in within {self.seconds:g} s: try again") from None
        except ValueError:
            raise SignInError(_STEP, "what was pasted is no address: paste the whole line of the browser") from None
        finally:
            for each in (arrival, going):
                each.cancel()
            await asyncio.gather(arrival, going, return_exceptions=True)


def check_server(server: ServerMetadata) -> None:
    """Raises `SignInError` for an authorization server that a code is not safe with, or that knows no codes."""
    if server.authorization_endpoint is None or server.token_endpoint is None:
        raise SignInError(_STEP, f"{server.issuer} names no endpoint for signing in with a browser")
    check_endpoint(server.authorization_endpoint, _STEP)
    check_endpoint(server.token_endpoint, "token")
    if server.challenge_methods is None or "S256" not in server.challenge_methods:
        raise SignInError(
            _STEP,
            f"{server.issuer} does not say that it checks proofs of codes (PKCE with S256): its operator has to see to that",
        )


def judge(back: Return, state: str, server: ServerMetadata) -> str:
    """The code, if all is as it was sent out. Raises `SignInError`, which repeats nothing of what another issuer may have said."""
    if not same(back.state, state):
        raise SignInError(_STEP, "what came back is not what was asked for (another state): begin again")
    if back.issuer is None and server.names_issuer:
        raise SignInError(_STEP, "what came back does not say who has sent it, and it should: it was not used")
    if back.issuer is not None and back.issuer != server.issuer:
        raise SignInError(_STEP, f"what came back is not from {server.issuer}: it was not used")
    if back.error is not None:
        raise SignInError(_STEP, quoted(back.error, back.description), code=plain(back.error))
    if not back.code:
        raise SignInError(_STEP, "what came back has no code in it: begin again")
    return back.code


# --- Where a user's browser comes back to: one page on this machine's loopback, for one login, for as long as that takes.
# It reads one line of a request and its headers, never more; it answers all other requests with nothing of use. Connections that say nothing
# delay no browser: there is room for many, and the oldest makes room for the next. What the browser is shown is
# made of fixed words, besides what is escaped, and nothing in it may run.

log: Final = logging.getLogger("greenroom.auth")

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
_HEAD: Final = 16 * 1024
_SECONDS: Final = 5.0
_LINGER: Final = 1.0
"""Seconds for which an answered connection is still read."""
_BACKLOG: Final = 1024
"""Connections that wait in the kernel while the loop is at something else: of a full queue, a browser hears after a second."""
MOST: Final = 256
"""Connections at once, where there may be so many files. Any program of this machine can open some and say nothing: more than come in between
a browser's connection and its request, which are a few turns of the loop with 64 each."""
_HEADERS: Final = (
    "content-type: text/html; charset=utf-8\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\n"
    "content-security-policy: default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "x-content-type-options: nosniff\r\nconnection: close\r\n"
)
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1><p>{text}</p></body></html>
"""


class Return(NamedTuple):
    """What the authorization server has the browser bring back."""

    code: str | None
    state: str | None
    issuer: str | None
    error: str | None
    description: str | None


def read_return(query: str) -> Return:
    """From a query; of what stands there twice nothing counts."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=64)
    except ValueError:
        pairs = []
    names = [name for name, _ in pairs]
    found = {name: value for name, value in pairs if names.count(name) == 1}
    return Return(*(found.get(name) for name in ("code", "state", "iss", "error", "error_description")))


def same(one: str | None, other: str) -> bool:
    """Whether two texts are equal, in a time that says nothing of where they differ."""
    return one is not None and hmac.compare_digest(one.encode(), other.encode())


def page(title: str, text: str) -> str:
    """What a browser is shown."""
    return _PAGE.format(title=escape(title), text=escape(text))


class Landing:
    """The page. `async with Landing(port) as landing:` listens; `await landing.arrival(state)` is the return with that state."""

    def __init__(self, port: int = 0, *, pinned: bool = True) -> None:
        """Port 0 is any that is free; a port that is not `pinned` is where to listen if it is free, and any other will do as well."""
        self._wanted = port
        self._pinned = pinned
        self._acceptor: Acceptor | None = None
        self._most = MOST
        self._open: dict[_Connection, None] = {}
        self._empty = asyncio.Event()
        self._state: str | None = None
        self._arrived: asyncio.Future[Return] | None = None

    @property
    def redirect_uri(self) -> str:
        """Its address."""
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
                _STEP, f"nobody can come back to {HOST}, {where}: {error.strerror or error}; pin another port"
            ) from None
        self._most = min(MOST, connections_within(open_files_limit()))
        self._acceptor = serve(lambda: _Connection(self), sockets, log)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._acceptor is not None
        self._acceptor.close()
        for each in tuple(self._open):
            each.leave()
        if self._open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SECONDS):
                    await self._empty.wait()  # the page is still on its way to the browser
        for each in tuple(self._open):
            each.abort()

    async def arrival(self, state: str) -> Return:
        """Wait for the browser to come back. A request with another state is sent away, and the wait goes on."""
        self._state = state
        self._arrived = asyncio.get_running_loop().create_future()
        return await self._arrived

    def enter(self, connection: _Connection) -> None:
        """A connection is open. Where that is one too many, the oldest makes room: a browser says what it wants at once."""
        if len(self._open) >= self._most:
            next(iter(self._open)).abort()
        self._open[connection] = None
        self._empty.clear()

    def left(self, connection: _Connection) -> None:
        """It is gone."""
        self._open.pop(connection, None)
        if not self._open:
            self._empty.set()

    def answer(self, request: bytes) -> tuple[str, str, str]:
        """What the browser is shown: the status, and a page's title and text."""
        words = request.partition(b"\r\n")[0].decode("latin-1").split(" ")
        parts = urlsplit(words[1]) if len(words) == 3 and words[1].startswith("/") else None  # noqa: PLR2004 - a request line
        if parts is None or words[0] != "GET" or parts.path != PATH:
            return "404 Not Found", "Nothing here", "This page is for somebody who comes back from signing in."
        found = read_return(parts.query)
        if self._state is None or not same(found.state, self._state):
            return "400 Bad Request", "Not expected", "Nobody waits for this. Begin again in the program that sent you."
        if self._arrived is None or self._arrived.done():
            return "400 Bad Request", "Once is enough", "You have been here already."
        self._arrived.set_result(found)
        if found.error is not None or found.code is None:
            return "200 OK", "Not signed in", "The program that sent you says why. You can close this window."
        return "200 OK", "Thank you", "You can close this window, and go back to the program that sent you."


class _Connection(asyncio.Protocol):
    """One connection to the page: a head in, an answer out."""

    def __init__(self, landing: Landing) -> None:
        self._landing = landing
        self._transport: asyncio.Transport
        self._alarm: asyncio.TimerHandle | None = None
        self._head = bytearray()
        self._answered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._landing.enter(self)
        self._alarm = asyncio.get_running_loop().call_later(_SECONDS, self._too_late)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        begin = max(0, len(self._head) - 3)  # where the end of the head can be that was not there before
        self._head += data[: _HEAD - len(self._head)]
        if self._head.find(b"\r\n\r\n", begin) >= 0:
            self._say(*self._landing.answer(bytes(self._head)))
        elif len(self._head) >= _HEAD:
            self._say("431 Request Header Fields Too Large", "Too long", "A browser says less.")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it came
        if self._alarm is not None:
            self._alarm.cancel()
        self._landing.left(self)

    def _too_late(self) -> None:
        self._say("408 Request Timeout", "Too late", "Nothing was asked for.")

    def _say(self, status: str, title: str, text: str) -> None:
        """Answer, and listen a little longer: bytes that nothing has read would reset the connection, and the answer with it."""
        self._answered = True
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_later(_LINGER, self.abort)
        body = page(title, text).encode()
        head = f"HTTP/1.1 {status}\r\n{_HEADERS}content-length: {len(body)}\r\n\r\n".encode("ascii")
        self._transport.write(head + body)
        with contextlib.suppress(OSError):  # the peer is gone already
            self._transport.write_eof()

    def leave(self) -> None:
        """The page is not needed any more; an answer that is on its way still goes out."""
        if self._answered:
            self._transport.close()
        else:
            self.abort()

    def abort(self) -> None:
        """Be gone, now."""
        self._landing.left(self)
        self._transport.abort()


# --- How a user gets to where they sign in: by their browser, or by an address that they are shown.
# A `Browser` is given the address. It returns None when the user comes back by themselves, to the page that waits on this machine; or else the address that
# they were sent back to, as text. Programs bring their own: that is where a window, a message or a test comes in.


if TYPE_CHECKING:
    Browser: TypeAlias = Callable[[str], Awaitable[str | None]]


async def open_browser(url: str, /) -> str | None:
    """Open the user's browser, and say the address on stderr for users who have none here."""
    check_web(url, "authorization")
    tell(f"To sign in, open this in a browser on this machine:\n\n  {url}\n")
    threading.Thread(
        target=_open, args=(url,), name="greenroom browser", daemon=True
    ).start()  # some do not return before they end
    return None


def _open(url: str) -> None:
    try:
        webbrowser.open(url)
    except (OSError, webbrowser.Error):
        return  # the address was said as well


async def paste_back(url: str, /) -> str | None:
    """Say the address, and have the user give the one that they end up at: for machines without a browser."""
    check_web(url, "authorization")
    tell(
        f"To sign in, open this in a browser on any machine:\n\n  {url}\n\n"
        "In the end it shows a page that cannot be reached. Paste its whole address here:"
    )
    return await _line(sys.stdin.readline)


async def _line(read: Callable[[], str]) -> str:
    """A line that the user types, read in a daemon thread, so that the program can end without it."""
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
    """Say on stderr where to go with which code."""
    tell(f"To sign in, open {code.verification_uri} in a browser on any machine, and enter:\n\n  {code.user_code}\n")


def tell(words: str) -> None:
    """To the terminal; never on stdout, which may be a protocol's."""
    print(visible(words, lines=True), file=sys.stderr, flush=True)  # noqa: T201 - it is what is asked for


# --- The device grant (RFC 8628): a user signs in on another machine with a short code, and this one asks now and then whether they have.

_DEVICE_FLOW_STEP: Final = "device authorization"
_SLOWER: Final = 5.0
_SHORTEST: Final = 1.0
_LONGEST: Final = 60.0


class DeviceCode(NamedTuple):
    """What a user is told."""

    verification_uri: str
    user_code: str
    complete: str | None
    """The address with the code in it, for a link or a picture of one."""
    expires_in: float


if TYPE_CHECKING:
    Shower: TypeAlias = Callable[[DeviceCode], Awaitable[None]]
    """What tells them."""


class DeviceFlow(NamedTuple):
    """How it is done. `sleep` is the clock."""

    show: Shower
    registrar: Registrar
    fetch: Fetch
    seconds: float
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self, place: Place, scopes: Sequence[str]) -> tuple[Identity, Tokens]:
        """All of it. Raises `SignInError`."""
        server = place.server
        if server.device_endpoint is None or server.token_endpoint is None:
            raise SignInError(_DEVICE_FLOW_STEP, f"{server.issuer} offers no codes for devices")
        identity = await self.registrar.identity(server, None, " ".join(scopes) or None)
        form = {"resource": place.resource} | ({"scope": " ".join(scopes)} if scopes else {})
        endpoint = Endpoint(server.device_endpoint, server.issuer, server.auth_methods)
        answer = said(await post(endpoint, identity, self.fetch, form, _DEVICE_FLOW_STEP), _DEVICE_FLOW_STEP)
        device_code, code, uri = (text(answer.get(name)) for name in ("device_code", "user_code", "verification_uri"))
        if device_code is None or code is None or uri is None:
            raise SignInError(_DEVICE_FLOW_STEP, f"{server.issuer} gave no code to show")
        check_web(uri, _DEVICE_FLOW_STEP)
        complete = text(answer.get("verification_uri_complete"))
        if complete is not None:
            check_web(complete, _DEVICE_FLOW_STEP)
        lives = min(number(answer.get("expires_in")) or self.seconds, self.seconds)
        await self.show(DeviceCode(uri, plain(code), complete, lives))
        interval = number(answer.get("interval")) or _SLOWER
        endpoint = Endpoint(server.token_endpoint, server.issuer, server.auth_methods)
        return identity, await self._tokens(endpoint, identity, device_code, place.resource, interval, lives)

    async def _tokens(
        self, endpoint: Endpoint, identity: Identity, device_code: str, resource: str, interval: float, lives: float
    ) -> Tokens:
        form = {"grant_type": DEVICE, "device_code": device_code}
        waited = 0.0
        while waited <= lives:
            pause = min(max(interval, _SHORTEST), _LONGEST)
            await self.sleep(pause)
            waited += pause
            try:
                return await ask(endpoint, identity, self.fetch, form, resource=resource)
            except SignInError as error:
                if error.code == "slow_down" or (error.temporary and error.code != "authorization_pending"):
                    interval += _SLOWER
                elif error.code == "expired_token":
                    break
                elif error.code != "authorization_pending":
                    raise
        raise SignInError(_DEVICE_FLOW_STEP, "nobody has entered the code in time: begin again")
