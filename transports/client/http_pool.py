"""Connections of one client to its server: bounded, kept for the next request, and never trusted further than they can be.

A connection is used again only when its last answer ended where it said, nothing came after that, it was not idle for long, and the kernel
knows of nothing new on it. Requests that find none free wait in order, or have one made. What an answer brings goes straight to
who asked for it, in the moment when it comes in: there is no task, and no queue, between the kernel and the wire.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import select
import socket
from collections import deque
from contextlib import suppress
from itertools import chain, zip_longest
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from greenroom.transports.http1 import Malformed, State

from .errors import ConnectFailed, ConnectionLost, NotMcp
from .http_reader import Answers, Head
from .http_settings import why
from .seam import SLICE, TURN

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from contextvars import Context

    from greenroom.supervision import Process

    from .errors import TransportError
    from .http_address import Address
    from .http_reader import Asker, Order
    from .http_settings import HttpSettings

_WATCHED: Final = 0.002
"""Seconds of idleness after which the kernel is asked whether the server has hung up: the loop may not have come to hear of it."""


class Ride:
    """One order under way: it waits for a connection, has one made, or is on one."""

    __slots__ = ("_pool", "asker", "connecting", "connection", "order", "over")

    def __init__(self, pool: Pool, order: Order, asker: Asker) -> None:
        """Not begun."""
        self._pool = pool
        self.order = order
        self.asker = asker
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.over = False

    @property
    def left(self) -> bool:
        """Whether anything of it may have left."""
        return self.connection is not None

    def drop(self) -> None:
        """Nobody wants the answer."""
        if not self.over:
            self.over = True
            self._pool.dropped(self)

    def pause(self) -> None:
        """Let the answer wait where it is."""
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        """Go on."""
        if self.connection is not None:
            self.connection.resume()


class Pool:
    """All connections of one wire. Its callbacks run in the process whose wire it is, and a bug in them is that process's crash."""

    def __init__(self, process: Process, settings: HttpSettings, context: ssl.SSLContext | None = None) -> None:
        """`context` is for https; without one the system's authorities are trusted."""
        self._process = process
        self._loop = process.node.loop
        self._context: Context = process.own_context()
        self._tls = context
        self.settings = settings
        self._idle: list[Connection] = []
        self._busy: dict[Connection, None] = {}
        self._connecting: dict[Ride, None] = {}
        self._waiting: deque[Ride] = deque()
        self._sweeping: asyncio.TimerHandle | None = None
        self._closed = False
        self._head: tuple[Any, Any, str] = (None, None, "")
        self._head_bytes = b""

    def __len__(self) -> int:
        """How many connections there are, or are being made."""
        return len(self._idle) + len(self._busy) + len(self._connecting)

    # --- orders

    def begin(self, order: Order, asker: Asker) -> Ride:
        """Take one on."""
        ride = Ride(self, order, asker)
        self._place(ride)
        return ride

    def _place(self, ride: Ride) -> None:
        address = ride.order.address
        connection = self._free(address)
        if connection is not None:
            self._mount(ride, connection)
        elif ride.order.urgent or self._has_room():
            self._connecting[ride] = None
            ride.connecting = self._loop.create_task(self._connect(ride, address), context=self._context.copy())
        else:
            self._waiting.append(ride)

    def _mount(self, ride: Ride, connection: Connection) -> None:
        ride.connection = connection
        self._busy[connection] = None
        if connection.begin(self._bytes(ride.order), ride):
            return
        ride.connection = None
        del self._busy[connection]
        if connection.since >= 0:  # it had been used before, and was closed meanwhile
            self._place(ride)
        else:
            self._loop.call_soon(self._vain, ride, context=self._context)

    def _vain(self, ride: Ride) -> None:
        if not ride.over:
            ride.over = True
            error = ConnectFailed(f"{ride.order.address.origin}: it hung up at once")
            ride.asker.failed(error, unseen=True)

    def _bytes(self, order: Order) -> bytes:
        """The request as it travels. All of the head but the length is mostly that of the one before."""
        address, headers, method = self._head
        if headers is not order.headers or address is not order.address or method != order.method:
            self._head = order.address, order.headers, order.method
            lines = [f"{order.method} {order.address.target} HTTP/1.1", f"host: {order.address.authority}"]
            lines += [f"{name}: {value}" for name, value in order.headers]
            self._head_bytes = "\r\n".join([*lines, ""]).encode("latin-1")
        body = order.body
        if not body and order.method != "POST":
            return self._head_bytes + b"\r\n"
        return b"%bcontent-length: %d\r\n\r\n%b" % (self._head_bytes, len(body), body)

    def dropped(self, ride: Ride) -> None:
        """An order was given up: what it was on cannot be used by anybody else."""
        if ride.connection is not None:
            connection, ride.connection = ride.connection, None
            connection.abandon()
        elif ride.connecting is not None:
            ride.connecting.cancel()
            del self._connecting[ride]  # here and now: a task that has not begun never comes to say so
            self._next()
        elif ride in self._waiting:
            self._waiting.remove(ride)

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

    async def _connect(self, ride: Ride, address: Address) -> None:
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
            self._connecting.pop(ride, None)
            ride.connecting = None
        if connection is not None:
            if ride.over or self._closed or connection.lost:
                connection.close()
            else:
                self._mount(ride, connection)
                return
        if not ride.over:
            ride.over = True
            ride.asker.failed(error or ConnectFailed(f"{address.origin}: it hung up at once"), unseen=True)
        self._next()

    def released(self, connection: Connection) -> None:
        """Its answer is complete, and it can be used again."""
        self._busy.pop(connection, None)
        if self._closed:
            connection.close()
            return
        if self._waiting and connection.leads_to(self._waiting[0].order.address):
            self._mount(self._waiting.popleft(), connection)
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
        """There may be room for who waits."""
        while self._waiting and not self._closed and self._has_room():
            self._place(self._waiting.popleft())

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
            connection.abandon()
        self._idle.clear()
        self._busy.clear()

    def crashed(self, error: BaseException) -> None:
        """A callback raised what it must not: the wire's process ends of it."""
        self._process.crash(error)


