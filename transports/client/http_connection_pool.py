"""The client's connection pool for HTTP/1.1: bounded, with connections kept for later requests.

A connection is used again only if its last response ended where its framing said, no input followed, it was not idle for long, and the
kernel reports nothing new on it. Requests that find no idle connection wait in order, or get a new one. A response is passed to its request
directly in the transport's callback, without a task or a queue in between.
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
"""Seconds of idleness after which the kernel is asked whether the server has closed the connection, since the loop may not have noticed yet."""


class QueuedRequest:
    """A request without a connection: one is being made for it, or it waits for one."""

    __slots__ = ("_pool", "connecting", "is_done", "request")

    def __init__(self, pool: HttpConnectionPool, request: OutgoingRequest) -> None:
        self._pool = pool
        self.request = request
        self.connecting: asyncio.Task[None] | None = None
        self.is_done = False

    @property
    def may_have_been_sent(self) -> bool:
        """Nothing was sent."""
        return False

    def drop(self) -> None:
        if not self.is_done:
            self.is_done = True
            self._pool.on_dropped(self)

    def pause(self) -> None:
        """A no-op: there is no response yet."""

    def resume(self) -> None:
        """A no-op."""

    def fail(self, error: TransportError | None) -> None:
        """No connection could be made."""
        if not self.is_done:
            self.is_done = True
            hung_up = ConnectFailed(f"{self.request.address.origin}: it closed the connection at once")
            self.request.on_failure(error or hung_up, unseen=True)


class HttpConnectionPool:
    """All connections of one wire. Its callbacks run in the wire's process: an exception in them crashes that process."""

    def __init__(self, process: Process, settings: HttpSettings, context: ssl.SSLContext | None = None) -> None:
        """`context` is for https; None only for a wire without TLS."""
        self.process = process
        self._loop = process.node.loop
        self._context: Context = process.own_context()
        self._tls = context
        self.settings = settings
        self._idle: list[PooledConnection] = []
        self._busy: dict[PooledConnection, bool] = {}
        """Connections with a request, and whether that takes a place."""
        self._connecting: dict[QueuedRequest, None] = {}
        self._queued: deque[QueuedRequest] = deque()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._head: tuple[Any, Any, str] = (None, None, "")
        self._head_bytes = b""

    def __len__(self) -> int:
        """The number of connections, including those being made."""
        return len(self._idle) + len(self._busy) + len(self._connecting)

    # --- requests

    def start(self, request: OutgoingRequest) -> None:
        """Send a request on an idle connection, or as soon as there is one."""
        address = request.address
        while (connection := self._free(address)) is not None:
            if self._assign(request, connection):
                return  # otherwise the server has closed it meanwhile
        queued = request.in_flight = QueuedRequest(self, request)
        if request.urgent or self._has_room():
            self._connecting[queued] = None
            task = self._loop.create_task(self._connect(queued, address), context=self._context.copy())
            queued.connecting = task
        else:
            self._queued.append(queued)

    def _assign(self, request: OutgoingRequest, connection: PooledConnection) -> bool:
        """Send a request on that connection. False if the kernel accepted no byte of it."""
        request.in_flight = connection
        self._busy[connection] = not request.lasts
        if connection.send(self._encode(request), request):
            return True
        request.in_flight = None
        del self._busy[connection]
        return False

    def _assign_or_retry(self, request: OutgoingRequest, connection: PooledConnection) -> None:
        """Give a queued request its connection."""
        if self._assign(request, connection):
            return
        if connection.idle_since >= 0:  # an idle connection was closed meanwhile: try another one
            self.start(request)
        else:
            queued = request.in_flight = QueuedRequest(self, request)
            self._loop.call_soon(queued.fail, None, context=self._context)

    def _encode(self, request: OutgoingRequest) -> bytes:
        """Encode a request. The head, except for the length and what mirrors the body, is cached: it mostly equals the previous one, and comparing three references costs less than encoding it."""
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
        if request.mirrored:
            mirrored = "".join([f"{name}: {value}\r\n" for name, value in request.mirrored]).encode("latin-1")
            return b"%b%bcontent-length: %d\r\n\r\n%b" % (self._head_bytes, mirrored, len(body), body)
        return b"%bcontent-length: %d\r\n\r\n%b" % (self._head_bytes, len(body), body)

    def on_dropped(self, queued: QueuedRequest) -> None:
        """A queued request was given up."""
        if queued.connecting is not None:
            queued.connecting.cancel()
            del self._connecting[
                queued
            ]  # removed here, since a task that is cancelled before its first step runs no `finally`
            self._start_queued()
        elif queued in self._queued:
            self._queued.remove(queued)

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

    async def _connect(self, queued: QueuedRequest, address: ServerUrl) -> None:
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
            error = ConnectFailed(f"{address.origin}: no connection within {seconds:g} s")
        except (OSError, UnicodeError, ValueError) as failed:
            error = ConnectFailed(f"{address.origin}: {error_text(failed)}")
        finally:
            self._connecting.pop(queued, None)
            queued.connecting = None
        if connection is not None:
            if queued.is_done or self._closed or connection.is_closed:
                connection.close()
            else:
                self._assign_or_retry(queued.request, connection)
                return
        queued.fail(error)
        self._start_queued()

    def on_released(self, connection: PooledConnection) -> None:
        """A connection's response is complete, and it can be used again."""
        took_place = self._busy.pop(connection, True)
        if self._closed:
            connection.close()
            return
        waiting = self._queued[0].request if self._queued else None
        if waiting is not None and connection.reaches(waiting.address) and (took_place or self._has_room()):
            self._assign_or_retry(self._queued.popleft().request, connection)
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)
        if self._sweep_timer is None:
            self._sweep_in(connection.idle_limit)

    def on_closed(self, connection: PooledConnection) -> None:
        """A connection is closed, or is about to be."""
        self._busy.pop(connection, None)
        if connection in self._idle:
            self._idle.remove(connection)
        self._start_queued()

    def _start_queued(self) -> None:
        """Start queued requests while there is room."""
        while self._queued and not self._closed and self._has_room():
            self.start(self._queued.popleft().request)

    def _has_room(self) -> bool:
        connecting = sum(not each.request.lasts for each in self._connecting)
        return sum(self._busy.values()) + connecting < self.settings.max_connections

    def _sweep_in(self, seconds: float) -> None:
        self._sweep_timer = self._loop.call_later(seconds + 0.01, self._sweep, context=self._context)

    def _sweep(self) -> None:
        """Close connections that were idle for too long."""
        self._sweep_timer = None
        now = self._loop.time()
        for connection in tuple(self._idle):
            if now - connection.idle_since >= connection.idle_limit:
                self._idle.remove(connection)
                connection.close()
        if self._idle:
            self._sweep_in(max(0.0, min(each.idle_since + each.idle_limit for each in self._idle) - now))

    async def close(self) -> None:
        """Drop all requests and connections."""
        self._closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        self._queued.clear()
        for connection in (*self._idle, *self._busy):
            connection.drop()
        self._idle.clear()
        self._busy.clear()


