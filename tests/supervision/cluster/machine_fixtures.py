"""The fixtures of tests with several machines: member programs, each as if on a machine of its own, and an application."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.free_ports import free_port

from greenroom.supervision import Ref, Supervisor, inbox, start, stop
from greenroom.supervision.cluster import os_processes
from greenroom.supervision.cluster.cluster import Cluster, NodeOwner
from greenroom.supervision.cluster.cluster_settings import ClusterSettings, NodeSpec
from greenroom.supervision.cluster.machines import Machine, MachineDown, MachineUp
from greenroom.supervision.cluster.membership import ClusterMembership
from greenroom.supervision.cluster.remote_spawn import start_on

from .engine_fixtures import PATIENCE, Hand, eventually, gone

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.supervision import Inbox

ROOT = Path(__file__).parents[3]
KEY = "the key of the machines of these tests"
BEAT = 0.2
"""Heartbeats five times as fast as the default."""


def key_file(folder: Path, key: str = KEY) -> Path:
    """A key file with the required permissions."""
    path = folder / "key"
    path.write_text(f"{key}\n", encoding="ascii")
    path.chmod(0o600)
    return path


class Member:
    """A member program."""

    def __init__(
        self, convention: str, key: Path, name: str, *more: str, listen: str = "127.0.0.1", prefix: tuple[str, ...] = ()
    ) -> None:
        program = (sys.executable, "-P", "-m", "greenroom.supervision.cluster.member")
        given = (
            "--convention",
            convention,
            "--key-file",
            str(key),
            "--listen",
            listen,
            "--name",
            name,
            "--path",
            str(ROOT),
        )
        self.name = name
        self.log = key.parent / f"{name}-{free_port()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*prefix, *program, *given, *more],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self.process.pid

    def said(self) -> str:
        """Its log."""
        return self.log.read_text(encoding="utf-8")

    def below(self, name: str = "") -> list[int]:
        """The processes below it, or those with that name."""
        seen = os_processes.all_processes()
        return [
            pid
            for pid in os_processes.descendants(self.pid)
            if not name or (pid in seen and seen[pid].name.startswith(name))
        ]

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()

    async def end(self) -> int:
        """Stop it in order; returns its exit code when no process of it is left."""
        below = self.below()
        self.process.terminate()
        code = await asyncio.to_thread(self.process.wait, PATIENCE)
        await gone(*below)
        return code


class Machines(NamedTuple):
    """An application, and the machines that have joined it."""

    cluster: Cluster
    me: Inbox
    convention: str
    key: Path
    members: list[Member]

    def member(self, name: str, *more: str, **how: Any) -> Member:
        """Another machine."""
        beat = str(self.cluster.settings.heartbeat)
        made = Member(self.convention, how.pop("key", self.key), name, "--heartbeat", beat, *more, **how)
        self.members.append(made)
        return made

    async def joined(self, name: str, *more: str, **how: Any) -> Member:
        """Start another machine, and wait until it has joined."""
        made = self.member(name, *more, **how)
        await self.up(name)
        return made

    async def up(self, name: str) -> MachineUp:
        event = await self.me.receive(lambda each: isinstance(each, MachineUp) and each.name == name, timeout=PATIENCE)
        assert isinstance(event, MachineUp)
        return event

    async def down(self, name: str) -> MachineDown:
        event = await self.me.receive(
            lambda each: isinstance(each, MachineDown) and each.name == name, timeout=PATIENCE
        )
        assert isinstance(event, MachineDown)
        return event

    async def host(self, **wanted: Any) -> Ref[NodeOwner]:
        return await self.cluster.start_node(NodeSpec(**wanted))

    async def hand(self, host: Ref[NodeOwner]) -> Ref[Hand]:
        return await start_on(await host.call(NodeOwner.node_name), Hand)

    async def known(self) -> list[Machine]:
        return await self.cluster.machines.call(ClusterMembership.machines)


@asynccontextmanager
async def gathered(
    folder: Path, *, port: int = 0, listen: str = "127.0.0.1", heartbeat: float = BEAT, **settings: Any
) -> AsyncGenerator[Machines]:
    """The application leads. Everything is stopped in order at the end, and no process may be left."""
    before = frozenset(os_processes.descendants(os.getpid()))
    convention = f"{listen}:{port or free_port(listen)}"
    key = key_file(folder)
    cluster = Cluster(
        ClusterSettings(
            listen=listen, convention=convention, key_file=key, machine="home", heartbeat=heartbeat, **settings
        )
    )
    members: list[Member] = []
    async with inbox() as me:
        tree = await start(Supervisor, [cluster.child_spec()])
        try:
            await cluster.machines.call(ClusterMembership.watch, Ref[Any](me.pid))
            yield Machines(cluster, me, convention, key, members)
        finally:
            for member in members:
                if member.process.poll() is None:
                    os.kill(member.pid, signal.SIGCONT)
                    await member.end()
            await stop(tree, timeout=PATIENCE)
    await eventually(lambda: not os_processes.descendants(os.getpid(), but=before))