def _stirs(fileno: int) -> bool:
    """Whether the kernel has something to say of a socket that should be silent: it is closed, or somebody speaks out of turn."""
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

    __slots__ = (
        "_address",
        "_cause",
        "_ended",
        "_going_on",
        "_paused",
        "_pool",
        "_reader",
        "_reading",
        "_rest",
        "_rest_at",
        "_ride",
        "_secure",
        "_transport",
        "lost",
        "patience",
        "since",
    )

    def __init__(self, pool: Pool, address: Address) -> None:
        """Not open yet."""
        self._pool = pool
        self._address = address
        self._reader = Answers(pool.settings.max_header)
        self._transport: Any = None
        self._ride: Ride | None = None
        self._paused = False
        self._reading = True
        self._going_on: asyncio.Handle | None = None
        self._ended = False  # the server says no more, and what it has said may still be being read
        self._cause: Exception | None = None
        self._rest = b""  # of a piece of a body, from a place on: the asker has had what is before
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

    # --- the pool's

    def begin(self, data: bytes, ride: Ride) -> bool:
        """Send a request; the answer is for the ride's asker. False when the kernel took not a byte of it: nobody has seen it."""
        transport = self._transport
        self._ride = ride
        transport.write(data)
        if not transport.is_closing() or self._secure:
            return True
        self._ride = None
        self.lost = True
        return False

    def pause(self) -> None:
        """Tell the asker nothing for a while."""
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
        """It is not needed any more, and owes nobody anything."""
        self.lost = True
        self._transport.close()

    def abandon(self) -> None:
        """Close it in the middle of whatever it is doing. Nobody is told."""
        self._ride = None
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
        """More of an answer, or what nobody has asked for."""
        if self._ride is None:
            if not self.lost:
                self.abandon()
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
            self.abandon()
            self._pool.crashed(error)

    def _advance(self) -> None:
        following = self._reader.next
        steps = STEPS
        until = perf_counter() + TURN if self._rest else 0.0
        while (ride := self._ride) is not None and not self._paused:
            event = self._slice() if self._rest else following()
            if event is State.HUNGRY:
                if self._ended:
                    self._end(ride)
                return
            if type(event) is bytes:
                if len(event) > SLICE:
                    self._rest, self._rest_at = event, 0
                    until = until or perf_counter() + TURN
                    continue
                if event:
                    ride.asker.body(event)
                if not until:
                    until = perf_counter() + TURN  # small chunks cost as much as slices do
                elif perf_counter() > until:
                    steps = 1
            elif type(event) is Head:
                self._heed(event)
                ride.asker.head(event)
            else:
                self._complete(ride)
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

    def _complete(self, ride: Ride) -> None:
        """The answer is all there: the connection is free before its asker thinks of what to ask next."""
        self._ride = ride.connection = None
        ride.over = True
        reader = self._reader
        if self.patience < 0 or reader.ahead or self.lost or self._ended or self._transport.is_closing():
            if not self.lost:
                self.close()
            self._pool.gone(self)
        else:
            reader.again()
            self.resume()
            self._pool.released(self)
        ride.asker.end()

    def eof_received(self) -> bool:
        """The server has nothing more to say."""
        self._stop(None)
        return not self.lost and not self._secure

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._stop(exc)

    def _stop(self, cause: Exception | None) -> None:
        """Nothing more comes. What came is read to its end before the asker is told."""
        if self._ride is None:
            self._fail(cause)
            return
        self._ended = True
        self._cause = self._cause or cause
        if self._going_on is None and not self._paused:
            self._go_on()

    def _end(self, ride: Ride) -> None:
        if self._cause is None and self._reader.eof():
            self.patience = -1.0
            self._complete(ride)
        else:
            self._fail(self._cause)

    def _fail(self, cause: Exception | None) -> None:
        ride, self._ride = self._ride, None
        if not self.lost:
            self.lost = True
            self._transport.abort()
        self._pool.gone(self)
        if ride is not None and not ride.over:
            ride.over = True
            ride.connection = None
            origin = self._address.origin
            if isinstance(cause, NotMcp):
                error: NotMcp | ConnectionLost = cause
            else:
                told = "the server hung up" if cause is None else why(cause)
                error = ConnectionLost(f"{origin}: {told} before the answer was complete")
            try:
                ride.asker.failed(error, unseen=False)
            except BaseException as broken:  # noqa: BLE001 - as in data_received
                self._pool.crashed(broken)


