"""The show: opens the house, lets things happen for so many seconds, and closes it in order."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from typing import TYPE_CHECKING, Final

from greenroom.supervision import (
    SHUTDOWN,
    CallTimeout,
    Down,
    MaxChildren,
    Node,
    NotRegistered,
    ProcessExited,
    Ref,
    inbox,
    kill,
    monitor,
    spawn,
    start_child,
    stop,
    tree,
    whereis,
    which_children,
)

from .event_log import Book
from .supervision_tree import BAND, CAST, LIGHT, PERFORMERS, Performer, guest, open_house
from .tree_picture import Scene

if TYPE_CHECKING:
    from greenroom.supervision import Branch, Pid, Supervisor

    from .terminal_screen import Screen

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
        """Stop all processes, and write down in which order they left."""
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


# --- What happens to the company: deaths of every kind, guests who come, and a caller that calls all the while.
# Each is a plain process beside the tree, in the order that its dice say.

PAUSES: Final = (0.5, 1.6)  # seconds between two mishaps
UNLUCKY: Final = 9  # every so many mishaps one is a run of bad luck
STAYS: Final = (2.0, 7.0)
CALLS_EVERY: Final = 0.02
PATIENCE: Final = 2.0

SLIPS: Final = (Performer.forget, Performer.faint, Performer.trip, Performer.walk_off)


async def mischief(dice: random.Random, book: Book) -> None:
    """End a process, now and then; and sometimes the same one again and again, until its supervisor gives up."""
    for number in count(1):
        await asyncio.sleep(dice.uniform(*PAUSES))
        if number % UNLUCKY == UNLUCKY // 2:
            await bad_luck(dice.choice(CAST), book)
            continue
        part = dice.choice((*LIGHT, *BAND, dice.choice(CAST), "somebody in the house"))
        how = dice.randrange(len(SLIPS) + 2)
        if part not in PERFORMERS:
            for guest_pid in [one.pid for one in await which_children("guests")][:1]:
                kill(guest_pid)
        elif how < len(SLIPS):
            Ref[Performer](part).cast(SLIPS[how])
        else:
            kill(part)


async def bad_luck(part: str, book: Book) -> None:
    """Kill one part as soon as it is back."""
    book.tell(f"a run of bad luck for the {part} begins", grave=True)
    supervisor = whereis("cast")
    while supervisor is not None and whereis("cast") == supervisor:
        if book.beats.pop(part, None) is not None:  # it has answered since it came back
            kill(part)
        await asyncio.sleep(CALLS_EVERY)


async def welcome(dice: random.Random) -> None:
    """Let guests in while there are free seats."""
    for number in count(1):
        await asyncio.sleep(dice.uniform(0.5, 1.5))
        stay = dice.uniform(*STAYS)
        try:
            await start_child("guests", guest(number, stay))
        except MaxChildren:
            continue  # sold out


async def prompt(dice: random.Random, book: Book) -> None:
    """Call one performer or other, by name, and write down how each call ended."""
    while True:
        await asyncio.sleep(CALLS_EVERY)
        part = dice.choice(PERFORMERS)
        try:
            book.beats[part] = await Ref[Performer](part).within(PATIENCE).call(Performer.beat)
        except CallTimeout:
            book.late += 1
        except ProcessExited:
            book.refused += 1
        else:
            book.answered += 1
