"""The cost of running a connection in a separate process: a call through a connection process, and the same call in this process."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.benchmark_types import Run, benchmark
from greenroom import Command, Host
from greenroom.actors.federation.upstream_spec import UpstreamSpec
from greenroom.supervision import Node

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.actors.federation.upstream_spec import Isolation
    from greenroom.hosted_server import HostedServer

SERVER = Path(__file__).with_name("echo_program.py")
AT_ONCE = 16
LARGE = 1024 * 1024


@asynccontextmanager
async def hosted(isolation: Isolation) -> AsyncGenerator[HostedServer]:
    """One server as a child process of this program or of a connection process."""
    spec = UpstreamSpec(Command(sys.executable, SERVER), isolation=isolation, concurrent=AT_ONCE)
    async with Node(log=False), Host({"echo": spec}) as host:
        words = host.server("echo")
        await words.call_tool("echo", {"text": "hello"})
        yield words


async def one_by_one(run: Run, isolation: Isolation, text: str = "hello") -> None:
    """Make `count` calls one after another."""
    async with hosted(isolation) as words:
        with run.measured():
            for _ in range(run.count):
                await words.call_tool("echo", {"text": text})


async def at_once(run: Run, isolation: Isolation) -> None:
    """Make `count` calls, sixteen at a time."""

    async def some(words: HostedServer) -> None:
        for _ in range(run.count // AT_ONCE):
            await words.call_tool("echo", {"text": "hello"})

    async with hosted(isolation) as words:
        with run.measured():
            await asyncio.gather(*(some(words) for _ in range(AT_ONCE)))


@benchmark("stdio call, in this process", count=1_000, clock="wall", repeats=3)
async def home(run: Run) -> None:
    """A call of a host to a server that is its own child process."""
    await one_by_one(run, None)


@benchmark("stdio call, through a connection process", count=1_000, clock="wall", floor=home, target=3.0, repeats=3)
async def through_process(run: Run) -> None:
    """The same with the connection, and so the child process, in a connection process: over a link and back."""
    await one_by_one(run, "process")


@benchmark("stdio call, 16 at once, in this process", count=3_200, clock="wall", repeats=3)
async def home_at_once(run: Run) -> None:
    """Sixteen such calls at a time, in this process."""
    await at_once(run, None)


@benchmark(
    "stdio call, 16 at once, through a connection process",
    count=3_200,
    clock="wall",
    floor=home_at_once,
    target=3.0,
    repeats=3,
)
async def through_process_at_once(run: Run) -> None:
    """Sixteen such calls at a time, through a connection process."""
    await at_once(run, "process")


@benchmark("stdio answer of 1 MiB, in this process", count=30, unit="ms", clock="wall", repeats=3)
async def large_at_home(run: Run) -> None:
    """A megabyte there and back, in this process."""
    await one_by_one(run, None, "x" * LARGE)


@benchmark(
    "stdio answer of 1 MiB, through a connection process",
    count=30,
    unit="ms",
    clock="wall",
    floor=large_at_home,
    target=3.0,
    repeats=3,
)
async def large_through_process(run: Run) -> None:
    """A megabyte there and back, through a connection process."""
    await one_by_one(run, "process", "x" * LARGE)
