"""Where workers really run: each in a process of its own, which the company's cluster starts and ends.

The cluster stands beside the pools in the company's tree, and comes with the first of them; it stops when they have.
"""

from __future__ import annotations

import asyncio
import os
import signal
import weakref
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision import Options, kill
from greenroom.supervision.cluster import pids
from greenroom.supervision.cluster.cluster import Cluster, node_child
from greenroom.supervision.cluster.host import Host
from greenroom.supervision.cluster.specs import ClusterSettings, Limits, NodeSpec
from greenroom.supervision.cluster.ushering import launch_on

from .claims import Claims
from .loading import is_worker
from .seat import Seat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision import ChildSpec, Ref

    from .pool import Pool

_SEAT: Final = "greenroom.actors.pools.seat"
_TERM: Final = 0.15
"""How long a process may take to end of a SIGTERM."""


class NoWorkers(RuntimeError):
    """A worker process was to have workers itself."""


class Lodging:
    """One company's."""

    def __init__(self) -> None:
        """Nothing runs before its children are started."""
        self._cluster = Cluster(ClusterSettings(preload=(_SEAT,)))

    def child_spec(self) -> ChildSpec[Any]:
        """What has to run before anything is opened."""
        return self._cluster.child_spec()

    async def open(self, pool: Pool) -> ProcessBench:
        """A new process, linked to the calling one."""
        if is_worker():
            raise NoWorkers("this is a worker process already, and has none of its own: call the function itself")
        limits = Limits(memory=pool.memory_limit, cpu=pool.cpu)
        spec = NodeSpec(limits=limits, start_timeout=pool.start, requires=pool.requires)
        host = await node_child(pool.cluster or self._cluster, spec).start()
        name = await host.call(Host.node_name)
        return ProcessBench(host, name, await host.call(Host.process_id), pool, self._cluster)


class ProcessBench:
    """One process, and who stands for it here."""

    def __init__(self, who: Ref[Host], name: str, os_pid: int, pool: Pool, cluster: Cluster) -> None:
        """It has just come up."""
        self.who: Ref[Any] = who
        self.os_pid = os_pid
        self._name = name
        self._pool = pool
        self._peers = cluster.peers
        # What is decided by a file in memory, and whose pid means something here, is on this machine.
        self._is_near = not pool.requires
        self.claims = Claims.made() if self._is_near else None
        self._pidfd = (
            pids.descriptor(os_pid) if self._is_near else None
        )  # its number may be another's when it is to be ended
        if self._pidfd is not None:
            weakref.finalize(self, os.close, self._pidfd)

    async def seat(self, home: Ref[Any], settings: Mapping[str, Any], plans: Mapping[int, bytes]) -> Ref[Any]:
        """Start a seat there. Imports may hold the interpreter for long; that is what `start` bounds."""
        self.busy(True)  # noqa: FBT003 - a switch
        pool = self._pool
        given: tuple[Any, ...] = (home, dict(settings), dict(plans))
        claims = None if self.claims is None else self.claims.path
        limits = {"cpu": pool.cpu, "memory": pool.memory_limit, "claims": claims}
        seat = await launch_on(self._name, Options(timeout=pool.start), Seat, given, limits)
        self.busy(False)  # noqa: FBT003 - a switch
        return seat

    def busy(self, on: bool) -> None:  # noqa: FBT001 - a switch
        """It has a call, or none: while it has, it may be silent for as long as it likes."""
        self._peers.patient(self._name, on)

    def end(self) -> None:
        """SIGTERM, which some programs want to notice, and SIGKILL, whatever they make of it."""
        if not self._is_near:
            kill(self.who)
            return
        if self._pidfd is not None:
            pids.send_signal(signal.SIGTERM, self.os_pid, self._pidfd)
        asyncio.get_running_loop().call_later(_TERM, kill, self.who)
