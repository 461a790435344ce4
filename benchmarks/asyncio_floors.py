"""The floors: the cost in plain asyncio of operations comparable to a call and a start. No node is open meanwhile."""

from __future__ import annotations

import asyncio

from .benchmark_types import Run, benchmark


@benchmark("future round trip", count=10_000)
async def future_round_trip(run: Run) -> None:
    """Two tasks: one fulfils the future that the other waits for, and waits for its own to be fulfilled in return."""
    loop = asyncio.get_running_loop()
    asked: asyncio.Future[asyncio.Future[None] | None] = loop.create_future()

    async def answer() -> None:
        nonlocal asked
        while (waiting := await asked) is not None:
            asked = loop.create_future()
            waiting.set_result(None)

    task = asyncio.create_task(answer())
    await asyncio.sleep(0)
    block = min(50, run.count)
    for _ in range(run.count // block):
        with run.measured(block):  # short enough to fall between two hiccups: latencies are compared with their median
            for _ in range(block):
                waiting: asyncio.Future[None] = loop.create_future()
                asked.set_result(waiting)
                await waiting
    asked.set_result(None)
    await task


@benchmark("create_task + await", count=10_000)
async def create_task(run: Run) -> None:
    """A task of a coroutine that returns at once, awaited."""

    async def nothing() -> None:
        pass

    with run.measured():
        for _ in range(run.count):
            await asyncio.create_task(nothing())
