"""The cost of reaching a process in another OS process over a link, beside a bare socket."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from greenroom.supervision import Inbox, Node, Ref, current_node, inbox, kill, monitor, start
from greenroom.supervision.cluster.peers import Peering, Peers
from greenroom.supervision.cluster.remote_spawn import start_on

from .benchmark_types import Run, benchmark
from .measured_actors import Counter, Echo

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncGenerator

KEY = b"for benchmarks on one machine only"
SMALL = 100
LARGE = 100_000_000
MONITORS = 10_000


@asynccontextmanager
async def far() -> AsyncGenerator[Process]:
    """Another OS process with a node called "far", linked to this one's."""
    async with Node(log=False):
        peers = Peers(current_node(), KEY)
        await start(Peering, peers)
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.node_links", *peers.addresses, stdin=asyncio.subprocess.PIPE
        )
        try:
            await peers.wait_for("far", 30)
            yield program
        finally:
            if program.returncode is None:
                program.kill()
            await program.wait()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.readexactly(SMALL):
            writer.write(data)
    except asyncio.IncompleteReadError:
        writer.close()


async def serve(addresses: list[str]) -> None:
    """The other OS process: a node, and a plain echo beside it, until its standard input ends."""
    loop = asyncio.get_running_loop()
    async with Node("far", log=False):
        peers = Peers(current_node(), KEY)
        await start(Peering, peers)
        server = await asyncio.start_unix_server(_answer, "\0" + addresses[0].removeprefix("unix:@") + "-echo")
        await peers.connect(addresses)
        await loop.run_in_executor(None, sys.stdin.read)
        server.close()


@benchmark("link: a bare socket", count=5_000, clock="wall")
async def bare(run: Run) -> None:
    """100 bytes to another OS process and back over asyncio's streams on a unix socket, one after another."""
    async with far():
        elsewhere = current_node().remote_nodes
        assert isinstance(elsewhere, Peers)
        path = "\0" + elsewhere.addresses[0].removeprefix("unix:@") + "-echo"
        reader, writer = await asyncio.open_unix_connection(path)
        data = bytes(SMALL)
        with run.measured():
            for _ in range(run.count):
                writer.write(data)
                await reader.readexactly(SMALL)
        writer.close()


async def _call(run: Run, callers: int) -> None:
    callers = min(callers, run.count)
    async with far():
        ref = await start_on("far", Counter, 0)

        async def keep_calling() -> None:
            for _ in range(run.count // callers):
                await ref.call(Counter.add, 1)

        await ref.call(Counter.add, 1)
        with run.measured(run.count // callers * callers):
            await asyncio.gather(*(keep_calling() for _ in range(callers)))


@benchmark("link: call", count=5_000, clock="wall", floor=bare)
async def call(run: Run) -> None:
    """`await ref.call(method, 1)` of a server in another OS process, one call after another."""
    await _call(run, 1)


@benchmark("link: 16 in flight", count=16_000, clock="wall", floor=bare)
async def call_some(run: Run) -> None:
    """The same by 16 tasks; the cost of one call."""
    await _call(run, 16)


@benchmark("link: 100 in flight", count=20_000, clock="wall", floor=bare)
async def call_many(run: Run) -> None:
    """The same by 100 tasks; the cost of one call."""
    await _call(run, 100)


@benchmark("link: start", count=1_000, clock="wall", floor=bare)
async def start_far(run: Run) -> None:
    """`await start_on(node, Counter, 0)`, one after another."""
    async with far():
        with run.measured():
            for _ in range(run.count):
                await start_on("far", Counter, 0)


async def _downs(me: Inbox, count: int) -> None:
    for _ in range(count):
        await me.receive(timeout=30)


@benchmark("link: kill to DOWN", count=500, clock="wall", floor=bare)
async def kill_to_down(run: Run) -> None:
    """From `kill` of a remote process to its `Down` here; the median of all."""
    async with far(), inbox() as me:
        for _ in range(run.count):
            ref: Ref[Counter] = await start_on("far", Counter, 0)
            monitor(ref)
            began = time.perf_counter()
            kill(ref)
            await me.receive()
            run.record(time.perf_counter() - began)


@benchmark("link: 10,000 monitors", unit="ms", clock="wall", target=100, repeats=5)
async def node_down(run: Run) -> None:
    """From `kill -9` of the other OS process to the last of 10,000 `Down`s, received one by one."""
    async with far() as program, inbox() as me:
        refs = [await start_on("far", Counter, 0) for _ in range(100)]
        for number in range(MONITORS):
            monitor(refs[number % 100])
        await refs[0].call(Counter.add, 1)
        with run.measured(1):
            program.kill()
            await _downs(me, MONITORS)


@benchmark("link: 100 MB and back", unit="s", clock="wall", repeats=3)
async def large(run: Run) -> None:
    """`await ref.call(Echo.echo, 100 MB)`; the aside is the longest wait of other calls meanwhile."""
    async with far():
        echo, other = await start_on("far", Echo), await start_on("far", Counter, 0)
        data = bytes(LARGE)
        waits: list[float] = []
        with run.measured(1):
            under_way = asyncio.ensure_future(echo.within(60).call(Echo.echo, data))
            while not under_way.done():
                began = time.perf_counter()
                await other.within(60).call(Counter.add, 1)
                waits.append(time.perf_counter() - began)
            await under_way
        run.asides = {"others waited": max(waits)}


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1:]))
