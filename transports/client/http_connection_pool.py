"""Connections of one client to its server: bounded, kept for the next request, and never trusted further than they can be.

A connection is used again only when its last answer ended where it said, nothing came after that, it was not idle for long, and the kernel
knows of nothing new on it. Requests that find none free wait in order, or have one made. What an answer brings goes straight to
its request, in the moment when it comes in: there is no task, and no queue, between the kernel and the wire.
"""

from __future__ import annotations

import asyncio
import re
import select
import socket
from collections import deque
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from greenroom.transports.http1_codec import HeaderLine, Malformed, ParserState, RequestParser, parse_headers

from .errors import ConnectFailed, ConnectionLost, NotMcp
from .http_address import dial
from .http_settings import error_text
from .interfaces import READ_SLICE, READ_TURN

if TYPE_CHECKING:
    import ssl
    from contextvars import Context

    from greenroom.supervision import Process

    from .errors import TransportError
    from .http_address import ServerUrl
    from .http_settings import HttpSettings
    from .outgoing_requests import OutgoingRequest

_CHECKED_AFTER: Final = 0.002
"""Seconds of idleness after which the kernel is asked whether the server has hung up: the loop may not have come to hear of it."""


class QueuedRequest:
    """A request that has no connection yet: one is made for it, or another request has to leave one first."""

    __slots__ = ("_pool", "connecting", "over", "request")

    def __init__(self, pool: HttpConnectionPool, request: OutgoingRequest) -> None:
        """Not begun."""
        self._pool = pool
        self.request = request
        self.connecting: asyncio.Task[None] | None = None
        self.over = False

    @property
    def may_have_been_sent(self) -> bool:
        """Nothing of it has left."""
        return False

    def drop(self) -> None:
        """The answer is not wanted."""
        if not self.over:
            self.over = True
            self._pool.on_dropped(self)

    def pause(self) -> None:
        """There is no answer yet that could wait."""

    def resume(self) -> None:
        """As above."""

    def fail(self, error: TransportError | None) -> None:
        """There will be no connection."""
        if not self.over:
            self.over = True
            hung_up = ConnectFailed(f"{self.request.address.origin}: it hung up at once")
            self.request.on_failure(error or hung_up, unseen=True)