def _is_readable(fileno: int) -> bool:
    """Whether an idle socket is readable: the server has closed it, or sends unasked data."""
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    return bool(poll.poll(0))


# --- A pooled connection: one request at a time, and its response passed on as it arrives.

_TIMEOUT: Final = re.compile(r"(?:^|[,;\s])timeout=(\d{1,6})\b", re.IGNORECASE)
STEPS_PER_TURN: Final = 256
"""How many parser steps a response gets in one turn of the loop: half a millisecond, whatever the bytes are."""
UNREAD_LIMIT: Final = 64 * 1024
"""How many unparsed bytes are buffered before reading pauses."""
_KEEP_ALIVE_MARGIN: Final = 1.0
"""How many seconds before the server's announced keep-alive timeout an idle connection is closed."""
_KEEPALIVE_IDLE: Final = 30
_KEEPALIVE_INTERVAL: Final = 10
_KEEPALIVE_PROBES: Final = 3


class PooledConnection(asyncio.Protocol):
    """One connection of the pool."""

    def __init__(self, pool: HttpConnectionPool, address: ServerUrl) -> None:
        self._pool = pool
        self._address = address
        self._reader = ResponseParser(pool.settings.max_header)
        self._transport: Any = None
        self._request: OutgoingRequest | None = None
        self._paused = False
        self._reading = True
        self._continuation: asyncio.Handle | None = None
        self._eof_received = False  # no more input will come; what is buffered may still be parsed
        self._cause: Exception | None = None
        self._pending_body = (
            b""  # a piece of a body that is delivered in slices; the part before `_pending_at` was delivered
        )
        self._pending_at = 0
        self._secure = (
            address.secure
        )  # over TLS, writes go through a buffer, so a successful write does not mean that the kernel took it
        self.is_closed = False
        """Whether it is closed, or about to be."""
        self.idle_since = -1.0
        """Since when it is idle; negative before its first response."""
        self.idle_limit = pool.settings.idle
        """For how long it may be idle."""

    def reaches(self, address: ServerUrl) -> bool:
        """Whether requests for that URL can use it."""
        own = self._address
        return own is address or own.origin == address.origin

    @property
    def fileno(self) -> int:
        """The socket's descriptor."""
        return int(self._transport.get_extra_info("socket").fileno())

    @property
    def may_have_been_sent(self) -> bool:
        """A request on it may have been sent."""
        return True

    # --- called by the pool

    def send(self, data: bytes, request: OutgoingRequest) -> bool:
        """Send a request. False if the kernel accepted no byte of it, so the server has not received it."""
        transport = self._transport
        self._request = request
        transport.write(data)
        if not transport.is_closing() or self._secure:
            return True
        self._request = None
        self.is_closed = True
        return False

    def pause(self) -> None:
        """Pause the response."""
        self._paused = True
        self._update_reading()

    def resume(self) -> None:
        """Resume the response."""
        if self._paused:
            self._paused = False
            self._continue_soon()
            self._update_reading()

    def _continue_soon(self) -> None:
        if self._continuation is None:
            self._continuation = asyncio.get_running_loop().call_soon(self._continue_input)

    def _update_reading(self) -> None:
        """Resume or pause reading from the socket, by how much is buffered."""
        reading = not self._paused and self._reader.buffered <= UNREAD_LIMIT
        if reading is not self._reading and not self.is_closed:
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def close(self) -> None:
        """Close an idle connection."""
        self.is_closed = True
        self._transport.close()

    def drop(self) -> None:
        """Close it now; the request gets no further callback."""
        self._request = None
        if not self.is_closed:
            self.is_closed = True
            self._transport.abort()
        self._pool.on_closed(self)

    # --- callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        raw = transport.get_extra_info("socket")
        with suppress(OSError, AttributeError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)

    def data_received(self, data: bytes) -> None:
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
        """Parse the buffered input, up to the limit for one turn."""
        self._continuation = None
        try:
            self._process_input()
            self._update_reading()
        except Malformed as broken:
            self._fail(NotMcp(f"{self._address.origin} does not speak HTTP/1.1 properly: {broken}"))
        except BaseException as error:  # noqa: BLE001 - an exception here would otherwise only be logged by the transport
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
        """The response is complete. The connection is released first, so that a request sent by the callback can use it."""
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
        self._on_eof(None)
        return not self.is_closed and not self._secure

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_eof(exc)

    def _on_eof(self, cause: Exception | None) -> None:
        """No more input will come. Buffered input is parsed before the request is told."""
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
                told = "the server closed the connection" if cause is None else error_text(cause)
                error = ConnectionLost(f"{origin}: {told} before the response was complete")
            try:
                request.on_failure(error, unseen=False)
            except BaseException as broken:  # noqa: BLE001 - as in `_continue_input`
                self._pool.process.crash(broken)


