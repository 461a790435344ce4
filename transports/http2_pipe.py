"""The way out of an HTTP/2 connection: who reads what is sent is waited for, who does not is cut, and the last word still arrives."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from .sockets import forget, prepare

if TYPE_CHECKING:
    from .hall import Hall

log: Final = logging.getLogger("greenroom.http")

TOO_MUCH: Final = 1024 * 1024
"""Bytes that wait for a peer who asks and does not read: answers to what it costs nothing to ask."""
LINGER: Final = 2.0
"""Seconds for which a connection that has ended is listened to: unread bytes would reset it, and what was said last with it."""


class Pipe:
    """One connection's."""

    def __init__(self, hall: Hall, transport: Any) -> None:
        """Of a transport that has just connected."""
        self.writable = asyncio.Event()
        """Set while the kernel has all that was sent."""
        self.writable.set()
        self.closing = False
        """Nothing more goes out."""
        self._hall = hall
        self._transport = transport
        self._stalled: asyncio.TimerHandle | None = None
        self._lingering: asyncio.TimerHandle | None = None
        transport.set_write_buffer_limits(high=0)  # so that it can be seen that a peer does not read
        prepare(transport, hall.config)

    def write(self, data: bytes) -> None:
        """Send it, if there is anybody to have it."""
        if data and not self.closing and not self._transport.is_closing():
            self._transport.write(data)
            if self._transport.get_write_buffer_size() > TOO_MUCH:
                log.info("a peer asks and does not read: its connection is cut")
                self.cut()

    def pause(self) -> None:
        """The kernel has enough for now. A peer that takes nothing of it for too long is cut."""
        self.writable.clear()
        self._watch()

    def resume(self) -> None:
        """It takes more."""
        self._unwatch()
        self.writable.set()

    def _watch(self) -> None:
        left, seconds = self._transport.get_write_buffer_size(), self._hall.config.write_timeout

        def look() -> None:
            if self._transport.get_write_buffer_size() < left:
                self._watch()
            else:
                log.info("a peer has read nothing for %g seconds: its connection is cut", seconds)
                self.cut()

        self._unwatch()
        self._stalled = self._hall.loop.call_later(seconds, look)

    def _unwatch(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def finish(self) -> None:
        """Close; what was said last still arrives."""
        if self.closing:
            return
        self.closing = True
        if self._hall.ending:
            self._transport.close()
            return
        with suppress(OSError, RuntimeError, NotImplementedError):
            self._transport.write_eof()
        self._lingering = self._hall.loop.call_later(LINGER, self._transport.abort)

    def cut(self) -> None:
        """Close it, and forget what was not read."""
        forget(self._transport)
        self._transport.abort()

    def lost(self) -> None:
        """The connection is no more."""
        self.closing = True
        self._unwatch()
        if self._lingering is not None:
            self._lingering.cancel()
        self.writable.set()
