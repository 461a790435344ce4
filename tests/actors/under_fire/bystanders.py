"""Programs for faults, and callers of their neighbours, which must not be affected."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from greenroom import Command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from greenroom.client import ClientTools

LEDGER = Path(__file__).parent / "programs" / "ledger.py"
FACTOR = 5
"""By how much a figure of the page may be missed here, where other tests run beside."""


def ledger(book: Path) -> Command:
    """That server, as a child process."""
    return Command(sys.executable, LEDGER, book)


def rogue(manner: str, *options: str) -> Command:
    """One that misbehaves, as a child process."""
    return Command(sys.executable, "-m", "greenroom.testing", "rogue", manner, *options)


async def begun(words: ClientTools, count: int = 1) -> list[asyncio.Future[object]]:
    """So many calls that do not return, each of which the server has begun with."""
    heard = [asyncio.Event() for _ in range(count)]
    calls: list[asyncio.Future[object]] = [
        asyncio.ensure_future(words.call_tool("hang", on_progress=lambda _, event=event: event.set()))  # type: ignore[misc]
        for event in heard
    ]
    for event in heard:
        await event.wait()
    return calls


class Bystander:
    """Calls all the time. Any error is raised where it stops."""

    def __init__(self, words: ClientTools) -> None:
        """The server that it calls."""
        self._words = words
        self._over = False
        self.calls = 0
        self._answered = asyncio.Event()
        self.longest = 0.0
        self.met: set[int] = set()
        """Which processes have answered."""
        self.task = asyncio.ensure_future(self._call())

    async def _call(self) -> None:
        while not self._over:
            began = time.perf_counter()
            self.met.add(await self._words.call("where", into=int))
            self.longest = max(self.longest, time.perf_counter() - began)
            self.calls += 1
            self._answered.set()
            await asyncio.sleep(0.002)

    async def more(self, count: int) -> None:
        """Wait until so many more calls were answered."""
        wanted = self.calls + count
        while self.calls < wanted:
            self._answered.clear()
            await self._answered.wait()

    async def stop(self) -> None:
        """Stop after the last call; one process has to have answered them all."""
        self._over = True
        await self.task
        assert self.calls
        assert len(self.met) == 1, "it is another process now"


@asynccontextmanager
async def bystanders(whose: Sequence[ClientTools]) -> AsyncGenerator[list[Bystander]]:
    """Callers of the servers that must not be affected."""
    each = [Bystander(words) for words in whose]
    try:
        yield each
    except BaseException:
        for one in each:
            one.task.cancel()
        await asyncio.gather(*(one.task for one in each), return_exceptions=True)
        raise
    for one in each:
        await one.stop()