# --- Parsing HTTP/1.1 responses: incremental, bounded, and as strict as the request parser, whose body parsing it shares. Pure.
# A response that is framed in two ways at once, or in an unknown way, is refused: it may hide a second response, which the next request on
# the connection would get. Interim responses are skipped. A response without length ends with its connection, which `eof` tells.

MAX_INTERIM: Final = 16
"""How many interim responses may precede the final one."""
_STATUS: Final = re.compile(rb"HTTP/(1\.[01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*+)?+")
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH_DIGITS: Final = 18
_SWITCHING: Final = 101
_FIRST_REAL: Final = 200
_BODILESS: Final = frozenset({204, 304})


class ResponseHead:
    """The status and headers of a response, and its framing. Of duplicate headers the last one is kept, and of challenges all."""

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
            if b"www-authenticate" in headers:
                headers[b"www-authenticate"] = b", ".join(value for name, value in lines if name == b"www-authenticate")
        if coding is not None:
            if length is not None or version != b"1.1" or coding.lower() != b"chunked":
                raise Malformed(502, "the response's length is given in an ambiguous way")
            self.chunked = True
        elif length is not None:
            if not length.isdigit() or len(length) > _LENGTH_DIGITS:
                raise Malformed(502, "content-length is not a number")
            self.length = int(length)

    def get(self, name: bytes) -> str:
        """A header's value as text; empty if it is missing."""
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def kind(self) -> str:
        """The content type without parameters."""
        return self.get(b"content-type").partition(";")[0].strip().lower()


class ResponseParser(RequestParser):
    """The response parser of one connection: `feed` it, and call `next` until it returns `NEED_DATA`; `start_next` for the next response."""

    __slots__ = ("_bodiless", "_interim", "_open_ended")

    def __init__(self, max_head: int, *, bodiless: bool = False) -> None:
        """`bodiless` for responses to HEAD."""
        super().__init__(max_head)
        self._bodiless = bodiless
        self._interim = 0
        self._open_ended = False

    def next(self) -> ResponseHead | bytes | ParserState:  # type: ignore[override]  # another type of head, otherwise the same
        """The head of a response, a piece of its body, or the state. Raises `Malformed`."""
        return self._next()  # type: ignore[return-value]

    def start_next(self) -> None:
        """The response was read: parse the next one."""
        super().start_next()
        self._interim = 0
        self._open_ended = False

    def eof(self) -> bool:
        """Whether the end of the connection is the end of a response, and not its middle."""
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
                raise Malformed(502, "it switches protocols, or sends interim responses without end")

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
        raise Malformed(502, "not an HTTP/1.1 response")
    return int(found[2]), found[1]


def _check_duplicates(lines: list[HeaderLine]) -> None:
    names = [name for name, _ in lines]
    for name in (b"content-length", b"transfer-encoding", b"content-type", b"mcp-session-id"):
        if names.count(name) > 1:
            raise Malformed(502, f"{name.decode()} came twice")
