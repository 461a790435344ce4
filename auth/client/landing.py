"""Where a user's browser comes back to: one page on this machine's loopback, for one login, for as long as that takes.

It reads one line of a request and its headers, never more; it answers all other requests with nothing of use. Connections that say nothing
delay no browser: there is room for many, and the oldest makes room for the next. What the browser is shown is
made of fixed words, besides what is escaped, and nothing in it may run.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from urllib.parse import parse_qsl, urlsplit

from greenroom.auth.errors import SignInError
from greenroom.supervision.acceptor import connections_within, open_files_limit, serve, tcp_sockets

if TYPE_CHECKING:
    from types import TracebackType

    from greenroom.supervision.acceptor import Acceptor

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
_STEP: Final = "authorization"
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


def answer_of(status: str, title: str, text: str) -> bytes:
    """A whole answer, with that page."""
    body = page(title, text).encode()
    return f"HTTP/1.1 {status}\r\n{_HEADERS}content-length: {len(body)}\r\n\r\n".encode("ascii") + body


class Landing:
    """The page. `async with Landing(port) as landing:` listens; `await landing.arrival(state)` is who comes back with that state."""

    def __init__(self, port: int = 0, host: str = HOST) -> None:
        """Port 0 is any that is free. `host` is what the address says; it is the loopback in any case."""
        self._wanted = port
        self._host = host
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
        return f"http://{self._host}:{self._acceptor.sockets[0].getsockname()[1]}{PATH}"

    async def __aenter__(self) -> Self:
        try:
            sockets = await tcp_sockets(HOST, self._wanted, _BACKLOG)
        except OSError as error:
            where = f"port {self._wanted}" if self._wanted else "any port"
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
        """Wait for it. Whoever brings another state is sent away, and the wait goes on."""
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

    def answer(self, request: bytes) -> bytes:
        """What the browser is shown."""
        status, title, text = self._answer(request)
        return answer_of(status, title, text)

    def _answer(self, request: bytes) -> tuple[str, str, str]:
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
            self._say(self._landing.answer(bytes(self._head)))
        elif len(self._head) >= _HEAD:
            self._say(answer_of("431 Request Header Fields Too Large", "Too long", "A browser says less."))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it came
        if self._alarm is not None:
            self._alarm.cancel()
        self._landing.left(self)

    def _too_late(self) -> None:
        self._say(answer_of("408 Request Timeout", "Too late", "Nothing was asked for."))

    def _say(self, answer: bytes) -> None:
        """Answer, and listen a little longer: bytes that nothing has read would reset the connection, and the answer with it."""
        self._answered = True
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_later(_LINGER, self.abort)
        self._transport.write(answer)
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
