"""Callers of something that must not be done twice: each call has one outcome, in time, and what was done is held against it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from tests.free_ports import free_port

from greenroom import GreenroomError, RequestLost, RequestTimeout, Unavailable

from .bystanders import LEDGER

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from greenroom.client import ClientTools

DEADLINE: Final = 1.5
LATEST: Final = 5 * DEADLINE
"""When an outcome has come at the latest, on a machine with eight other programs at work: that none hangs is what is tested, and not the machine."""


class Load:
    """So many callers, each with one call after another."""

    def __init__(self, words: ClientTools, callers: int) -> None:
        """Their deadline is that of the words."""
        self._words = words
        self._over = False
        self.fates: dict[str, BaseException | None] = {}
        """By what was to be booked: None when that was answered."""
        self.answered = 0
        self.begins = 0
        self._heard = asyncio.Event()
        self.tasks = [asyncio.ensure_future(self._call(number)) for number in range(callers)]

    async def _call(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        count = 0
        while not self._over:
            count += 1
            self.begins += 1
            self._heard.set()
            what = f"{number}-{count}"
            began = loop.time()
            try:
                said = await self._words.call("book", what=what, into=str)
            except GreenroomError as error:
                self.fates[what] = error
                self._heard.set()
            else:
                assert said == what
                self.fates[what] = None
                self.answered += 1
                self._heard.set()
            assert loop.time() - began < LATEST, (what, self.fates[what])
            await asyncio.sleep(0.005)

    async def more(self, count: int) -> None:
        """Wait until so many more calls were answered."""
        wanted = self.answered + count
        await self._until(lambda: self.answered >= wanted)

    async def lost(self, count: int) -> None:
        """Wait until so many more calls have failed."""
        wanted = len(self.fates) - self.answered + count
        await self._until(lambda: len(self.fates) - self.answered >= wanted)

    async def all_waiting(self) -> None:
        """Wait until each caller waits for its answer."""
        await self._until(lambda: self.begins - len(self.fates) == len(self.tasks))

    async def _until(self, enough: Callable[[], bool]) -> None:
        while not enough():
            self._heard.clear()
            hearing = asyncio.ensure_future(self._heard.wait())
            await asyncio.wait([hearing, *self.tasks], timeout=30, return_when=asyncio.FIRST_COMPLETED)
            hearing.cancel()
            for task in self.tasks:
                if task.done():
                    task.result()
                    raise AssertionError("a caller has left")

    async def stop(self) -> None:
        """After their last calls, none of which hangs."""
        self._over = True
        async with asyncio.timeout(LATEST + 5):
            await asyncio.gather(*self.tasks)

    def judge(self, book: Path) -> Counter[str]:
        """Hold what was done against what was told; how many calls ended in which way."""
        done = Counter(book.read_text().split())
        assert not [what for what, times in done.items() if times > 1], "done twice"
        assert not done.keys() - self.fates.keys()
        for what, fate in self.fates.items():
            if fate is None:
                assert what in done, "answered, and never done"
            elif isinstance(fate, Unavailable) or (isinstance(fate, RequestLost) and not fate.maybe_done):
                assert what not in done, fate
            elif isinstance(fate, RequestLost | RequestTimeout):
                pass  # it may have been, and that is what was said
        return Counter("answer" if fate is None else type(fate).__name__ for fate in self.fates.values())


@asynccontextmanager
async def loaded(words: ClientTools, callers: int) -> AsyncGenerator[Load]:
    """Under load for as long as the block lasts."""
    load = Load(words, callers)
    try:
        yield load
        await load.stop()
    finally:
        for task in load.tasks:
            task.cancel()
        await asyncio.gather(*load.tasks, return_exceptions=True)


class Station:
    """The ledger as an HTTP server in a process of its own, always on the same port."""

    def __init__(self, book: Path) -> None:
        """Not started yet."""
        self._book = book
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, LEDGER, self._book, str(self.port), stderr=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.02)  # another program: there is no event to wait for
                else:
                    writer.close()
                    await writer.wait_closed()
                    return

    async def end(self, number: signal.Signals) -> None:
        """With that signal; and wait until it is gone."""
        assert self._process is not None
        self._process.send_signal(number)
        await self._process.wait()
        self._process = None

    async def stop(self) -> None:
        """Kill it at any moment."""
        if self._process is not None:
            await self.end(signal.SIGKILL)


@asynccontextmanager
async def station(book: Path) -> AsyncGenerator[Station]:
    """That server, running."""
    one = Station(book)
    await one.start()
    try:
        yield one
    finally:
        await one.stop()
