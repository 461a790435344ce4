"""`python -m benchmarks.cluster.survival`: faults of tools in worker processes: the caller's result, and the effect on all other calls.

Each fault has its own server with tools in the loop, in threads and in two pools: one that loses processes, and one beside it. A hundred other calls
are made at a time, repeatedly: first without a fault, then during the fault. `--write` puts this table, and that of `benchmarks.cluster.isolation`,
into the page of figures.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.actors.survival.stage import Stage

from benchmarks.cluster import (
    isolation,
)  # not as a relative import: processes of anyio import this file as a top-level module
from benchmarks.contest_rounds import Effort
from benchmarks.serving import milestones
from benchmarks.serving.blast_radius import put
from benchmarks.serving.processes import ROOT
from greenroom import Client, GreenroomError
from greenroom.supervision import Node
from greenroom.supervision.cluster import os_processes
from greenroom.transports.client.memory_route import MemoryRoute

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = ROOT / "docs" / "explanation" / "survival.md"
BEGIN, END = "<!-- figures: make survival -->", "<!-- end of figures -->"
COST_BEGIN = "<!-- figures of the cost: make survival -->"
TOOLS = ROOT / "tests" / "actors" / "survival" / "programs"
CROWD = 100
DEADLINE = 1.0
"""The deadline of tools that never end."""
LONG = 1000
OTHERS = ("in_loop", "in_thread", "in_process")


@dataclass(frozen=True)
class Fault:
    """A row: the tool, and how it is called."""

    name: str
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    endless: bool = False
    """Whether only the deadline ends it."""
    times: int = 5


FAULTS = (
    Fault("`os._exit(1)`", "exits_at_once"),
    Fault("`sys.exit(3)`", "exits"),
    Fault("reads address 0 (`ctypes.string_at(0)`)", "reads_nothing"),
    Fault("`kill -9`", "kills_itself"),
    Fault("`abort()` in C", "aborts"),
    Fault("`SIGSTOP`", "stops_itself", endless=True),
    Fault("allocates without end (its limit is 256 MiB)", "allocates"),
    Fault("computes for ever, in a `def`", "spins", endless=True),
    Fault("computes for ever, in an `async def`", "spins_in_loop", endless=True),
    Fault(
        "C code that holds the interpreter's lock for 10 s, and comes back",
        "holds_interpreter",
        {"seconds": 10},
        times=1,
    ),
    Fault("forks, and the child returns as well", "forks"),
    Fault("closes all descriptors", "closes_everything"),
    Fault("writes garbage to the standard output", "writes_garbage"),
    Fault("a deadlock", "deadlocks", endless=True),
    Fault("a deadlock in another thread", "deadlocks_in_another_thread", endless=True),
    Fault("ignores SIGTERM, and sleeps", "ignores_sigterm", endless=True),
    Fault("returns 100 MB", "hundred_megabytes", {"megabytes": 100}, times=2),
    Fault("returns what cannot be encoded", "nothing_of_json"),
)


@dataclass
class Outcome:
    """The outcome of a fault."""

    heard: set[str] = field(default_factory=set[str])
    """The result of the faulty call."""
    after: list[float] = field(default_factory=list[float])
    """Seconds until that result."""
    back: list[float] = field(default_factory=list[float])
    """Seconds from there to the pool's next answer."""
    calls: int = 0
    lost: int = 0
    calm: list[float] = field(default_factory=list[float])
    """The durations of the other calls without a fault."""
    stormy: list[float] = field(default_factory=list[float])
    left: str = ""
    """Processes, descriptors and files that remain."""

    @property
    def slower(self) -> float:
        """The increase of the 99th percentile."""
        return p99(self.stormy) / p99(self.calm)


