"""One connection to an HTTP server: a request at a time, and its answer handed on as it comes."""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from greenroom.transports.http1 import Malformed, State

from .errors import ConnectionLost, NotMcp
from .http_reader import Answers, Head
from .http_tls import why

if TYPE_CHECKING:
    from .http_address import Address
    from .http_pool import Pool, Ride

_TIMEOUT: Final = re.compile(r"(?:^|[,;\s])timeout=(\d{1,6})\b", re.IGNORECASE)
_EARLIER: Final = 1.0
"""By how many seconds we are to be earlier than the server, when it says how long it keeps an idle connection."""
_QUIET: Final = 30
_ASKED: Final = 10
_TIMES: Final = 3


class Connection(asyncio.Protocol):
    """Made by the pool, to which it belongs."""

    __slots__ = (
        "_address",
        "_paused",
        "_pool",
        "_reader",
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
        """Read nothing for a while."""
        if not self._paused and not self.lost:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        if self._paused and not self.lost:
            self._paused = False
            self._transport.resume_reading()

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
        try:
            self._reader.feed(data)
            self._advance()
        except Malformed as broken:
            self._fail(NotMcp(f"{self._address.origin} does not speak HTTP/1.1 properly: {broken}"))
        except BaseException as error:  # noqa: BLE001 - a bug of ours, which must not be lost in the transport's log
            self.abandon()
            self._pool.crashed(error)

    def _advance(self) -> None:
        following = self._reader.next
        while (ride := self._ride) is not None and (event := following()) is not State.HUNGRY:
            if type(event) is bytes:
                if event:
                    ride.asker.body(event)
            elif type(event) is Head:
                self._heed(event)
                ride.asker.head(event)
            else:
                self._complete(ride)

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
        if self.patience < 0 or reader.ahead or self.lost or self._transport.is_closing():
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
        ride = self._ride
        if ride is not None and self._reader.eof():
            self.patience = -1.0
            try:
                self._complete(ride)
            except BaseException as error:  # noqa: BLE001 - as in data_received
                self._pool.crashed(error)
        else:
            self._fail(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._fail(exc)

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