class HttpConnectionPool:
    """All connections of one wire. Its callbacks run in the process whose wire it is, and a bug in them is that process's crash."""

    def __init__(self, process: Process, settings: HttpSettings, context: ssl.SSLContext | None = None) -> None:
        """`context` is for https; without one the system's authorities are trusted."""
        self.process = process
        self._loop = process.node.loop
        self._context: Context = process.own_context()
        self._tls = context
        self.settings = settings
        self._idle: list[PooledConnection] = []
        self._busy: dict[PooledConnection, None] = {}
        self._connecting: dict[QueuedRequest, None] = {}
        self._waiting: deque[QueuedRequest] = deque()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._head: tuple[Any, Any, str] = (None, None, "")
        self._head_bytes = b""

    def __len__(self) -> int:
        """How many connections there are, or are being made."""
        return len(self._idle) + len(self._busy) + len(self._connecting)

    # --- requests

    def start(self, request: OutgoingRequest) -> None:
        """Send it on a connection that is free, or as soon as there is one."""
        address = request.address
        while (connection := self._free(address)) is not None:
            if self._assign(request, connection):
                return  # else the server has closed it meanwhile
        waiting = request.in_flight = QueuedRequest(self, request)
        if request.urgent or self._has_room():
            self._connecting[waiting] = None
            task = self._loop.create_task(self._connect(waiting, address), context=self._context.copy())
            waiting.connecting = task
        else:
            self._waiting.append(waiting)

    def _assign(self, request: OutgoingRequest, connection: PooledConnection) -> bool:
        """Send it on that connection. False when the kernel took not a byte of it."""
        request.in_flight = connection
        self._busy[connection] = None
        if connection.begin(self._encode(request), request):
            return True
        request.in_flight = None
        del self._busy[connection]
        return False

    def _assign_or_retry(self, request: OutgoingRequest, connection: PooledConnection) -> None:
        """The connection that it has waited for."""
        if self._assign(request, connection):
            return
        if connection.idle_since >= 0:  # it had been used before, and was closed meanwhile
            self.start(request)
        else:
            waiting = request.in_flight = QueuedRequest(self, request)
            self._loop.call_soon(waiting.fail, None, context=self._context)

    def _encode(self, request: OutgoingRequest) -> bytes:
        """The request as it travels. All of the head but the length is mostly that of the one before."""
        headers, method, address = request.headers, request.method, request.address
        last = self._head
        if headers is not last[1] or address is not last[0] or method != last[2]:
            self._head = address, headers, method
            lines = [f"{method} {address.target} HTTP/1.1", f"host: {address.authority}"]
            lines += [f"{name}: {value}" for name, value in headers]
            self._head_bytes = "\r\n".join([*lines, ""]).encode("latin-1")
        if method != "POST":
            return self._head_bytes + b"\r\n"
        body = request.frame
        return b"%bcontent-length: %d\r\n\r\n%b" % (self._head_bytes, len(body), body)

    def on_dropped(self, waiting: QueuedRequest) -> None:
        """A request was given up before it had a connection."""
        if waiting.connecting is not None:
            waiting.connecting.cancel()
            del self._connecting[waiting]  # here and now: a task that has not begun never comes to say so
            self._start_queued()
        elif waiting in self._waiting:
            self._waiting.remove(waiting)

    # --- connections

    def _free(self, address: ServerUrl) -> PooledConnection | None:
        now = self._loop.time()
        while self._idle:
            connection = self._idle.pop()
            rested = now - connection.idle_since
            if (
                rested <= connection.idle_limit
                and connection.reaches(address)
                and (rested < _CHECKED_AFTER or not _is_readable(connection.fileno))
            ):
                return connection
            connection.close()
        return None

    async def _connect(self, waiting: QueuedRequest, address: ServerUrl) -> None:
        protocol: PooledConnection | None = None
        connection: PooledConnection | None = None

        def made() -> PooledConnection:
            nonlocal protocol
            protocol = PooledConnection(self, address)
            return protocol

        error: TransportError | None = None
        try:
            async with asyncio.timeout(self.settings.connect_timeout):
                raw = await dial(address.host, address.port)
                try:
                    _, connection = await self._loop.create_connection(
                        made,
                        sock=raw,
                        ssl=self._tls if address.secure else None,
                        server_hostname=address.host if address.secure else None,
                        ssl_handshake_timeout=self.settings.connect_timeout if address.secure else None,
                    )
                finally:
                    if protocol is None:
                        raw.close()
        except TimeoutError:
            seconds = self.settings.connect_timeout
            error = ConnectFailed(f"{address.origin}: nobody answered within {seconds:g} s")
        except (OSError, UnicodeError, ValueError) as failed:
            error = ConnectFailed(f"{address.origin}: {error_text(failed)}")
        finally:
            self._connecting.pop(waiting, None)
            waiting.connecting = None
        if connection is not None:
            if waiting.over or self._closed or connection.is_closed:
                connection.close()
            else:
                self._assign_or_retry(waiting.request, connection)
                return
        waiting.fail(error)
        self._start_queued()

    def on_released(self, connection: PooledConnection) -> None:
        """Its answer is complete, and it can be used again."""
        self._busy.pop(connection, None)
        if self._closed:
            connection.close()
            return
        if self._waiting and connection.reaches(self._waiting[0].request.address):
            self._assign_or_retry(self._waiting.popleft().request, connection)
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._sweep_timer is None:
            self._sweep_in(connection.idle_limit)

    def on_closed(self, connection: PooledConnection) -> None:
        """It is closed, or about to be."""
        self._busy.pop(connection, None)
        if connection in self._idle:
            self._idle.remove(connection)
        self._start_queued()

    def _start_queued(self) -> None:
        """There may be room for a request that waits."""
        while self._waiting and not self._closed and self._has_room():
            self.start(self._waiting.popleft().request)

    def _has_room(self) -> bool:
        return len(self._busy) + len(self._connecting) < self.settings.max_connections

    def _sweep_in(self, seconds: float) -> None:
        self._sweep_timer = self._loop.call_later(seconds + 0.01, self._sweep, context=self._context)

    def _sweep(self) -> None:
        """Close what has been idle for too long; the oldest is the first."""
        self._sweep_timer = None
        now = self._loop.time()
        for connection in tuple(self._idle):
            if now - connection.idle_since >= connection.idle_limit:
                self._idle.remove(connection)
                connection.close()
        if self._idle:
            self._sweep_in(max(0.0, min(each.idle_since + each.idle_limit for each in self._idle) - now))

    async def close(self) -> None:
        """Drop everything."""
        self._closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        self._waiting.clear()
        for connection in (*self._idle, *self._busy):
            connection.drop()
        self._idle.clear()
        self._busy.clear()


