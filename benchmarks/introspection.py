"""The cost of introspection: being observable, taking snapshots, and drawing very large trees."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from greenroom.supervision import DynamicSupervisor, Node, draw, inbox, start, start_child, start_link, template, tree
from greenroom.supervision.introspect import snapshot, watch

from .benchmark_types import Run, benchmark
from .measured_actors import Counter

if TYPE_CHECKING:
    from greenroom.supervision import Ref

ROUNDS = 60
"""The pairs of turns in a comparison of two servers; each is the first as often as the other."""


@benchmark("watched before", count=120_000, unit="x", target=1.02, repeats=3)
async def watched_before(run: Run) -> None:
    """Calls to a server that was watched earlier, against one that never was, in turns.

    A watch of its state would leave it slower: once an object's `__dict__` was read, Python keeps its fields in a dict.
    """
    async with Node():
        plain, watched = await start(Counter), await start(Counter)
        watch(watched, kinds=["message", "reply", "crash", "exit"]).stop()
        run.record(await compare(plain, watched, run.count))


@benchmark("another is watched", count=120_000, unit="x", target=1.02, repeats=3)
async def another_watched(run: Run) -> None:
    """Calls to a server while another one is watched, against calls without any watch, in turns."""
    async with Node():
        plain, other = await start(Counter), await start(Counter)
        turns = calls_in_a_turn(run.count)
        with_watch: list[float] = []
        without: list[float] = []
        for number in range(2 * ROUNDS):
            if number % 4 in (1, 2):
                watching = watch(other)
                with_watch.append(await some_calls(plain, turns))
                watching.stop()
            else:
                without.append(await some_calls(plain, turns))
        run.record(statistics.median(with_watch) / statistics.median(without))


def calls_in_a_turn(count: int) -> int:
    """The calls per turn, so that all turns have about `count` calls, and each at least one."""
    return max(1, count // (2 * ROUNDS))


async def compare(one: Ref[Counter], other: Ref[Counter], count: int) -> float:
    """The ratio of the other server's time."""
    turns = calls_in_a_turn(count)
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            times[which].append(await some_calls((one, other)[which], turns))
    return statistics.median(times[1]) / statistics.median(times[0])


async def some_calls(ref: Ref[Counter], count: int) -> float:
    """The CPU seconds of `count` calls."""
    began = time.process_time()
    for _ in range(count):
        await ref.call(Counter.add, 1)
    return time.process_time() - began


@benchmark("tree of 100,000", count=100_000, unit="s", clock="wall", target=1, repeats=3)
async def whole_tree(run: Run) -> None:
    """`tree()` of a node with this many processes under one supervisor; the aside is its drawing, cut at 50 lines."""
    async with Node(log=False), inbox():
        crowd = await start_link(DynamicSupervisor, template(Counter).but(restart="temporary"))
        for _ in range(run.count):
            await start_child(crowd)
        with run.measured(1):
            whole = tree()
        began = time.perf_counter()
        draw(whole, max_lines=50)
        run.asides = {"drawn": time.perf_counter() - began}
    if whole.size <= run.count:
        message = f"the tree has {whole.size} branches, and {run.count} processes were started"
        raise RuntimeError(message)


@benchmark("snapshot of 100,000", count=100_000, unit="s", clock="wall", target=1, repeats=3)
async def whole_node(run: Run) -> None:
    """`introspect.snapshot()` of a node with this many processes."""
    async with Node(), inbox():
        refs = [await start_link(Counter) for _ in range(run.count)]
        with run.measured(1):
            taken = snapshot()
    if len(taken.processes) <= len(refs):
        message = f"the snapshot has {len(taken.processes)} processes of {len(refs)}"
        raise RuntimeError(message)


_MILLION = """
import asyncio, gc, sys
from greenroom.supervision import GenServer, Node, inbox, start_link

class Idle(GenServer):
    def __init__(self, number):
        self.number = number

def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

async def main(count):
    async with Node(watchdog=None), inbox():
        before = rss()
        gc.disable()
        refs = [await start_link(Idle, number) for number in range(count)]
        print(rss() - before)
        sys.stdout.flush()
        import os
        os._exit(0)

asyncio.run(main(int(sys.argv[1])))
"""


@benchmark("a million idle actors", count=1_000_000, unit="MB", target=1000, repeats=1)
def a_million(run: Run) -> None:
    """The growth of an interpreter's resident memory with this many linked servers that hold a number, and their refs."""
    program = [sys.executable, "-c", _MILLION, str(run.count)]
    done = subprocess.run(program, check=True, capture_output=True, text=True)  # noqa: S603 - our own interpreter
    run.record(float(done.stdout))
