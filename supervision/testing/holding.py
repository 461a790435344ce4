"""What an injection holds until it is over: handlers that wait, and traps that are set and have not gone off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Holding:
    """Handlers wait in here; when all is over they go on, so that no code is left behind that nobody can end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing is held."""
        self.loop = loop
        self.over = False
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._ends: list[Callable[[], object]] = []
        self._nothing_left: asyncio.Future[None] = loop.create_future()

    def until_over(self, end: Callable[[], object]) -> None:
        """Have `end` called when all is over."""
        if self.over:
            end()
        else:
            self._ends.append(end)

    async def wait(self, until: float | None) -> None:
        """Wait until then, by the loop's clock, or until all is over."""
        future: asyncio.Future[None] = self.loop.create_future()
        self._waiting[future] = None
        timer = None if until is None else self.loop.call_at(until, _wake, future)
        try:
            await future
        finally:
            self._waiting.pop(future, None)
            if timer is not None:
                timer.cancel()

    def finish(self) -> None:
        """Nothing new will happen; what is held is held on."""
        _wake(self._nothing_left)

    async def finished(self, timeout: float | None) -> bool:
        """Wait until nothing new will happen; whether that came in time."""
        done, _ = await asyncio.wait((self._nothing_left,), timeout=timeout)
        return bool(done)

    def close(self) -> None:
        """All is over."""
        self.over = True
        for end in self._ends:
            end()
        self._ends.clear()
        for future in (self._nothing_left, *self._waiting):
            _wake(future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
