"""The cost of being looked at: calls of a server beside 10,000 processes, with a viewer of the tree or of the first page, and without a viewer."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from typing import TYPE_CHECKING

from greenroom import Client, Server
from greenroom.observe.observatory import Observatory
from greenroom.supervision import DynamicSupervisor, Node, start, start_child, template

from .benchmark_types import Run, benchmark
from .measured_actors import Counter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PROCESSES = 10_000
TURN_SECONDS = 3.0
"""Each turn has several snapshots of a viewer."""


@benchmark("observer p99", count=8, unit="x", target=1.05, repeats=1)
async def p99_with_a_viewer(run: Run) -> None:
    """The 99th percentile of calls beside 10,000 processes: with one viewer of the tree, against an observatory without a viewer, in turns."""
    await _compare(run, "tree")


@benchmark("observer p99 of the first page", count=8, unit="x", target=1.05, repeats=1)
async def p99_with_a_viewer_of_the_first_page(run: Run) -> None:
    """The same with one viewer of the first page."""
    await _compare(run, "now")


async def _compare(run: Run, view: str) -> None:
    server = Server("observed")

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with Node(log=False), Client(server) as client:
        crowd = await start(DynamicSupervisor, template(Counter))
        for _ in range(PROCESSES):
            await start_child(crowd)
        await _latencies(client, 0.5)
        with_viewer: list[float] = []
        without: list[float] = []
        observatory = Observatory("observed")
        observatory.start()
        for number in range(max(2, run.count)):
            if number % 4 in (1, 2):
                async with _viewer(observatory, view):
                    with_viewer += await _latencies(client, TURN_SECONDS)
            else:
                without += await _latencies(client, TURN_SECONDS)
        observatory.stop()
        run.record(_p99(with_viewer) / _p99(without))


@contextlib.asynccontextmanager
async def _viewer(observatory: Observatory, view: str) -> AsyncGenerator[None]:
    """One viewer, which looks at each change."""

    async def look() -> None:
        async for _ in observatory.changes():
            await observatory.view(view)

    looking = asyncio.ensure_future(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait((looking,))


async def _latencies(client: Client, seconds: float) -> list[float]:
    """The seconds of each call, one after the other."""
    found: list[float] = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        await client.call("echo", text="hello")
        found.append(time.perf_counter() - began)
    return found


def _p99(latencies: list[float]) -> float:
    return statistics.quantiles(latencies, n=100)[98]
