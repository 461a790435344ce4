"""The heap memory of an actor."""

from __future__ import annotations

import gc
import tracemalloc

from greenroom.supervision import Node, inbox, start_link

from .benchmark_types import Run, benchmark
from .measured_actors import Counter


@benchmark("idle linked actor", count=20_000, unit="bytes", target=700, repeats=1)
async def idle(run: Run) -> None:
    """All that `start_link` of a server with one attribute leaves allocated, at both ends, its `Ref` in a list included."""
    run.record(await each_holds(run.count, messages=0))


@benchmark("the same after one message", count=20_000, unit="bytes", repeats=1)
async def after_one_message(run: Run) -> None:
    """The same when each has been called once, and is idle again."""
    run.record(await each_holds(run.count, messages=1))


async def each_holds(count: int, messages: int) -> float:
    """The bytes per actor."""
    async with Node(watchdog=None), inbox():
        await start_link(Counter)  # the one-time allocations of a class are not counted
        gc.collect()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            refs = [await start_link(Counter) for _ in range(count)]
            for _ in range(messages):
                for ref in refs:
                    await ref.call(Counter.add, 1)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    return (after - before) / count
