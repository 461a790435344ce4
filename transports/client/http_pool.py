"""Connections of one client to its server: bounded, kept for the next request, and never trusted further than they can be.

A connection is used again only when its last answer ended where it said, nothing came after that, it was not idle for long, and the kernel
knows of nothing new on it. Requests that find none free wait in order, or have one made. What an answer brings goes straight to
who asked for it, in the moment when it comes in: there is no task, and no queue, between the kernel and the wire.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from .errors import ConnectFailed
from .http_connection import Connection
from .http_dial import dial
from .http_tls import why

if TYPE_CHECKING:
    import ssl
    from contextvars import Context

    from greenroom.supervision.kernel.process import Process

    from .errors import TransportError
    from .http_address import Address
    from .http_carrier import Asker, Order
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
