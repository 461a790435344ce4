"""The curves: costs by the number of actors, the depth of a chain, the width of a fan, the size of a burst.

The nodes have no watchdog: a million exits in one turn of the loop take seconds, which it would rightly report.
"""

from __future__ import annotations

from greenroom.supervision import (
    SHUTDOWN,
    GenServer,
    Node,
    Ref,
    abcast,
    exit,
    inbox,
    multi_call,
    start,
    start_link,
    wait_down,
)

from .actor_lifecycle import all_gone
from .curves import Point, curve
from .measured_actors import Counter
from .memory import each_holds


def decades(low: int, high: int) -> list[int]:
    """The powers of ten from 10**low to 10**high."""
    return [10**power for power in range(low, high + 1)]


@curve("many actors", sizes=decades(2, 6), size="actors")
async def actors(point: Point) -> None:
    """With this many alive, per actor: start and link; call; cast to each until all are handled; exit until it is received."""
    async with Node(watchdog=None), inbox() as me:
        for _ in range(point.rounds):
            with point.measured("start"):
                refs = [await start_link(Counter, number) for number in range(point.size)]
            with point.measured("call"):
                for ref in refs:
                    await ref.call(Counter.add, 1)
            with point.measured("cast to all"):
                abcast(refs, Counter.add, 1)
                await refs[-1].call(Counter.add, 0)
            with point.measured("stop"):
                for ref in refs:
                    exit(ref, SHUTDOWN)
                await all_gone(me, point.size)


@curve("their memory", sizes=decades(2, 6), size="actors", unit="bytes")
async def memory(point: Point) -> None:
    """The bytes of each of this many linked actors, never called and after one call."""
    for messages, series in enumerate(("idle", "after one call")):
        point.costs[series] = await each_holds(point.size, messages)


class Level(GenServer):
    """One of a chain of actors, each the parent of the next."""

    def __init__(self, below: int) -> None:
        """Begin with `below` actors to start."""
        self.below = below
        self.child: Ref[Level] | None = None

    async def init(self) -> None:
        """Start when all below have started."""
        if self.below:
            self.child = (await start_link(Level, self.below - 1)).within(None)

    async def depth(self) -> int:
        """The number of actors from here to the bottom."""
        return 1 if self.child is None else 1 + await self.child.call(Level.depth)

    async def bottom(self) -> Ref[Level]:
        """The last actor."""
        return self.ref() if self.child is None else await self.child.call(Level.bottom)


@curve("deep tree", sizes=decades(0, 4), size="levels")
async def depth(point: Point) -> None:
    """A chain in which each actor starts the next in its `init`. Per level: start; a call down to the bottom; exit.

    The call is passed down by `async def` handlers, and its answer back up. The exit is the top's, until the bottom has ended too.
    """
    async with Node(watchdog=None):
        for _ in range(point.rounds):
            with point.measured("start"):
                top = (await start(Level, point.size - 1)).within(None)
            with point.measured("call"):
                found = await top.call(Level.depth)
            if found != point.size:
                message = f"a chain of {point.size} counted {found}"
                raise RuntimeError(message)
            bottom = await top.call(Level.bottom)
            with point.measured("stop"):
                exit(top, SHUTDOWN)
                await wait_down(bottom, None)


class Parent(GenServer):
    """The parent of many children."""

    def __init__(self) -> None:
        """Begin without children."""
        self.children: list[Ref[Counter]] = []

    async def grow(self, count: int) -> None:
        """Start `count` linked children."""
        for number in range(count):
            self.children.append(await start_link(Counter, number))

    async def ask_all(self) -> int:
        """Call all of them at once."""
        return len((await multi_call(self.children, Counter.add, 1)).replies)

    def last(self) -> Ref[Counter]:
        """The youngest."""
        return self.children[-1]


@curve("wide tree", sizes=decades(0, 5), size="children")
async def width(point: Point) -> None:
    """One actor with this many linked children. Per child: start; `multi_call` to all at once; exit.

    The exit is the parent's, until the last child has ended too.
    """
    async with Node(watchdog=None):
        for _ in range(point.rounds):
            top = (await start(Parent)).within(None)
            with point.measured("start"):
                await top.call(Parent.grow, point.size)
            with point.measured("call all at once"):
                answers = await top.call(Parent.ask_all)
            if answers != point.size:
                message = f"{point.size} children gave {answers} answers"
                raise RuntimeError(message)
            last = await top.call(Parent.last)
            with point.measured("stop"):
                exit(top, SHUTDOWN)
                await wait_down(last, None)


@curve("burst of casts", sizes=decades(0, 5), size="messages")
async def burst(point: Point) -> None:
    """This many casts to one actor at once, per message: sending them, and handling them, up to a call behind them."""
    async with Node(watchdog=None):
        ref = await start(Counter)
        for _ in range(point.rounds):
            with point.measured("send"):
                for _ in range(point.size):
                    ref.cast(Counter.add, 1)
            with point.measured("handle"):
                await ref.call(Counter.add, 0)
