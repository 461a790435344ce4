"""The cost of starting an actor, ending it, and being notified of its end."""

from __future__ import annotations

import asyncio
import time

from greenroom.supervision import SHUTDOWN, Exit, Inbox, Node, exit, inbox, kill, spawn_link, start, start_link

from .asyncio_floors import create_task, future_round_trip
from .benchmark_types import Run, benchmark
from .measured_actors import Counter, Witness


@benchmark("spawn + link + stop", count=10_000, floor=create_task, target=0.9)
async def spawn_link_stop(run: Run) -> None:
    """`start_link` of a server whose constructor keeps a number, `exit(ref, SHUTDOWN)`, and its `Exit` received."""
    async with Node(), inbox() as me:
        with run.measured():
            for _ in range(run.count):
                ref = await start_link(Counter, 1)
                exit(ref, SHUTDOWN)
                await me.receive()


@benchmark("spawn_link of a routine", count=10_000, floor=create_task)
async def spawn_routine(run: Run) -> None:
    """`spawn_link` of an `async def` that returns at once, and its `Exit` received."""

    async def nothing() -> None:
        pass

    async with Node(), inbox() as me:
        with run.measured():
            for _ in range(run.count):
                spawn_link(nothing)
                await me.receive()


@benchmark("kill to DOWN", count=5_000, clock="wall", floor=future_round_trip, target=2)
async def kill_to_down(run: Run) -> None:
    """From `kill` of an idle actor to the `handle_info` that gets its `Down` in another one; the median of all kills."""
    async with Node():
        witness = await start(Witness)
        for _ in range(run.count):
            victim = await start(Counter)
            await witness.call(Witness.watch, victim.pid)
            killed = time.perf_counter()
            kill(victim)
            await asyncio.sleep(0)
            run.record(await witness.call(Witness.last) - killed)


@benchmark("100,000 actors", count=100_000, unit="s", repeats=3)
async def hundred_thousand(run: Run) -> None:
    """Started and linked, called once, and stopped until the last `Exit` is received; CPU time for all of them."""
    async with Node(), inbox() as me:
        with run.measured(1):
            began = time.process_time()
            refs = [await start_link(Counter, number) for number in range(run.count)]
            started = time.process_time()
            total = 0
            for ref in refs:
                total += await ref.call(Counter.add, 1)
            called = time.process_time()
            for ref in refs:
                exit(ref, SHUTDOWN)
            await all_gone(me, run.count)
            ended = time.process_time()
    if total != run.count * (run.count + 1) // 2:
        message = f"{run.count} actors gave the wrong answers"
        raise RuntimeError(message)
    run.asides = {"start": started - began, "call": called - started, "stop": ended - called}


async def all_gone(me: Inbox, count: int) -> None:
    """Receive `count` exits, and nothing else."""
    for _ in range(count):
        message = await me.receive()
        if not isinstance(message, Exit):
            error = f"an Exit was due, and {message!r} came"
            raise TypeError(error)