# --- A socket to a host: its addresses tried one after another, each with a head start before the next (Happy Eyeballs, RFC 8305).
# asyncio can do this as well, but forgets a socket now and then when it is cancelled in the moment of success. Here all that were made are
# in one list, and all but the one that is used are closed, however it ends.

HEAD_START: Final = 0.25
"""Seconds that an address has before the next is tried as well."""
_Target: TypeAlias = "tuple[int, tuple[str, int] | tuple[str, int, int, int]]"


async def dial(host: str, port: int) -> socket.socket:
    """Raises `OSError` when nobody answers at any of its addresses."""
    loop = asyncio.get_running_loop()
    targets = await _resolved(loop, host, port)
    made: list[socket.socket] = []
    try:
        chosen = await (_attempt(loop, targets[0], made) if len(targets) == 1 else _race(loop, targets, made))
        made.remove(chosen)
    finally:
        for each in made:
            each.close()
    return chosen


async def _resolved(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[_Target]:
    """Its addresses, the families taking turns."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return [(socket.AF_INET if address.version == 4 else socket.AF_INET6, (host, port))]  # noqa: PLR2004 - IPv4
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    families: dict[int, list[_Target]] = {}
    for family, _, _, _, where in found:
        families.setdefault(family, []).append((family, where))  # type: ignore[arg-type]  # of a family that is built without, a tuple of bytes
    return [each for each in chain.from_iterable(zip_longest(*families.values())) if each is not None]


async def _attempt(loop: asyncio.AbstractEventLoop, target: _Target, made: list[socket.socket]) -> socket.socket:
    family, where = target
    new = socket.socket(family, socket.SOCK_STREAM)
    made.append(new)
    new.setblocking(False)  # noqa: FBT003 - its only argument
    await loop.sock_connect(new, where)
    return new


async def _race(
    loop: asyncio.AbstractEventLoop, targets: Sequence[_Target], made: list[socket.socket]
) -> socket.socket:
    running: set[asyncio.Task[socket.socket]] = set()
    failure: BaseException = OSError(f"no address of {len(targets)} answers")
    left = list(targets)
    try:
        while left or running:
            if left:
                running.add(asyncio.create_task(_attempt(loop, left.pop(0), made)))
            done, running = await asyncio.wait(
                running, timeout=HEAD_START if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                error = each.exception()
                if error is None:
                    return each.result()
                failure = error
        raise failure
    finally:
        for each in running:
            each.cancel()
        if running:
            await asyncio.wait(running)
