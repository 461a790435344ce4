"""The show: opens the house, lets things happen for so many seconds, and closes it in order."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from greenroom.supervision import SHUTDOWN, Down, Node, NotRegistered, inbox, kill, monitor, spawn, stop, tree

from .book import Book
from .company import open_house
from .mishaps import mischief, prompt, welcome
from .picture import Scene

if TYPE_CHECKING:
    from greenroom.supervision import Branch, Pid, Ref, Supervisor

    from .screen import Screen

FRAME: Final = 0.1


class Show:
    """One evening."""

    def __init__(self, screen: Screen, seconds: float, seed: int) -> None:
        """The dice are the seed's; at which moment each of them falls, and so what it meets, is the clock's."""
        self.screen = screen
        self.seconds = seconds
        self.seed = seed
        self.stopping = False
        self.book = Book(lambda: 0.0)

    async def play(self) -> None:
        """From the first light to the last. However this ends, an interrupt included, the house is closed in order."""
        async with Node("demo", log=False) as node:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            self.book = Book(lambda: loop.time() - begun)
            node.reports.subscribe(self.book.report)
            drawing = asyncio.create_task(self._draw())
            try:
                house = await open_house()
                self.screen.open(self._scene())
                others = self._let_things_happen()
                try:
                    await asyncio.wait((drawing,), timeout=self.seconds - self.book.clock())
                finally:
                    self.stopping = True
                    for other in others:
                        kill(other)
                    await self._close(house)
            finally:
                drawing.cancel()
                await asyncio.wait((drawing,))
                if drawing.cancelled():
                    self.screen.close(self._scene())
            if not drawing.cancelled():
                drawing.result()  # raises: it ends by itself only when it cannot write

    def _let_things_happen(self) -> list[Pid]:
        dice = random.Random(self.seed)  # noqa: S311 - dice, not secrets
        mishaps, guests, calls = (random.Random(dice.random()) for _ in range(3))  # noqa: S311 - same
        return [spawn(mischief, mishaps, self.book), spawn(welcome, guests), spawn(prompt, calls, self.book)]

    async def _close(self, house: Ref[Supervisor]) -> None:
        """Stop everybody, and write down in which order they left."""
        async with inbox("lobby") as lobby:
            watched = {monitor(branch.pid): branch.label for branch in everybody(look()) if branch.pid is not None}
            await stop(house, SHUTDOWN)
            left = [watched[message.ref] for message in lobby.pending() if isinstance(message, Down)]
            self.book.tell(f"closed, the last one first: {', '.join(left)}", grave=True)

    async def _draw(self) -> None:
        while True:
            self.screen.show(self._scene())
            await asyncio.sleep(FRAME)

    def _scene(self) -> Scene:
        return Scene(look(), self.book, self.book.clock(), self.seconds, self.seed, self.stopping)


def look() -> Branch | None:
    """The tree as it is now."""
    try:
        return tree("theatre")
    except NotRegistered:
        return None


def everybody(branch: Branch | None) -> list[Branch]:
    """A tree as a list."""
    return [] if branch is None else [branch, *(one for each in branch.children for one in everybody(each))]
