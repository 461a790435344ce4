"""Connections of one client to its server: bounded, kept for the next request, and never trusted further than they can be.

A connection is used again only when its last answer ended where it said, nothing came after that, it was not idle for long, and the kernel
knows of nothing new on it. Requests that find none free wait in order, or have one made. What an answer brings goes straight to
its visit, in the moment when it comes in: there is no task, and no queue, between the kernel and the wire.
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

from greenroom.transports.http1 import HeaderLine, Malformed, Requests, State, read_fields

from .errors import ConnectFailed, ConnectionLost, NotMcp
from .http_address import dial
from .http_settings import why
from .interfaces import SLICE, TURN

if TYPE_CHECKING:
    import ssl
    from contextvars import Context

    from greenroom.supervision import Process

    from .errors import TransportError
    from .http_address import Address
    from .http_posts import Visit
    from .http_settings import HttpSettings

_WATCHED: Final = 0.002
"""Seconds of idleness after which the kernel is asked whether the server has hung up: the loop may not have come to hear of it."""


class Waiting:
    """A visit that has no connection yet: one is made for it, or another visit has to leave one first."""

    __slots__ = ("_pool", "connecting", "over", "visit")

    def __init__(self, pool: Pool, visit: Visit) -> None:
        """Not begun."""
        self._pool = pool
        self.visit = visit
        self.connecting: asyncio.Task[None] | None = None
        self.over = False

    @property
    def left(self) -> bool:
        """Nothing of it has left."""
        return False

    def drop(self) -> None:
        """The answer is not wanted."""
        if not self.over:
            self.over = True
            self._pool.dropped(self)

    def pause(self) -> None:
        """There is no answer yet that could wait."""

    def resume(self) -> None:
        """As above."""

    def fail(self, error: TransportError | None) -> None:
        """There will be no connection."""
        if not self.over:
            self.over = True
            hung_up = ConnectFailed(f"{self.visit.address.origin}: it hung up at once")
            self.visit.failed(error or hung_up, unseen=True)


class Pool:
    """All connections of one wire. Its callbacks run in the process whose wire it is, and a bug in them is that process's crash."""

    def __init__(self, process: Process, settings: HttpSettings, context: ssl.SSLContext | None = None) -> None:
        """`context` is for https; without one the system's authorities are trusted."""
        self.process = process
        self._loop = process.node.loop
        self._context: Context = process.own_context()
        self._tls = context
        self.settings = settings
        self._idle: list[Connection] = []
        self._busy: dict[Connection, None] = {}
        self._connecting: dict[Waiting, None] = {}
        self._waiting: deque[Waiting] = deque()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False
        self._head: tuple[Any, Any, str] = (None, None, "")
        self._head_bytes = b""

    def __len__(self) -> int:
        """How many connections there are, or are being made."""
        return len(self._idle) + len(self._busy) + len(self._connecting)

    # --- requests

    def begin(self, visit: Visit) -> None:
        """Send it on a connection that is free, or as soon as there is one."""
        address = visit.address
        while (connection := self._free(address)) is not None:
            if self._mount(visit, connection):
                return  # else the server has closed it meanwhile
        waiting = visit.errand = Waiting(self, visit)
        if visit.urgent or self._has_room():
            self._connecting[waiting] = None
            task = self._loop.create_task(self._connect(waiting, address), context=self._context.copy())
            waiting.connecting = task
        else:
            self._waiting.append(waiting)

    def _mount(self, visit: Visit, connection: Connection) -> bool:
        """Send it on that connection. False when the kernel took not a byte of it."""
        visit.errand = connection
        self._busy[connection] = None
        if connection.begin(self._bytes(visit), visit):
            return True
        visit.errand = None
        del self._busy[connection]
        return False

    def _give(self, visit: Visit, connection: Connection) -> None:
        """The connection that it has waited for."""
        if self._mount(visit, connection):
            return
        if connection.since >= 0:  # it had been used before, and was closed meanwhile
            self.begin(visit)
        else:
            waiting = visit.errand = Waiting(self, visit)
            self._loop.call_soon(waiting.fail, None, context=self._context)

    def _bytes(self, visit: Visit) -> bytes:
        """The request as it travels. All of the head but the length is mostly that of the one before."""
        headers, method, address = visit.headers, visit.method, visit.address
        last = self._head
        if headers is not last[1] or address is not last[0] or method != last[2]:
            self._head = address, headers, method
            lines = [f"{method} {address.target} HTTP/1.1", f"host: {address.authority}"]
            lines += [f"{name}: {value}" for name, value in headers]
            self._head_bytes = "\r\n".join([*lines, ""]).encode("latin-1")
        if method != "POST":
            return self._head_bytes + b"\r\n"
        body = visit.frame
        return b"%bcontent-length: %d\r\n\r\n%b" % (self._head_bytes, len(body), body)

    def dropped(self, waiting: Waiting) -> None:
        """A visit was given up before it had a connection."""
        if waiting.connecting is not None:
            waiting.connecting.cancel()
            del self._connecting[waiting]  # here and now: a task that has not begun never comes to say so
            self._next()
        elif waiting in self._waiting:
            self._waiting.remove(waiting)

    # --- connections

    def _free(self, address: Address) -> Connection | None:
        now = self._loop.time()
        while self._idle:
            connection = self._idle.pop()
            rested = now - connection.since
            if (
                rested <= connection.patience
                and connection.leads_to(address)
                and (rested < _WATCHED or not _stirs(connection.fileno))
            ):
                return connection
            connection.close()
        return None

    async def _connect(self, waiting: Waiting, address: Address) -> None:
        protocol: Connection | None = None
        connection: Connection | None = None

        def made() -> Connection:
            nonlocal protocol
            protocol = Connection(self, address)
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
            error = ConnectFailed(f"{address.origin}: {why(failed)}")
        finally:
            self._connecting.pop(waiting, None)
            waiting.connecting = None
        if connection is not None:
            if waiting.over or self._closed or connection.lost:
                connection.close()
            else:
                self._give(waiting.visit, connection)
                return
        waiting.fail(error)
        self._next()

    def released(self, connection: Connection) -> None:
        """Its answer is complete, and it can be used again."""
        self._busy.pop(connection, None)
        if self._closed:
            connection.close()
            return
        if self._waiting and connection.leads_to(self._waiting[0].visit.address):
            self._give(self._waiting.popleft().visit, connection)
            return
        connection.since = self._loop.time()
        self._idle.append(connection)
        if self._sweeping is None:
            self._sweep_in(connection.patience)

    def gone(self, connection: Connection) -> None:
        """It is closed, or about to be."""
        self._busy.pop(connection, None)
        if connection in self._idle:
            self._idle.remove(connection)
        self._next()

    def _next(self) -> None:
        """There may be room for a request that waits."""
        while self._waiting and not self._closed and self._has_room():
            self.begin(self._waiting.popleft().visit)

    def _has_room(self) -> bool:
        return len(self._busy) + len(self._connecting) < self.settings.max_connections

    def _sweep_in(self, seconds: float) -> None:
        self._sweeping = self._loop.call_later(seconds + 0.01, self._sweep, context=self._context)

    def _sweep(self) -> None:
        """Close what has been idle for too long; the oldest is the first."""
        self._sweeping = None
        now = self._loop.time()
        for connection in tuple(self._idle):
            if now - connection.since >= connection.patience:
                self._idle.remove(connection)
                connection.close()
        if self._idle:
            self._sweep_in(max(0.0, min(each.since + each.patience for each in self._idle) - now))

    async def close(self) -> None:
        """Drop everything."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._waiting.clear()
        for connection in (*self._idle, *self._busy):
            connection.drop()
        self._idle.clear()
        self._busy.clear()


def _stirs(fileno: int) -> bool:
    """Whether the kernel has something to say of a socket that should be silent: it is closed, or the server speaks out of turn."""
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    return bool(poll.poll(0))


# --- One connection to an HTTP server: a request at a time, and its answer handed on as it comes.

_TIMEOUT: Final = re.compile(r"(?:^|[,;\s])timeout=(\d{1,6})\b", re.IGNORECASE)
STEPS: Final = 256
"""How many steps of reading an answer gets in one turn of the loop: half a millisecond, whatever its bytes are."""
AHEAD: Final = 64 * 1024
"""How many bytes wait for their turn before no more is read."""
_EARLIER: Final = 1.0
"""By how many seconds we are to be earlier than the server, when it says how long it keeps an idle connection."""
_QUIET: Final = 30
_ASKED: Final = 10
_TIMES: Final = 3


class Connection(asyncio.Protocol):
    """Made by the pool, to which it belongs."""

    def __init__(self, pool: Pool, address: Address) -> None:
        """Not open yet."""
        self._pool = pool
        self._address = address
        self._reader = Answers(pool.settings.max_header)
        self._transport: Any = None
        self._visit: Visit | None = None
        self._paused = False
        self._reading = True
        self._going_on: asyncio.Handle | None = None
        self._ended = False  # the server says no more, and what it has said may still be being read
        self._cause: Exception | None = None
        self._rest = b""  # of a piece of a body, from a place on: the visit has had what is before
        self._rest_at = 0
        self._secure = address.secure  # what is written goes by way of a buffer
        self.lost = False
        """Whether it is of no more use."""
        self.since = -1.0
        """Since when it is, or was, idle; before its first answer negative."""
        self.patience = pool.settings.idle
        """For how long that may be."""

    def leads_to(self, address: Address) -> bool:
        """Whether requests for that address can go here."""
        own = self._address
        return own is address or own.origin == address.origin

    @property
    def fileno(self) -> int:
        """Of the socket."""
        return int(self._transport.get_extra_info("socket").fileno())

    @property
    def left(self) -> bool:
        """What is on it may have left."""
        return True

    # --- the pool's

    def begin(self, data: bytes, visit: Visit) -> bool:
        """Send a request; the answer is for the visit. False when the kernel took not a byte of it: the server has not seen it."""
        transport = self._transport
        self._visit = visit
        transport.write(data)
        if not transport.is_closing() or self._secure:
            return True
        self._visit = None
        self.lost = True
        return False

    def pause(self) -> None:
        """Tell the visit nothing for a while."""
        self._paused = True
        self._relax()

    def resume(self) -> None:
        """Go on."""
        if self._paused:
            self._paused = False
            self._later()
            self._relax()

    def _later(self) -> None:
        if self._going_on is None:
            self._going_on = asyncio.get_running_loop().call_soon(self._go_on)

    def _relax(self) -> None:
        """Read from the socket, unless enough waits."""
        reading = not self._paused and self._reader.ahead <= AHEAD
        if reading is not self._reading and not self.lost:
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def close(self) -> None:
        """Close it: it is not needed any more, and owes no answer."""
        self.lost = True
        self._transport.close()

    def drop(self) -> None:
        """Close it in the middle of whatever it is doing, and tell the visit nothing."""
        self._visit = None
        if not self.lost:
            self.lost = True
            self._transport.abort()
        self._pool.gone(self)

    # --- the transport's

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = transport
        raw = transport.get_extra_info("socket")
        with suppress(OSError, AttributeError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _QUIET)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _ASKED)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _TIMES)

    def data_received(self, data: bytes) -> None:
        """More of an answer, or data that no request has asked for."""
        if self._visit is None:
            if not self.lost:
                self.drop()
            return
        self._reader.feed(data)
        if self._going_on is None:
            self._go_on()
        else:
            self._relax()

    def _go_on(self) -> None:
        """Read what is there, up to where others have their turn."""
        self._going_on = None
        try:
            self._advance()
            self._relax()
        except Malformed as broken:
            self._fail(NotMcp(f"{self._address.origin} does not speak HTTP/1.1 properly: {broken}"))
        except BaseException as error:  # noqa: BLE001 - a bug of ours, which must not be lost in the transport's log
            self.drop()
            self._pool.process.crash(error)

    def _advance(self) -> None:
        following = self._reader.next
        steps = STEPS
        until = perf_counter() + TURN if self._rest else 0.0
        while (visit := self._visit) is not None and not self._paused:
            event = self._slice() if self._rest else following()
            if event is State.HUNGRY:
                if self._ended:
                    self._end(visit)
                return
            if type(event) is bytes:
                if len(event) > SLICE:
                    self._rest, self._rest_at = event, 0
                    until = until or perf_counter() + TURN
                    continue
                if event:
                    visit.body(event)
                if not until:
                    until = perf_counter() + TURN  # small chunks cost as much as slices do
                elif perf_counter() > until:
                    steps = 1
            elif type(event) is Head:
                self._heed(event)
                visit.head(event)
            else:
                self._complete(visit)
            steps -= 1
            if not steps:
                self._later()
                return

    def _slice(self) -> bytes:
        at = self._rest_at
        self._rest_at = at + SLICE
        piece = self._rest[at : self._rest_at]
        if self._rest_at >= len(self._rest):
            self._rest = b""
        return piece

    def _heed(self, head: Head) -> None:
        if not head.persistent:
            self.patience = -1.0
        elif (said := head.headers.get(b"keep-alive")) is not None:
            found = _TIMEOUT.search(said.decode("latin-1"))
            if found is not None:
                self.patience = min(self._pool.settings.idle, max(int(found[1]) - _EARLIER, 0.0))

    def _complete(self, visit: Visit) -> None:
        """The answer is all there: the connection is free before its visit thinks of what to ask next."""
        self._visit = None
        reader = self._reader
        if self.patience < 0 or reader.ahead or self.lost or self._ended or self._transport.is_closing():
            if not self.lost:
                self.close()
            self._pool.gone(self)
        else:
            reader.again()
            self.resume()
            self._pool.released(self)
        visit.end()

    def eof_received(self) -> bool:
        """The server has nothing more to say."""
        self._stop(None)
        return not self.lost and not self._secure

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._stop(exc)

    def _stop(self, cause: Exception | None) -> None:
        """Nothing more comes. What came is read to its end before the visit is told."""
        if self._visit is None:
            self._fail(cause)
            return
        self._ended = True
        self._cause = self._cause or cause
        if self._going_on is None and not self._paused:
            self._go_on()

    def _end(self, visit: Visit) -> None:
        if self._cause is None and self._reader.eof():
            self.patience = -1.0
            self._complete(visit)
        else:
            self._fail(self._cause)

    def _fail(self, cause: Exception | None) -> None:
        visit, self._visit = self._visit, None
        if not self.lost:
            self.lost = True
            self._transport.abort()
        self._pool.gone(self)
        if visit is not None:
            origin = self._address.origin
            if isinstance(cause, NotMcp):
                error: NotMcp | ConnectionLost = cause
            else:
                told = "the server hung up" if cause is None else why(cause)
                error = ConnectionLost(f"{origin}: {told} before the answer was complete")
            try:
                visit.failed(error, unseen=False)
            except BaseException as broken:  # noqa: BLE001 - as in data_received
                self._pool.process.crash(broken)


# --- HTTP/1.1 answers out of bytes: incremental, bounded, and as strict as the reader of requests, whose bodies it reads in the same way. Pure.
# Nothing is guessed here either: an answer that is framed in two ways at once, or in an unknown way, may hide a second one in it, which the next
# request on this connection would be given. Informational answers are passed over. An answer that only the connection's end ends is read to that
# end, which `eof` tells.

INTERIM: Final = 16
"""How many informational answers may come before the real one."""
_STATUS: Final = re.compile(rb"HTTP/(1\.[01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*+)?+")
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH_DIGITS: Final = 18
_SWITCHING: Final = 101
_FIRST_REAL: Final = 200
_BODILESS: Final = frozenset({204, 304})


class Head:
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
            _check_twice(lines)
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


class Answers(Requests):
    """The reader of one connection: `feed` it, and take what `next` gives until it is hungry; `again` for the next answer."""

    __slots__ = ("_bodiless", "_interim", "_open_ended")

    def __init__(self, max_head: int, *, bodiless: bool = False) -> None:
        """`bodiless` for answers to HEAD."""
        super().__init__(max_head)
        self._bodiless = bodiless
        self._interim = 0
        self._open_ended = False

    def next(self) -> Head | bytes | State:  # type: ignore[override]  # another head, and otherwise the same
        """The head of an answer, a piece of its body, or how it stands. Raises `Malformed`."""
        return self._next()  # type: ignore[return-value]

    def again(self) -> None:
        """The answer has been read: the next one, please."""
        super().again()
        self._interim = 0
        self._open_ended = False

    def eof(self) -> bool:
        """The connection has ended: whether that was the end of an answer, rather than the middle of one."""
        return self._open_ended

    def _head(self) -> Head | State:  # type: ignore[override]  # as above
        while True:
            buffer, at = self._buffer, self._at
            end = buffer.find(_HEAD_END, max(at, self._seen - 3))
            if end < 0 or end - at > self._max_head:
                self._look_ahead(buffer, end)
                self._seen = len(buffer)
                return State.HUNGRY
            self._at = self._seen = end + 4
            first = buffer.index(b"\r\n", at) + 2
            status, version = _first(buffer[at : first - 2])
            if status >= _FIRST_REAL:
                return self._begin(Head(status, version, read_fields(buffer[first : end + 2], many=502, wrong=502)))
            self._interim += 1
            if status == _SWITCHING or self._interim > INTERIM:
                raise Malformed(502, "it wants to speak something else, or never to come to the point")

    def _begin(self, head: Head) -> Head:
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
            self._next = self._rest
        return head

    def _rest(self) -> bytes | State:
        piece = self._buffer[self._at :]
        self._at = len(self._buffer)
        return piece or State.HUNGRY


def _first(line: bytes) -> tuple[int, bytes]:
    found = _STATUS.fullmatch(line)
    if found is None:
        raise Malformed(502, "this is no answer of HTTP/1.1")
    return int(found[2]), found[1]


def _check_twice(lines: list[HeaderLine]) -> None:
    names = [name for name, _ in lines]
    for name in (b"content-length", b"transfer-encoding", b"content-type", b"mcp-session-id"):
        if names.count(name) > 1:
            raise Malformed(502, f"{name.decode()} came twice")
