"""Whose question comes next: one at a time, and no server keeps the others waiting by asking much.

Servers take turns, and of each no more than so many questions wait. Whoever asks belongs to one loop: each loop has its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


class Crowded(Exception):
    """As many of that one's questions wait as may."""


class Turns:
    """The queue of one loop."""

    def __init__(self, most: int) -> None:
        """`most` is how many of one server's may wait."""
        self._most = most
        self._last: str | None = None
        """Whose turn it is, or was last; None when nobody has been asked anything yet."""
        self._taken = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By server, in the order in which they come next."""

    @asynccontextmanager
    async def take(self, who: str, seconds: float | None) -> AsyncGenerator[None]:
        """Wait for the turn, for so long, and have it. Raises `Crowded`, or `TimeoutError`."""
        await self._wait(who, seconds)
        try:
            self._last = who
            yield
        finally:
            self._pass_on()

    async def _wait(self, who: str, seconds: float | None) -> None:
        if not self._taken:
            self._taken = True
            return
        queue = self._waiting.get(who, ())
        if len(queue) >= self._most:
            raise Crowded
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(who, deque()).append(mine)
        try:
            async with asyncio.timeout(seconds):
                await mine
        except BaseException:
            if mine.done() and not mine.cancelled():  # it came in the very moment in which it was given up
                self._pass_on()
            else:
                self._leave(who, mine)
            raise

    def _leave(self, who: str, mine: asyncio.Future[None]) -> None:
        queue = self._waiting[who]
        queue.remove(mine)
        if not queue:
            del self._waiting[who]

    def _pass_on(self) -> None:
        """The next is another server, if any other waits."""
        who = next((one for one in self._waiting if one != self._last), self._last)
        queue = None if who is None else self._waiting.pop(who, None)
        if who is None or not queue:
            self._taken = False
            return
        mine = queue.popleft()
        if queue:
            self._waiting[who] = queue
        self._last = who
        mine.set_result(None)