def _is_readable(fileno: int) -> bool:
    """Whether the kernel has something to say of a socket that should be silent: it is closed, or the server speaks out of turn."""
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    return bool(poll.poll(0))


# --- One connection to an HTTP server: a request at a time, and its answer handed on as it comes.

_TIMEOUT: Final = re.compile(r"(?:^|[,;\s])timeout=(\d{1,6})\b", re.IGNORECASE)
STEPS_PER_TURN: Final = 256
"""How many steps of reading an answer gets in one turn of the loop: half a millisecond, whatever its bytes are."""
UNREAD_LIMIT: Final = 64 * 1024
"""How many bytes wait for their turn before no more is read."""
_KEEP_ALIVE_MARGIN: Final = 1.0
"""By how many seconds we are to be earlier than the server, when it says how long it keeps an idle connection."""
_KEEPALIVE_IDLE: Final = 30
_KEEPALIVE_INTERVAL: Final = 10
_KEEPALIVE_PROBES: Final = 3


class PooledConnection(asyncio.Protocol):
    """Made by the pool, to which it belongs."""

    def __init__(self, pool: HttpConnectionPool, address: ServerUrl) -> None:
        """Not open yet."""
        self._pool = pool
        self._address = address
        self._reader = ResponseParser(pool.settings.max_header)
        self._transport: Any = None
        self._request: OutgoingRequest | None = None
        self._paused = False
        self._reading = True
        self._continuation: asyncio.Handle | None = None
        self._eof_received = False  # the server says no more, and what it has said may still be being read
        self._cause: Exception | None = None
        self._pending_body = b""  # of a piece of a body, from a place on: the request has had what is before
        self._pending_at = 0
        self._secure = address.secure  # what is written goes by way of a buffer
        self.is_closed = False
        """Whether it is of no more use."""
        self.idle_since = -1.0
        """Since when it is, or was, idle; before its first answer negative."""
        self.idle_limit = pool.settings.idle
        """For how long that may be."""

    def reaches(self, address: ServerUrl) -> bool:
        """Whether requests for that address can go here."""
        own = self._address
        return own is address or own.origin == address.origin

    @property
    def fileno(self) -> int:
        """Of the socket."""
        return int(self._transport.get_extra_info("socket").fileno())

    @property
    def may_have_been_sent(self) -> bool:
        """What is on it may have left."""
        return True

    # --- the pool's

    def begin(self, data: bytes, request: OutgoingRequest) -> bool:
        """Send a request; the answer is for the request. False when the kernel took not a byte of it: the server has not seen it."""
        transport = self._transport
        self._request = request
        transport.write(data)
        if not transport.is_closing() or self._secure:
            return True
        self._request = None
        self.is_closed = True
        return False

    def pause(self) -> None:
        """Tell the request nothing for a while."""
        self._paused = True
        self._update_reading()

    def resume(self) -> None:
        """Go on."""
        if self._paused:
            self._paused = False
            self._continue_soon()
            self._update_reading()

    def _continue_soon(self) -> None:
        if self._continuation is None:
            self._continuation = asyncio.get_running_loop().call_soon(self._continue_input)

    def _update_reading(self) -> None:
        """Read from the socket, unless enough waits."""
        reading = not self._paused and self._reader.buffered <= UNREAD_LIMIT
        if reading is not self._reading and not self.is_closed:
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def close(self) -> None:
        """Close it: it is not needed any more, and owes no answer."""
        self.is_closed = True
        self._transport.close()

    def drop(self) -> None:
        """Close it in the middle of whatever it is doing, and tell the request nothing."""
        self._request = None
        if not self.is_closed:
            self.is_closed = True
            self._transport.abort()
        self._pool.on_closed(self)

    # --- the transport's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = transport
        raw = transport.get_extra_info("socket")
        with suppress(OSError, AttributeError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)

    def data_received(self, data: bytes) -> None:
        """More of an answer, or data that no request has asked for."""
        if self._request is None:
            if not self.is_closed:
                self.drop()
            return
        self._reader.feed(data)
        if self._continuation is None:
            self._continue_input()
        else:
            self._update_reading()

    def _continue_input(self) -> None:
        """Read what is there, up to where others have their turn."""
        self._continuation = None
        try:
            self._process_input()
            self._update_reading()
        except Malformed as broken:
            self._fail(NotMcp(f"{self._address.origin} does not speak HTTP/1.1 properly: {broken}"))
        except BaseException as error:  # noqa: BLE001 - a bug of ours, which must not be is_closed in the transport's log
            self.drop()
            self._pool.process.crash(error)

    def _process_input(self) -> None:
        following = self._reader.next
        steps = STEPS_PER_TURN
        until = perf_counter() + READ_TURN if self._pending_body else 0.0
        while (request := self._request) is not None and not self._paused:
            event = self._slice() if self._pending_body else following()
            if event is ParserState.NEED_DATA:
                if self._eof_received:
                    self._end(request)
                return
            if type(event) is bytes:
                if len(event) > READ_SLICE:
                    self._pending_body, self._pending_at = event, 0
                    until = until or perf_counter() + READ_TURN
                    continue
                if event:
                    request.on_body(event)
                if not until:
                    until = perf_counter() + READ_TURN  # small chunks cost as much as slices do
                elif perf_counter() > until:
                    steps = 1
            elif type(event) is ResponseHead:
                self._on_keep_alive(event)
                request.on_head(event)
            else:
                self._on_complete(request)
            steps -= 1
            if not steps:
                self._continue_soon()
                return

    def _slice(self) -> bytes:
        at = self._pending_at
        self._pending_at = at + READ_SLICE
        piece = self._pending_body[at : self._pending_at]
        if self._pending_at >= len(self._pending_body):
            self._pending_body = b""
        return piece

    def _on_keep_alive(self, head: ResponseHead) -> None:
        if not head.persistent:
            self.idle_limit = -1.0
        elif (said := head.headers.get(b"keep-alive")) is not None:
            found = _TIMEOUT.search(said.decode("latin-1"))
            if found is not None:
                self.idle_limit = min(self._pool.settings.idle, max(int(found[1]) - _KEEP_ALIVE_MARGIN, 0.0))

    def _on_complete(self, request: OutgoingRequest) -> None:
        """The answer is all there: the connection is free before its request thinks of what to ask next."""
        self._request = None
        reader = self._reader
        if (
            self.idle_limit < 0
            or reader.buffered
            or self.is_closed
            or self._eof_received
            or self._transport.is_closing()
        ):
            if not self.is_closed:
                self.close()
            self._pool.on_closed(self)
        else:
            reader.start_next()
            self.resume()
            self._pool.on_released(self)
        request.on_end()

    def eof_received(self) -> bool:
        """The server has nothing more to say."""
        self._on_eof(None)
        return not self.is_closed and not self._secure

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._on_eof(exc)

    def _on_eof(self, cause: Exception | None) -> None:
        """Nothing more comes. What came is read to its end before the request is told."""
        if self._request is None:
            self._fail(cause)
            return
        self._eof_received = True
        self._cause = self._cause or cause
        if self._continuation is None and not self._paused:
            self._continue_input()

    def _end(self, request: OutgoingRequest) -> None:
        if self._cause is None and self._reader.eof():
            self.idle_limit = -1.0
            self._on_complete(request)
        else:
            self._fail(self._cause)

    def _fail(self, cause: Exception | None) -> None:
        request, self._request = self._request, None
        if not self.is_closed:
            self.is_closed = True
            self._transport.abort()
        self._pool.on_closed(self)
        if request is not None:
            origin = self._address.origin
            if isinstance(cause, NotMcp):
                error: NotMcp | ConnectionLost = cause
            else:
                told = "the server hung up" if cause is None else error_text(cause)
                error = ConnectionLost(f"{origin}: {told} before the answer was complete")
            try:
                request.on_failure(error, unseen=False)
            except BaseException as broken:  # noqa: BLE001 - as in data_received
                self._pool.process.crash(broken)


