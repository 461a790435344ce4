"""An engine whose daemon, links and nodes are played by the test, in virtual time."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from greenroom.supervision import Ref, inbox, start
from greenroom.supervision.cluster import node_engine as engine_module
from greenroom.supervision.cluster.bootstrap import NodeReady
from greenroom.supervision.cluster.cluster_settings import ClusterSettings, NodeSpec
from greenroom.supervision.cluster.daemon_protocol import ProcessForked, SignalProcess, StartProcess, SystemReady
from greenroom.supervision.cluster.node_engine import NodeEngine

from .played_processes import PlayedDaemon, PlayedPeers, settled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import pytest

    from greenroom.supervision import Inbox, Pid
    from greenroom.supervision.cluster.node_records import NodeStarted, ProcessEnding

NO_SUCH_PID = 4_000_002
"""A pid that no process has: there is no pidfd for it, so signals go through the daemon."""
KILL = signal.SIGKILL


class Town(NamedTuple):
    engine: Ref[NodeEngine]
    daemons: list[PlayedDaemon]
    peers: PlayedPeers
    me: Inbox
    tasks: list[asyncio.Task[Any]]

    @property
    def daemon(self) -> PlayedDaemon:
        return self.daemons[0]

    async def begun(self) -> None:
        """The daemon reports that it runs."""
        await settled()
        self.engine.send(SystemReady({"daemon": 1, "forkserver": 2}, 1234, 0.1, "system-1"))
        await settled()

    async def start(self, name: str = "node", host: Pid | None = None, **wanted: Any) -> asyncio.Task[NodeStarted]:
        """Ask for a process."""
        asked = asyncio.create_task(
            self.engine.within(None).call(NodeEngine.start_node_process, host or self.me.pid, name, NodeSpec(**wanted))
        )
        self.tasks.append(asked)
        await settled()
        return asked

    async def want(self, name: str = "node", host: Pid | None = None, **wanted: Any) -> None:
        """Request a process, and ignore the outcome."""
        _ = await self.start(name, host, **wanted)

    async def end(self, name: str = "node") -> asyncio.Task[ProcessEnding]:
        asked = asyncio.create_task(self.engine.within(None).call(NodeEngine.end_node, name))
        self.tasks.append(asked)
        await settled()
        return asked

    async def ready(self, name: str = "node") -> None:
        """Its process runs, and its node is ready; this test is the node's stopper."""
        self.engine.send(ProcessForked(name, NO_SUCH_PID))
        self.engine.send(NodeReady(name, NO_SUCH_PID, self.me.pid))
        await settled()

    async def running(self) -> dict[str, int]:
        await settled()
        return await self.engine.call(NodeEngine.running)

    def signals(self) -> list[tuple[str, int]]:
        return [(order.name, order.signal) for order in self.daemon.of(SignalProcess)]

    def started(self) -> list[str]:
        return [order.name for order in self.daemon.of(StartProcess)]


@asynccontextmanager
async def town(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Town]:
    daemons: list[PlayedDaemon] = []
    peers = PlayedPeers()

    def begin(told: Any) -> PlayedDaemon:
        daemons.append(PlayedDaemon(told))
        return daemons[-1]

    monkeypatch.setattr(engine_module, "DaemonHandle", begin)
    monkeypatch.setattr(engine_module, "links_of_home", lambda: peers)
    monkeypatch.setattr(engine_module, "key_of_home", lambda: bytes(32))
    async with inbox() as me:
        engine = await start(NodeEngine, ClusterSettings(machine="a"))
        tasks: list[asyncio.Task[Any]] = []
        yield Town(engine, daemons, peers, me, tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # requests whose outcome a test did not check


async def idle() -> None:
    await asyncio.Event().wait()
