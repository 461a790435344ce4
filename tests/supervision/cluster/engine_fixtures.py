"""The fixtures of the engine's tests: a node with a cluster, and checks for processes that are left."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from greenroom.supervision import GenServer, Ref, Supervisor, start, stop
from greenroom.supervision.cluster import os_processes
from greenroom.supervision.cluster.cluster import Cluster, NodeOwner
from greenroom.supervision.cluster.cluster_settings import ClusterSettings, NodeSpec
from greenroom.supervision.cluster.node_engine import NodeEngine
from greenroom.supervision.cluster.remote_spawn import start_on

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

PATIENCE = 20.0
LEFT = 5 * 3.0
"""How long processes of an engine may remain however it ended, times five, since the machine may be busy."""


def spec(**wanted: Any) -> NodeSpec:
    """A node spec whose path includes the tests, which are no installed package."""
    return NodeSpec(path=(str(Path(__file__).parents[3]), *sys.path), **wanted)


class Hand(GenServer):
    """Runs in another process what a test wants to see there."""

    def process_id(self) -> int:
        return os.getpid()

    def environment(self, name: str) -> str | None:
        return os.environ.get(name)

    def say(self, text: str) -> None:
        print(text)  # noqa: T201 - it goes to the log at home

    def end_with(self, code: int) -> None:
        os._exit(code)


class Stage(NamedTuple):
    """The test's node, with a cluster."""

    cluster: Cluster
    tree: Ref[Supervisor]

    async def host(self, **wanted: Any) -> Ref[NodeOwner]:
        return await self.cluster.start_node(spec(**wanted))

    async def hand(self, host: Ref[NodeOwner]) -> Ref[Hand]:
        return await start_on(await host.call(NodeOwner.node_name), Hand)

    async def running(self) -> dict[str, int]:
        return await self.cluster.engine.call(NodeEngine.running)

    async def part(self, name: str) -> int:
        return (await self.running())[name]


@asynccontextmanager
async def staged(settings: ClusterSettings | None = None) -> AsyncGenerator[Stage]:
    """The engine is stopped in order at the end, and no process may be left."""
    before = set(os_processes.descendants(os.getpid()))
    cluster = Cluster(settings)
    tree = await start(Supervisor, [cluster.child_spec()])
    try:
        yield Stage(cluster, tree)
    finally:
        await stop(tree, timeout=PATIENCE)
    await eventually(lambda: before.issuperset(os_processes.descendants(os.getpid())), LEFT)


async def eventually(true: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Poll until the condition holds: no event tells."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "it did not come about"
        await asyncio.sleep(0.002)


async def gone(*which: int, seconds: float = PATIENCE) -> None:
    """Wait until none of these processes runs."""
    await eventually(lambda: not any(os_processes.is_alive(pid) for pid in which), seconds)
