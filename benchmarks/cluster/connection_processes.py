"""What it costs that a connection runs in a process beside the program: a call by way of an annex, next to the same call at home."""

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
    """One server as a child process: of this program, or of an annex."""
    spec = UpstreamSpec(Command(sys.executable, SERVER), isolation=isolation, concurrent=AT_ONCE)
    async with Node(log=False), Host({"echo": spec}) as host:
        words = host.server("echo")
        await words.call_tool("echo", {"text": "hello"})
        yield words


async def one_by_one(run: Run, isolation: Isolation, text: str = "hello") -> None:
    """So many calls, each after the last."""
    async with hosted(isolation) as words:
        with run.measured():
            for _ in range(run.count):
                await words.call_tool("echo", {"text": text})


async def at_once(run: Run, isolation: Isolation) -> None:
    """So many calls, sixteen of them under way."""

    async def some(words: HostedServer) -> None:
        for _ in range(run.count // AT_ONCE):
            await words.call_tool("echo", {"text": "hello"})

    async with hosted(isolation) as words:
        with run.measured():
            await asyncio.gather(*(some(words) for _ in range(AT_ONCE)))


@benchmark("stdio call, at home", count=1_000, clock="wall", repeats=3)
async def home(run: Run) -> None:
    """A call of a host to a server that is its own child process."""
    await one_by_one(run, None)


@benchmark("stdio call, by way of an annex", count=1_000, clock="wall", floor=home, target=3.0, repeats=3)
async def annexed(run: Run) -> None:
    """The same with the connection, and so the child process, in an annex: there and back over a link."""
    await one_by_one(run, "process")


@benchmark("stdio call, 16 at once, at home", count=3_200, clock="wall", repeats=3)
async def home_at_once(run: Run) -> None:
    """Sixteen such calls under way at home."""
    await at_once(run, None)


@benchmark(
    "stdio call, 16 at once, by way of an annex", count=3_200, clock="wall", floor=home_at_once, target=3.0, repeats=3
)
async def annexed_at_once(run: Run) -> None:
    """Sixteen such calls under way by way of an annex."""
    await at_once(run, "process")


@benchmark("stdio answer of 1 MiB, at home", count=30, unit="ms", clock="wall", repeats=3)
async def large_at_home(run: Run) -> None:
    """A megabyte there and back at home."""
    await one_by_one(run, None, "x" * LARGE)


@benchmark(
    "stdio answer of 1 MiB, by way of an annex",
    count=30,
    unit="ms",
    clock="wall",
    floor=large_at_home,
    target=3.0,
    repeats=3,
)
async def large_annexed(run: Run) -> None:
    """A megabyte there and back by way of an annex."""
    await one_by_one(run, "process", "x" * LARGE)
