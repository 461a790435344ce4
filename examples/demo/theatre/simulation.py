"""The simulation: starts the tree, kills workers and calls them for some seconds, and stops the tree in order."""

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

from .event_log import EventLog
from .supervision_tree import BAND, CAST, LIGHT, PERFORMERS, Performer, guest, open_house
from .tree_picture import Scene

if TYPE_CHECKING:
    from greenroom.supervision import Branch, Pid, Supervisor

    from .terminal_screen import Screen

FRAME: Final = 0.1


class Simulation:
    """A run of the simulation."""

    def __init__(self, screen: Screen, seconds: float, seed: int) -> None:
        """The seed determines the random choices; the clock determines what state they meet."""
        self.screen = screen
        self.seconds = seconds
        self.seed = seed
        self.stopping = False
        self.book = EventLog(lambda: 0.0)

    async def play(self) -> None:
        """Run the simulation. The tree is stopped in order, also after an interrupt."""
        async with Node("demo", log=False) as node:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            self.book = EventLog(lambda: loop.time() - begun)
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
                drawing.result()  # raises: the drawing task ends by itself only if it cannot write

    def _let_things_happen(self) -> list[Pid]:
        dice = random.Random(self.seed)  # noqa: S311 - dice, not secrets
        mishaps, guests, calls = (random.Random(dice.random()) for _ in range(3))  # noqa: S311 - same
        return [spawn(mischief, mishaps, self.book), spawn(welcome, guests), spawn(prompt, calls, self.book)]

    async def _close(self, house: Ref[Supervisor]) -> None:
        """Stop all processes, and record the order in which they ended."""
        async with inbox("lobby") as lobby:
            watched = {monitor(branch.pid): branch.label for branch in all_branches(look()) if branch.pid is not None}
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
    """The current tree."""
    try:
        return tree("theatre")
    except NotRegistered:
        return None


def all_branches(branch: Branch | None) -> list[Branch]:
    """All branches of a tree as a list."""
    return [] if branch is None else [branch, *(one for each in branch.children for one in all_branches(each))]


# --- Events for the tree: deaths of every kind, new guests, and calls all the time.
# Each source of events is a plain process beside the tree, with its own random generator.

PAUSES: Final = (0.5, 1.6)  # seconds between two mishaps
UNLUCKY: Final = 9  # after this many mishaps, one worker is killed repeatedly
STAYS: Final = (2.0, 7.0)
CALLS_EVERY: Final = 0.02
PATIENCE: Final = 2.0

SLIPS: Final = (Performer.forget, Performer.faint, Performer.trip, Performer.walk_off)


async def mischief(dice: random.Random, book: EventLog) -> None:
    """Kill a process from time to time, and sometimes the same one repeatedly until its supervisor gives up."""
    for number in count(1):
        await asyncio.sleep(dice.uniform(*PAUSES))
        if number % UNLUCKY == UNLUCKY // 2:
            await bad_luck(dice.choice(CAST), book)
            continue
        part = dice.choice((*LIGHT, *BAND, dice.choice(CAST), "a guest"))
        how = dice.randrange(len(SLIPS) + 2)
        if part not in PERFORMERS:
            for guest_pid in [one.pid for one in await which_children("guests")][:1]:
                kill(guest_pid)
        elif how < len(SLIPS):
            Ref[Performer](part).cast(SLIPS[how])
        else:
            kill(part)


async def bad_luck(part: str, book: EventLog) -> None:
    """Kill a worker each time it has restarted."""
    book.tell(f"a run of bad luck for the {part} begins", grave=True)
    supervisor = whereis("cast")
    while supervisor is not None and whereis("cast") == supervisor:
        if book.beats.pop(part, None) is not None:  # it has answered since its restart
            kill(part)
        await asyncio.sleep(CALLS_EVERY)


async def welcome(dice: random.Random) -> None:
    """Start guests while there are free seats."""
    for number in count(1):
        await asyncio.sleep(dice.uniform(0.5, 1.5))
        stay = dice.uniform(*STAYS)
        try:
            await start_child("guests", guest(number, stay))
        except MaxChildren:
            continue  # sold out


async def prompt(dice: random.Random, book: EventLog) -> None:
    """Call performers by name, and record the outcome of each call."""
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
