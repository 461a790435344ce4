"""One connection to an HTTP server: a request at a time, and its answer handed on as it comes."""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from greenroom.transports.http1 import Malformed, State

from .errors import ConnectionLost, NotMcp
from .http_reader import Answers, Head
from .http_tls import why
from .seam import SLICE, TURN

if TYPE_CHECKING:
    from .http_address import Address
    from .http_pool import Pool, Ride

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
