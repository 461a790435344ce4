"""The cost of a tool in its own process, beside the event loop, a thread, and the two bare process pools that Python users know.

Tools are called through a `Client` in the same program, with all parts of a call: validation, a supervised worker, an answer in the protocol.
The bare pools only pass a function and its arguments to a process; when a process dies, `concurrent.futures` gives up the whole pool. They are
measured alone, and in a tool that uses one. In each round every contestant is started anew, in turn, with two processes where it has any.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import anyio.to_process

from benchmarks.serving.milestones import Milestone
from greenroom import Client, Pool, Server
from greenroom.supervision import Node
from greenroom.supervision.cluster import os_processes

from .isolated_tools import compute, echo, echo_in_loop, stay
from .nodes import rollup

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from benchmarks.contest_rounds import Effort

NAME = "isolation"
ABOUT = """a tool in a process of its own beside the same in the loop, in a thread, and beside bare pools (concurrent.futures, anyio.to_process):
one call in flight, a hundred, and calls that compute, in one process and in two; memory of an idle worker, and how long a pool takes to begin."""
CROWD = 100
SIZE = 2
ROUNDS_OF_COMPUTING = 200_000
MANY = 8
"""The number of workers for measuring memory."""

Call: TypeAlias = "Callable[..., Awaitable[Any]]"
"""Calls a tool: `await call(name, **arguments)`."""
Opens: TypeAlias = "Callable[[int], AbstractAsyncContextManager[Call]]"
"""Makes a contestant with a number of processes."""


FUNCTIONS: dict[str, Callable[..., Any]] = {"echo": echo, "compute": compute}


@contextlib.asynccontextmanager
async def calls_of(server: Server) -> AsyncGenerator[Call]:
    """Tools called by a client in this program."""
    async with Node(log=False), Client(server) as client:
        yield client.call


@contextlib.asynccontextmanager
async def in_loop(_size: int) -> AsyncGenerator[Call]:
    """An `async def` tool."""
    server = Server("isolation")
    server.tool("echo")(echo_in_loop)
    async with calls_of(server) as call:
        yield call


@contextlib.asynccontextmanager
async def in_thread(_size: int) -> AsyncGenerator[Call]:
    """A `def` tool."""
    server = Server("isolation")
    server.tool(echo)
    async with calls_of(server) as call:
        yield call


@contextlib.asynccontextmanager
async def in_process(size: int) -> AsyncGenerator[Call]:
    """A tool that is isolated."""
    server, pool = Server("isolation"), Pool(size=size)
    for function in FUNCTIONS.values():
        server.tool(isolation=pool)(function)
    async with calls_of(server) as call:
        yield call


@contextlib.asynccontextmanager
async def futures(size: int) -> AsyncGenerator[Call]:
    """`concurrent.futures.ProcessPoolExecutor`."""
    loop = asyncio.get_running_loop()
    executor = ProcessPoolExecutor(size, mp_context=multiprocessing.get_context("spawn"))

    async def call(name: str, **arguments: Any) -> Any:
        return await loop.run_in_executor(executor, FUNCTIONS[name], *arguments.values())

    try:
        yield call
    finally:
        await asyncio.to_thread(executor.shutdown)


@contextlib.asynccontextmanager
async def to_process(size: int) -> AsyncGenerator[Call]:
    """`anyio.to_process.run_sync`."""
    limiter = anyio.CapacityLimiter(size)

    async def call(name: str, **arguments: Any) -> Any:
        return await anyio.to_process.run_sync(FUNCTIONS[name], *arguments.values(), limiter=limiter)

    yield call


def in_tool(bare: Opens) -> Opens:
    """A tool that hands its work to a bare pool."""

    @contextlib.asynccontextmanager
    async def opened(size: int) -> AsyncGenerator[Call]:
        server = Server("isolation")
        async with bare(size) as within:

            @server.tool("echo")
            async def handed_over(text: str) -> str:
                """Echo the argument."""
                done: str = await within("echo", text=text)
                return done

            @server.tool("compute")
            async def worked_out(rounds: int) -> int:
                """Keep a CPU busy."""
                done: int = await within("compute", rounds=rounds)
                return done

            async with calls_of(server) as call:
                yield call

    return opened


@dataclass(frozen=True)
class Way:
    """One row: a way to run a function."""

    name: str
    open: Opens
    apart: bool = True
    """Whether it runs in other processes."""


LOOP = Way("an `async def` tool", in_loop, apart=False)
THREAD = Way("a `def` tool, in a thread", in_thread, apart=False)
PROCESS = Way('a tool with `isolation="process"`', in_process)
FUTURES_IN_TOOL = Way("a tool that uses a `ProcessPoolExecutor`", in_tool(futures))
ANYIO_IN_TOOL = Way("a tool that uses `anyio.to_process`", in_tool(to_process))
FUTURES = Way("`ProcessPoolExecutor` alone, no tool", futures)
ANYIO = Way("`anyio.to_process` alone, no tool", to_process)
WAYS = (LOOP, THREAD, PROCESS, FUTURES_IN_TOOL, ANYIO_IN_TOOL, FUTURES, ANYIO)


@dataclass
class Entry:
    """The measurements of one way: a value per round."""

    way: Way
    p50: list[float] = field(default_factory=list[float])
    p99: list[float] = field(default_factory=list[float])
    """Seconds per call, one in flight."""
    rate: list[float] = field(default_factory=list[float])
    """Calls per second with a hundred in flight."""
    first: list[float] = field(default_factory=list[float])
    """Seconds to the first answer."""
    computing: dict[int, list[float]] = field(default_factory=lambda: {size: list[float]() for size in (1, SIZE)})
    """Computing calls per second, by the number of processes, with twice as many in flight."""


@dataclass
class Held:
    """All results."""

    effort: Effort
    entries: list[Entry] = field(default_factory=list[Entry])
    another: list[float] = field(default_factory=list[float])
    """Seconds to the first answer of a program's second pool."""
    memory: list[float] = field(default_factory=list[float])
    """The private memory of an idle worker in bytes."""
    milestones: list[Milestone] = field(default_factory=list[Milestone])

    def entry(self, way: Way) -> Entry:
        """The entry of a way."""
        return next(one for one in self.entries if one.way is way)