def p99(values: Sequence[float]) -> float:
    """The 99th percentile."""
    return sorted(values)[len(values) * 99 // 100]


async def try_out(fault: Fault, calm: int = 10) -> Outcome:
    """Run a server with a fault several times, after as many hundreds of calls without it."""
    found = Outcome()
    before = _held()
    stage = Stage()
    guilty = fault.tool
    if fault.endless:
        guilty = "endless"
        stage.server.registry.register_tool(guilty, getattr(stage.tools, fault.tool), stage.options(timeout=DEADLINE))
    async with stage.server.started() as company, Client(MemoryRoute(company, line=128 * 1024 * 1024)) as client:
        await client.call("who")
        await _crowd(client, Outcome(), [])
        for _ in range(calm):
            await _crowd(client, found, found.calm)
        for _ in range(fault.times):
            call = asyncio.ensure_future(_timed(client, guilty, fault.arguments))
            await _crowd(client, found, found.stormy)
            while not call.done():
                await _crowd(client, found, found.stormy)
            text, after = await call
            found.after.append(after)
            found.heard.add(text)
            began = time.perf_counter()
            await client.call("who")
            found.back.append(time.perf_counter() - began)
    found.left = ", ".join(sorted(_held() - before)) or "nothing"
    return found


async def alone(fault: Fault, calm: int = 10) -> Outcome:
    """Run in a separate node, whose crash reports are expected."""
    async with Node(log=False):
        return await try_out(fault, calm)


async def _timed(client: Client, tool: str, arguments: dict[str, Any]) -> tuple[str, float]:
    """The result of a call, and its duration in seconds."""
    began = time.perf_counter()
    try:
        reply = await client.call_tool(tool, arguments)
        shown = f"a result of {len(reply.text) // 1_000_000} MB" if len(reply.text) > LONG else f"`{reply.text}`"
        text = f"`isError`: {shown}" if reply.is_error else shown
    except GreenroomError as error:
        text = f"an error: `{error}`"
    return text, time.perf_counter() - began


async def _crowd(client: Client, found: Outcome, took: list[float]) -> None:
    """A hundred concurrent calls of other tools."""

    async def one(number: int) -> None:
        began = time.perf_counter()
        try:
            right = await client.call(OTHERS[number % len(OTHERS)], n=number) == number
        except GreenroomError:
            right = False
        took.append(time.perf_counter() - began)
        found.calls += 1
        found.lost += not right

    await asyncio.gather(*(one(number) for number in range(CROWD)))


def _held() -> set[str]:
    """All processes, descriptors, and files in shared folders, to find those that a fault leaves behind."""
    processes = {f"process {pid}" for pid in os_processes.descendants(os.getpid())}
    descriptors = {f"descriptor {each.name}" for each in Path("/proc/self/fd").iterdir()}
    places = (Path(tempfile.gettempdir()), Path("/dev/shm"))  # noqa: S108 - the shared folders
    return processes | descriptors | {str(file) for place in places for file in place.iterdir()}


def row(fault: Fault, found: Outcome) -> str:
    """The table in Markdown."""
    after = statistics.median(found.after)
    cells = [
        fault.name,
        " or ".join(sorted(found.heard)),
        f"{after:.1f} s" if after > 1 else f"{1e3 * after:.0f} ms",
        f"{1e3 * max(found.back):.0f} ms",
        f"{found.lost} of {found.calls:,}",
        f"{1e3 * p99(found.calm):.0f} → {1e3 * p99(found.stormy):.0f} ms",
        found.left,
    ]
    return f"| {' | '.join(cells)} |"


HEAD = (
    "| a tool … | its caller gets | after | its pool answers again after | calls of others lost | their p99 | left after the stop |\n"
    "|---|---|---|---|---|---|---|"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all faults, print the tables, and write them into the page on request."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster.survival", description="Measures the effects of faults in worker processes."
    )
    parser.add_argument("--only", metavar="WORD", action="append", default=[], help="faults with WORD in their name")
    parser.add_argument("--cost", action="store_true", help="measure the cost only")
    parser.add_argument("--quick", action="store_true", help="each fault once, and the cost roughly")
    parser.add_argument("--write", action="store_true", help="into the page of figures")
    options = parser.parse_args(arguments)
    sys.path.append(str(TOOLS))  # on the workers' import path too
    if not options.cost:
        _try_all(options.only, quick=options.quick, write=options.write and not options.only)
    if not options.only:
        _tell_cost(Effort.quick() if options.quick else Effort(), write=options.write)
    return 0


def _try_all(only: Sequence[str], *, quick: bool, write: bool) -> None:
    rows = [HEAD]
    for fault in FAULTS:
        if not only or any(word in fault.name for word in only):
            rows.append(row(fault, asyncio.run(alone(replace(fault, times=1) if quick else fault))))
            print(rows[-1], file=sys.stderr, flush=True)
    text = "\n".join(rows)
    print(text)
    if write:
        put(text, PAGE, BEGIN, END)


def _tell_cost(effort: Effort, *, write: bool) -> None:
    held = isolation.hold(effort, on_progress=lambda line: print(line, file=sys.stderr, flush=True))
    text = isolation.table(held)
    print(f"\n{text}\n\n{milestones.table(held.milestones)}")
    if write:
        put(text, PAGE, COST_BEGIN, END)


if __name__ == "__main__":
    sys.exit(main())
