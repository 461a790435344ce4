"""All connections of one listener, whatever they speak: how many there may be, and how they end together."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from .asgi import App
    from .http_config import HttpConfig

log: Final = logging.getLogger("greenroom.http")

HARD: Final = 0.2
"""Seconds for a connection that was cut to be gone, before its tasks are cancelled; and as many after that."""
_MINUTE: Final = 60.0


class Guest(Protocol):
    """One connection, as its hall sees it. It says `left` when nothing of it is left."""

    def leave(self) -> None:
        """Go when what is running is over; at once, if nothing is."""

    def cut(self) -> None:
        """Go now, whatever is running."""

    def kill(self) -> None:
        """End what was told to go, and has not."""


class Hall:
    """All connections of one listener."""

    def __init__(self, app: App, config: HttpConfig) -> None:
        """None are open yet."""
        self.app = app
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.open: set[Guest] = set()
        self.ending = False
        self._empty = asyncio.Event()
        self._complained = -_MINUTE

    def has_room(self) -> bool:
        """Whether one more may come in."""
        if not self.ending and len(self.open) < self.config.max_connections:
            return True
        now = self.loop.time()
        if not self.ending and now - self._complained >= _MINUTE:
            self._complained = now
            log.warning("there are %d connections, which is all that max_connections allows", len(self.open))
        return False

    def enter(self, guest: Guest) -> None:
        """Somebody has come in."""
        self.open.add(guest)
        self._empty.clear()

    def left(self, guest: Guest) -> None:
        """A connection is gone."""
        self.open.discard(guest)
        if not self.open:
            self._empty.set()

    async def drain(self, grace: float) -> None:
        """Hang up on who is idle, let what is running end, for so long; then cut what is left."""
        self.ending = True
        for guest in tuple(self.open):
            guest.leave()
        if not await self._gone(grace):
            self.cut()
            if not await self._gone(HARD):
                for guest in tuple(self.open):
                    guest.kill()
                await self._gone(HARD)

    def cut(self) -> None:
        """Cut all connections."""
        self.ending = True
        for guest in tuple(self.open):
            guest.cut()

    async def _gone(self, seconds: float) -> bool:
        if not self.open:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        return not self.open
