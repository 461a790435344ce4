"""Processes beside the program in which connections run, so that a bad server cannot harm the program.

::

    connection processes (rest_for_one)   a child of the federation's upstreams, started with the first connection that wants one
    ├─ cluster                            starts and ends operating system processes
    ├─ owners                             dynamic; one owner for each connection process that has leases
    └─ lease barrier                      started last and so stopped first: waits until all leases are returned

An owner has its process started, and ends with it, for the same reason. When the last lease is returned it stops the process. Nothing restarts
an owner: the leases of the upstreams that used it end with it, each upstream's supervisor counts that, and the next lease starts another
process. So each upstream sets how often that may happen, and a server that takes its process down again and again is parked. When no
machine fits (after one was lost, for instance) no process has died: the lease tries again later, as the connection does.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.actors.exclusive_supervisor import ExclusiveSupervisor, ensure_child
from greenroom.actors.process_names import ProcessName
from greenroom.supervision import (
    NORMAL,
    ActorError,
    Continue,
    Crash,
    Down,
    DynamicSupervisor,
    GenServer,
    Options,
    ProcessExited,
    Ref,
    Shutdown,
    StartFailed,
    Stop,
    child,
    monitor,
    send_after,
    stop,
    wait_down,
    whereis,
    which_children,
)
from greenroom.supervision.cluster import Cluster, NodeOwner, NodeSpec, NothingFits
from greenroom.transports.client.remote_wire import NodeLease

if TYPE_CHECKING:
    from greenroom.actors.process_names import CompanyKey
    from greenroom.supervision import ChildSpec, ExitReason, Monitor

    from .upstream_spec import ConnectionProcess

PRELOAD: Final = tuple(
    f"greenroom.transports.client.{name}" for name in ("remote_wire", "server_command", "http_route")
)
_TRIES: Final = 5
"""How often to ask again for a process that was just being stopped."""
_LEASE_RETURN_TIMEOUT: Final = 10.0
"""Seconds that all leases together have to be returned when the federation's connection processes are stopped."""
_STOP_TIMEOUT: Final = 10.0
_TRY_AGAIN: Final = object()
_PAUSE: Final = 30.0
"""Seconds until a lease that found no machine tries again. The connection itself asks with shorter pauses, and so gets in before."""


class ConnectionProcessStarter:
    """Starts connection processes on a cluster of the federation's own, or on the program's cluster where the spec names one."""

    def __init__(self) -> None:
        self._cluster = Cluster()

    def child_spec(self) -> ChildSpec[Any]:
        """The cluster, which has to run before a process can be started."""
        return self._cluster.child_spec()

    async def open(self, process: ConnectionProcess) -> tuple[Ref[Any], str]:
        """Start a process: the local process that stands for it, linked to the caller, and the name of its node."""
        spec = NodeSpec(limits=process.limits, preload=PRELOAD, start_timeout=process.start, requires=process.requires)
        options = Options(label=f"node of {process.name}")
        host = await options.start_link(NodeOwner, (process.cluster or self._cluster).engine, spec)
        return host, await host.call(NodeOwner.node_name)


class ConnectionProcesses:
    """The connection processes of one federation. Not a process: it knows the names under which the owners are registered."""

    def __init__(self, key: CompanyKey, upstreams: Ref[DynamicSupervisor]) -> None:
        """`upstreams` is the supervisor under which they run."""
        self._key = key
        self._upstreams = upstreams
        self._owners: Ref[DynamicSupervisor] = Ref(ProcessName(key, "connection process owners"), None)
        self._starter = ConnectionProcessStarter()

    def connection_process(self, process: ConnectionProcess) -> ConnectionProcessRef:
        """The reference with which wires get a node in that process."""
        return ConnectionProcessRef(self, process)

    async def owner(self, process: ConnectionProcess) -> Ref[ConnectionProcessOwner]:
        """The owner of that process, started if it does not run."""
        name = ProcessName(self._key, f"connection process {process.serial}")
        found = whereis(name)
        if found is not None:
            return Ref(found, None)
        if whereis(self._owners.target) is None:
            await ensure_child(self._upstreams, self._tree())
        options = Options(label=f"connection process {process.name}")
        spec = child(ConnectionProcessOwner, self._starter, process).but(
            id=name, name=name, restart="temporary", options=options
        )
        await ensure_child(self._owners, spec)
        return Ref(name, None)

    def _tree(self) -> ChildSpec[Any]:
        children: list[ChildSpec[Any]] = [
            self._starter.child_spec(),
            child(DynamicSupervisor).but(id="owners", name=self._owners.target),
            child(LeaseBarrier, self._owners).but(id="lease barrier", shutdown=_LEASE_RETURN_TIMEOUT + 1.0),
        ]
        name = ProcessName(self._key, "connection processes")
        tree = child(ExclusiveSupervisor, children, intensity=3, period=60.0, strategy="rest_for_one")
        return tree.but(id=name, name=name, restart="temporary")


