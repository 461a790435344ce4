"""The cost of nodes in separate processes: start, loss detection, and memory."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.benchmark_types import Run, benchmark
from greenroom.supervision import GenServer, Node, Supervisor, inbox, monitor, receive, start
from greenroom.supervision.cluster.cluster import Cluster, NodeOwner
from greenroom.supervision.cluster.cluster_settings import NodeSpec
from greenroom.supervision.cluster.node_engine import NodeEngine
from greenroom.supervision.cluster.remote_spawn import start_on

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

ROOT = Path(__file__).parents[2]
SPEC = NodeSpec(path=(str(ROOT), *sys.path))


class Echo(GenServer):
    """Echoes its argument."""

    def echo(self, value: str) -> str:
        """Echo the argument."""
        return value


@asynccontextmanager
async def clustered() -> AsyncGenerator[Cluster]:
    """A node with a cluster that has no other nodes."""
    async with Node(log=False):
        cluster = Cluster()
        await start(Supervisor, [cluster.child_spec()])
        yield cluster


@benchmark("multiprocessing spawn", count=5, unit="ms", clock="wall", repeats=3)
def spawn(run: Run) -> None:
    """A process of `multiprocessing` with the method `spawn`, from `start` to `join`, without work."""
    spawning = multiprocessing.get_context("spawn")
    for _ in range(run.count):
        with run.measured(1):
            process = spawning.Process(target=int)
            process.start()
            process.join()


@benchmark("first node", count=1, unit="ms", clock="wall", repeats=7)
async def first(run: Run) -> None:
    """The start of an application's first node, including the daemon and Thespian, which are started for it."""
    async with clustered() as cluster:
        with run.measured():
            await cluster.start_node(SPEC)


@benchmark("another node", count=40, unit="ms", clock="wall", floor=spawn, target=0.5, repeats=3)
async def another(run: Run) -> None:
    """The start of one more node, one after another; the median."""
    async with clustered() as cluster:
        await cluster.start_node(SPEC)
        for _ in range(run.count):
            with run.measured(1):
                await cluster.start_node(SPEC)


@benchmark("nodes at once", count=40, unit="ms", clock="wall", repeats=3)
async def at_once(run: Run) -> None:
    """Nodes started at the same time: the time until all are ready, divided by their number."""
    async with clustered() as cluster:
        await cluster.start_node(SPEC)
        with run.measured():
            await asyncio.gather(*(cluster.start_node(SPEC) for _ in range(run.count)))


@benchmark("a node's death", count=20, unit="ms", clock="wall", repeats=3)
async def death(run: Run) -> None:
    """From `kill -9` of an idle node to the `Down` of a process in it (the link has ended); aside: to that of its host, which knows the signal."""
    hosts: list[float] = []
    async with clustered() as cluster, inbox():
        for _ in range(run.count):
            host = await cluster.start_node(SPEC)
            echo = await start_on(await host.call(NodeOwner.node_name), Echo)
            watch, pid = monitor(echo), await host.call(NodeOwner.process_id)
            monitor(host)
            await echo.call(Echo.echo, "")
            began = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            for _ in range(2):
                down = await receive(timeout=10.0)
                if down.ref is watch:
                    run.record(time.perf_counter() - began)
                else:
                    hosts.append(time.perf_counter() - began)
    run.asides = {"host": sorted(hosts)[len(hosts) // 2]}


@benchmark("ten thousand monitors", count=1, unit="ms", clock="wall", repeats=5)
async def monitors(run: Run) -> None:
    """From `kill -9` of a node to the last of 10,000 `Down`s of a process in it."""
    async with clustered() as cluster, inbox():
        host = await cluster.start_node(SPEC)
        echo = await start_on(await host.call(NodeOwner.node_name), Echo)
        for _ in range(10_000):
            monitor(echo)
        await echo.call(Echo.echo, "")
        pid = await host.call(NodeOwner.process_id)
        with run.measured():
            os.kill(pid, signal.SIGKILL)
            for _ in range(10_000):
                await receive(timeout=10.0)


@benchmark("an idle node", count=10, unit="MB", clock="wall", repeats=1)
async def memory(run: Run) -> None:
    """The private memory (USS) of an idle node's process; asides: its proportional share (PSS), and the same of the four processes shared by all nodes."""
    async with clustered() as cluster:
        hosts = [await cluster.start_node(SPEC) for _ in range(run.count)]
        nodes = [await host.call(NodeOwner.process_id) for host in hosts]
        parts = [pid for pid in (await cluster.engine.call(NodeEngine.running)).values() if pid not in nodes]
        for pid in nodes:
            run.record(rollup(pid)["Private"])
        run.asides = {
            "node PSS": sum(rollup(pid)["Pss"] for pid in nodes) / len(nodes),
            "parts USS": sum(rollup(pid)["Private"] for pid in parts),
            "parts PSS": sum(rollup(pid)["Pss"] for pid in parts),
        }


def rollup(pid: int) -> dict[str, float]:
    """The memory of a process in bytes, by kind."""
    found = {"Private": 0.0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
        name, amount, *_ = line.split()
        found[name.rstrip(":")] = float(amount) * 1024
    found["Private"] = found["Private_Clean"] + found["Private_Dirty"]
    return found


@benchmark("ask a Thespian actor", count=2_000, clock="wall", repeats=5)
async def ask(run: Run) -> None:
    """A request to an actor in Thespian itself, with 100 bytes there and back; asides: a one-way message, by the number in flight."""
    program = [sys.executable, "-m", "benchmarks.cluster.thespian_program", str(run.count)]
    done = await asyncio.to_thread(
        lambda: subprocess.run(program, cwd=ROOT, capture_output=True, check=True, timeout=120)  # noqa: S603 - our own words
    )
    took = json.loads(done.stdout)
    run.record(took["ask"])
    run.asides = {f"one way, {window} on their way": seconds for window, seconds in took["tell"].items()}