# --- HTTP/1.1 answers out of bytes: incremental, bounded, and as strict as the reader of requests, whose bodies it reads in the same way. Pure.
# Nothing is guessed here either: an answer that is framed in two ways at once, or in an unknown way, may hide a second one in it, which the next
# request on this connection would be given. Informational answers are passed over. An answer that only the connection's end ends is read to that
# end, which `eof` tells.

MAX_INTERIM: Final = 16
"""How many informational answers may come before the real one."""
_STATUS: Final = re.compile(rb"HTTP/(1\.[01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*+)?+")
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH_DIGITS: Final = 18
_SWITCHING: Final = 101
_FIRST_REAL: Final = 200
_BODILESS: Final = frozenset({204, 304})


class ResponseHead:
    """The status and the headers of an answer, and what follows from them. Of a header that came twice, the last is kept."""

    __slots__ = ("chunked", "headers", "length", "persistent", "status")

    def __init__(self, status: int, version: bytes, lines: list[HeaderLine]) -> None:
        """Raises `Malformed` for headers that contradict each other."""
        self.status = status
        self.headers = headers = dict(lines)
        self.chunked = False
        self.length: int | None = None
        self.persistent = version == b"1.1"
        connection = headers.get(b"connection")
        if connection is not None:
            words = connection.lower()
            self.persistent = b"close" not in words and (self.persistent or b"keep-alive" in words)
        length, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
        if len(headers) != len(lines):
            _check_duplicates(lines)
        if coding is not None:
            if length is not None or version != b"1.1" or coding.lower() != b"chunked":
                raise Malformed(502, "the end of the answer is told in a way that can be misread")
            self.chunked = True
        elif length is not None:
            if not length.isdigit() or len(length) > _LENGTH_DIGITS:
                raise Malformed(502, "content-length is no number")
            self.length = int(length)

    def get(self, name: bytes) -> str:
        """A header's value as text; empty when it is missing."""
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def kind(self) -> str:
        """The content type, without its parameters."""
        return self.get(b"content-type").partition(";")[0].strip().lower()