def hold(effort: Effort, ways: Sequence[Way] = WAYS, on_progress: Callable[[str], None] = lambda _line: None) -> Held:
    """Run all rounds."""
    held = Held(effort, [Entry(way) for way in ways])
    for number in range(effort.rounds):
        on_progress(f"round {number + 1} of {effort.rounds}")
        for entry in held.entries:
            asyncio.run(_measure(entry, effort.seconds))
        asyncio.run(_weigh(held))
    held.milestones = reached(held)
    return held


async def _measure(entry: Entry, seconds: float) -> None:
    way = entry.way
    began = time.perf_counter()
    async with way.open(SIZE) as call:
        await call("echo", text="hello")
        entry.first.append(time.perf_counter() - began)
        await _crowd(call, seconds / 3)
        took = await _one_by_one(call, seconds)
        entry.p50.append(took[len(took) // 2])
        entry.p99.append(took[len(took) * 99 // 100])
        entry.rate.append(await _crowd(call, seconds))
    if way.apart:
        for size, rates in entry.computing.items():
            async with way.open(size) as call:
                await _crowd(call, seconds / 3, 2 * size, "compute", rounds=ROUNDS_OF_COMPUTING)
                rates.append(await _crowd(call, seconds, 2 * size, "compute", rounds=ROUNDS_OF_COMPUTING))


async def _one_by_one(call: Call, seconds: float) -> list[float]:
    """The sorted durations of calls made one after another."""
    took: list[float] = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        assert await call("echo", text="hello") == "hello"
        took.append(time.perf_counter() - began)
    return sorted(took)


async def _crowd(call: Call, seconds: float, crowd: int = CROWD, name: str = "echo", **arguments: Any) -> float:
    """Calls per second with this many in flight."""
    given = arguments or {"text": "hello"}
    wanted = FUNCTIONS[name](*given.values())
    done = 0
    began = time.perf_counter()

    async def go_on() -> None:
        nonlocal done
        while time.perf_counter() < began + seconds:
            assert await call(name, **given) == wanted
            done += 1

    await asyncio.gather(*(go_on() for _ in range(crowd)))
    return done / (time.perf_counter() - began)


async def _weigh(held: Held) -> None:
    """The start of a second pool, and the memory of its idle workers."""
    server = Server("isolation")
    server.tool("first", isolation=Pool(size=1))(echo)
    server.tool("another", isolation=Pool(size=1))(echo)
    server.tool("stay", isolation=Pool(size=MANY))(stay)
    async with Node(log=False), Client(server) as client:
        await client.call("first", text="hello")
        began = time.perf_counter()
        await client.call("another", text="hello")
        held.another.append(time.perf_counter() - began)
        found = set(await asyncio.gather(*(client.call("stay", into=int, seconds=0.3) for _ in range(MANY))))
        assert found <= set(os_processes.descendants(os.getpid()))
        held.memory.append(statistics.median(rollup(pid)["Private"] for pid in found))


def reached(held: Held) -> list[Milestone]:
    """The targets whose references took part."""
    entries = {entry.way: entry for entry in held.entries}
    ours = entries.get(PROCESS)
    if ours is None:
        return []
    found = [Milestone("isolated call, one in flight, p50", "ms", 1.5, [1e3 * one for one in ours.p50], least=False)]
    for ways, name in (
        ((FUTURES_IN_TOOL, ANYIO_IN_TOOL), "tool with a bare pool"),
        ((FUTURES, ANYIO), "bare pool alone"),
    ):
        others = [entries[way].rate for way in ways if way in entries]
        if others:
            ratios = [mine / max(rates) for mine, *rates in zip(ours.rate, *others, strict=True)]
            found.append(Milestone(f"isolated, {CROWD} in flight, beside the better {name}", "x", 1.0, ratios))
    found.append(Milestone("computing calls, two processes beside one", "x", 1.8, scaling(ours)))
    return found


def scaling(entry: Entry) -> list[float]:
    """The ratio of computing calls of two processes to one."""
    return [two / one for one, two in zip(entry.computing[1], entry.computing[SIZE], strict=True)]


def table(held: Held) -> str:
    """The results in Markdown, medians of the rounds."""
    lines = [
        f"| | one in flight: p50 | p99 | {CROWD} in flight | to the first answer | two processes compute |",
        "|---|---|---|---|---|---|",
    ]
    for entry in held.entries:
        cells = [
            f"{1e3 * statistics.median(entry.p50):.2f} ms",
            f"{1e3 * statistics.median(entry.p99):.2f} ms",
            f"{statistics.median(entry.rate):,.0f} calls/s",
            f"{1e3 * statistics.median(entry.first):,.0f} ms",
            f"{statistics.median(scaling(entry)):.2f} times as much as one" if entry.way.apart else "",
        ]
        lines.append(f"| {entry.way.name} | {' | '.join(cells)} |")
    weight = statistics.median(held.memory) / 1e6
    another = 1e3 * statistics.median(held.another)
    lines += [
        "",
        f"A program's second pool has its first answer after {another:,.0f} ms. An idle worker has {weight:.1f} MB to itself.",
    ]
    return "\n".join(lines)


def as_data(held: Held) -> dict[str, Any]:
    """All results as JSON types."""
    return {
        "rounds": held.effort.rounds,
        "seconds": held.effort.seconds,
        "another": held.another,
        "memory": held.memory,
        "entries": [
            {
                "name": entry.way.name,
                "p50": entry.p50,
                "p99": entry.p99,
                "rate": entry.rate,
                "first": entry.first,
                "computing": entry.computing,
            }
            for entry in held.entries
        ],
    }