@dataclass(frozen=True, slots=True)
class ConnectionProcessRef:
    """A reference to one connection process, which is started when a lease or a wire first needs it."""

    processes: ConnectionProcesses
    spec: ConnectionProcess

    def lease_spec(self) -> ChildSpec[Any]:
        """The lease as a child, for the tree of an upstream."""
        return child(ProcessLease, self).but(id="lease")

    async def process_id(self) -> int:
        """The operating system's id of the process, which is started if it does not run."""
        return await (await self.processes.owner(self.spec)).call(ConnectionProcessOwner.process_id)

    async def acquire(self) -> NodeLease:
        """Lease a node for as long as the calling process lives. Raises the error that kept the process from starting, or ended it at once."""
        tries = 0
        while True:
            tries += 1
            try:
                owner = await self.processes.owner(self.spec)
                return await owner.call(ConnectionProcessOwner.acquire)
            except ProcessExited as gone:
                match gone.reason:
                    case Shutdown(detail=Exception() as error) | Crash(error=Exception() as error):
                        raise error from None
                    case _ if tries >= _TRIES:
                        raise
                    case _:
                        await asyncio.sleep(0)  # the owner was just stopping: let it end, and start another one


class ConnectionProcessOwner(GenServer):
    """Owns one connection process, and runs as long as that has leases."""

    def __init__(self, starter: ConnectionProcessStarter, process: ConnectionProcess) -> None:
        self._starter = starter
        self._spec = process
        self._host: Ref[Any]
        self._node = ""
        self._leases: set[Monitor] = set()

    def init(self) -> Continue:
        """Return at once, so that the supervisor goes on; callers of `acquire` wait until the process runs."""
        return Continue(None)

    async def handle_continue(self, token: Any) -> Stop | None:  # noqa: ARG002 - there is one only
        """Start the process. Its end is ours from then on: the owner is linked to it, and traps no exits."""
        try:
            self._host, self._node = await self._starter.open(self._spec)
        except ActorError as error:
            return Stop(Shutdown(error))
        return None

    def acquire(self) -> NodeLease:
        """Lease the node to the caller, until the caller's process ends."""
        holder = self.caller.process
        if holder is not None:
            self._leases.add(monitor(holder.pid))
        return NodeLease(self._node, self.pid)

    async def process_id(self) -> int:
        """The operating system's id of the process."""
        return await self._host.call(NodeOwner.process_id)

    def handle_info(self, message: Any) -> Stop | None:
        """A lease is returned when its holder ends; with the last one the owner stops."""
        if not isinstance(message, Down):
            super().handle_info(message)
            return None
        self._leases.discard(message.ref)
        return None if self._leases else Stop(NORMAL)

    async def terminate(self, reason: ExitReason) -> None:
        """Stop the process in order, when it has no leases left."""
        if reason == NORMAL:
            # The process may have ended by itself, or is ending with the cluster that started it.
            with contextlib.suppress(ActorError):
                await stop(self._host, NORMAL, _STOP_TIMEOUT)

    def report_state(self) -> str:
        return f"connection process {self._spec.name} on {self._node or 'no node yet'}, {len(self._leases)} leases"


class LeaseBarrier(GenServer):
    """Delays the shutdown of connection processes until their leases are returned."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, owners: Ref[DynamicSupervisor]) -> None:
        """`owners` is the supervisor of the connection processes' owners."""
        self._owners = owners

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - the same for each
        """Wait until all owners have ended, at most as long as leases have to be returned."""
        try:
            async with asyncio.timeout(_LEASE_RETURN_TIMEOUT):
                for each in await which_children(self._owners):
                    await wait_down(each.pid, None)
        except (TimeoutError, ProcessExited):
            return  # leases that are not returned by now end with the process


class ProcessLease(GenServer):
    """An upstream's lease on its connection process, as a child in its tree: it ends when that process does, so that the supervisor counts it."""

    def __init__(self, process: ConnectionProcessRef) -> None:
        self._connection_process = process
        self._watch: Monitor

    def init(self) -> Continue:
        """Return at once: to start a process takes time, and the upstream's other children need not wait."""
        return Continue(None)

    async def handle_continue(self, token: Any = None) -> Stop | None:  # noqa: ARG002 - there is one only
        """Take the lease, or try again later where no machine fits."""
        try:
            lease = await self._connection_process.acquire()
        except ActorError as error:
            if not _is_without_machine(error):
                return Stop(Crash(error))
            send_after(_PAUSE, self.pid, _TRY_AGAIN)
            return None
        self._watch = monitor(lease.owner)
        return None

    async def handle_info(self, message: Any) -> Stop | None:
        """The process has ended, or a machine may fit now."""
        match message:
            case Down():
                return Stop(
                    message.reason if isinstance(message.reason, Crash) else Crash(ProcessExited(message.reason))
                )
            case _ if message is _TRY_AGAIN:
                return await self.handle_continue()
            case _:
                super().handle_info(message)
                return None


def _is_without_machine(error: BaseException | None) -> bool:
    match error:
        case NothingFits():
            return True
        case StartFailed(reason=Crash(error=cause)):
            return _is_without_machine(cause)
        case _:
            return False