class ResponseParser(RequestParser):
    """The reader of one connection: `feed` it, and take what `next` gives until it is hungry; `start_next` for the next answer."""

    __slots__ = ("_bodiless", "_interim", "_open_ended")

    def __init__(self, max_head: int, *, bodiless: bool = False) -> None:
        """`bodiless` for answers to HEAD."""
        super().__init__(max_head)
        self._bodiless = bodiless
        self._interim = 0
        self._open_ended = False

    def next(self) -> ResponseHead | bytes | ParserState:  # type: ignore[override]  # another head, and otherwise the same
        """The head of an answer, a piece of its body, or how it stands. Raises `Malformed`."""
        return self._next()  # type: ignore[return-value]

    def start_next(self) -> None:
        """The answer has been read: the next one, please."""
        super().start_next()
        self._interim = 0
        self._open_ended = False

    def eof(self) -> bool:
        """The connection has ended: whether that was the end of an answer, rather than the middle of one."""
        return self._open_ended

    def _head(self) -> ResponseHead | ParserState:  # type: ignore[override]  # as above
        while True:
            buffer, at = self._buffer, self._at
            end = buffer.find(_HEAD_END, max(at, self._seen - 3))
            if end < 0 or end - at > self._max_head:
                self._check_incomplete(buffer, end)
                self._seen = len(buffer)
                return ParserState.NEED_DATA
            self._at = self._seen = end + 4
            first = buffer.index(b"\r\n", at) + 2
            status, version = _parse_status_line(buffer[at : first - 2])
            if status >= _FIRST_REAL:
                return self._begin(
                    ResponseHead(status, version, parse_headers(buffer[first : end + 2], many=502, wrong=502))
                )
            self._interim += 1
            if status == _SWITCHING or self._interim > MAX_INTERIM:
                raise Malformed(502, "it wants to speak something else, or never to come to the point")

    def _begin(self, head: ResponseHead) -> ResponseHead:
        if self._bodiless or head.status in _BODILESS or head.length == 0:
            self._next = self._end
        elif head.chunked:
            self._chunked = True
            self._trailers = 0
            self._next = self._size
        elif head.length is not None:
            self._chunked = False
            self._left = head.length
            self._next = self._body
        else:
            head.persistent = False
            self._open_ended = True
            self._next = self._until_close
        return head

    def _until_close(self) -> bytes | ParserState:
        piece = self._buffer[self._at :]
        self._at = len(self._buffer)
        return piece or ParserState.NEED_DATA


def _parse_status_line(line: bytes) -> tuple[int, bytes]:
    found = _STATUS.fullmatch(line)
    if found is None:
        raise Malformed(502, "this is no answer of HTTP/1.1")
    return int(found[2]), found[1]


def _check_duplicates(lines: list[HeaderLine]) -> None:
    names = [name for name, _ in lines]
    for name in (b"content-length", b"transfer-encoding", b"content-type", b"mcp-session-id"):
        if names.count(name) > 1:
            raise Malformed(502, f"{name.decode()} came twice")
