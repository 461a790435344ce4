"""The cost of calls and casts to an actor."""

from __future__ import annotations

import asyncio

from greenroom.supervision import Node, start

from .asyncio_floors import future_round_trip
from .benchmark_types import Run, benchmark
from .measured_actors import Counter

BURST = 1_000


@benchmark("call, sync handler", count=50_000, floor=future_round_trip, target=0.3)
async def call_sync(run: Run) -> None:
    """`await ref.call(method, 1)` of an idle actor with a plain handler, one call after another."""
    async with Node():
        ref = await start(Counter)
        with run.measured():
            for _ in range(run.count):
                await ref.call(Counter.add, 1)


@benchmark("call, async handler", count=20_000, floor=future_round_trip, target=1.9)
async def call_async(run: Run) -> None:
    """The same with an `async def` handler: the call crosses to a worker task and back."""
    async with Node():
        ref = await start(Counter)
        with run.measured():
            for _ in range(run.count):
                await ref.call(Counter.add_slowly, 1)


@benchmark("cast", count=100_000, floor=future_round_trip, target=0.1)
async def cast(run: Run) -> None:
    """A message by `ref.cast(method, 1)` and its handling, in bursts of 1,000, each awaited by a call behind it."""
    async with Node():
        ref = await start(Counter)
        with run.measured():
            for size in bursts(run.count):
                for _ in range(size):
                    ref.cast(Counter.add, 1)
                await ref.call(Counter.add, 0)


def bursts(count: int) -> list[int]:
    """Send `count` casts in bursts."""
    return [BURST] * (count // BURST) + ([count % BURST] if count % BURST else [])


@benchmark("ask, handle_call", count=20_000, floor=future_round_trip)
async def ask(run: Run) -> None:
    """`await ref.ask(1)` of an idle actor, whose plain `handle_call` returns a `Reply`: always through the mailbox."""
    async with Node():
        ref = await start(Counter)
        with run.measured():
            for _ in range(run.count):
                await ref.ask(1)


@benchmark("call, 100 callers at once", count=50_000, floor=future_round_trip)
async def call_crowd(run: Run) -> None:
    """`await ref.call(method, 1)` of one actor by 100 tasks in a loop, each call answered before its task's next."""
    callers = min(100, run.count)
    async with Node():
        ref = await start(Counter)

        async def keep_calling() -> None:
            for _ in range(run.count // callers):
                await ref.call(Counter.add, 1)

        with run.measured(run.count // callers * callers):
            await asyncio.gather(*(keep_calling() for _ in range(callers)))
