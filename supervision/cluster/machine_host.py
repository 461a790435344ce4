"""The landlord of a machine that takes nodes of others: which nodes have a place there, and what becomes of them.

Applications ask it for a place before they have Thespian put a process there, and are told when there is one, and how it ended. A node that
came without a place is ended, and so is one whose application is gone or cannot be reached any more. When it dies, their supervisor has the
machine's engine begin anew, and no node is left.
"""

from __future__ import annotations

import logging
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.behaviours.refs import Ref
from greenroom.supervision.behaviours.replies import Reject
from greenroom.supervision.kernel.api import demonitor, monitor, send_after
from greenroom.supervision.kernel.process_lookup import self_pid
from greenroom.supervision.kernel.process_messages import Down

from .daemon_protocol import (
    HostedNodeEnded,
    HostedNodeStarted,
    NodeRefused,
    NodeReleased,
    ProcessForked,
    ProcessGone,
    SignalProcess,
    SystemReady,
    SystemRenewed,
    VersionMismatch,
)
from .machines import version_mismatch
from .node_engine import NodeEngine
from .node_records import ScheduledCall

if TYPE_CHECKING:
    from greenroom.supervision.kernel.links import Monitor
    from greenroom.supervision.kernel.process_messages import Pid

    from .machines import Machine

log = logging.getLogger("greenroom.machine")

_PATIENCE: Final = 60.0
"""How long a place is kept for a process that does not come."""
_AGAIN: Final = 5.0
"""A machine that is to register anew twice within so many seconds has a new Thespian system made."""


@dataclass(eq=False, slots=True)
class _HostedNode:
    """One node that has a place."""

    name: str
    owner: Pid
    watch: Monitor
    os_pid: int = 0


class MachineHost(GenServer):
    """One for each machine."""

    def __init__(self, engine: Ref[NodeEngine]) -> None:
        """`engine` is the machine's own."""
        self._engine = engine
        self._hosted: dict[str, _HostedNode] = {}
        self._memberships: dict[Monitor, Pid] = {}
        self._nudged = -_AGAIN

    async def init(self) -> None:
        """Have the machine join, and hear of the nodes that were not started here."""
        self._me: Ref[MachineHost] = Ref(self_pid())
        self._machine, self._system = await self._engine.within(None).call(NodeEngine.accept_foreign_nodes, self._me)
        log.info("machine %s takes nodes", self._machine)

    # --- for applications

    def register_application(self, other: Machine, membership: Pid) -> tuple[Pid, Machine, str]:
        """An application wants to place nodes here: this landlord, its machine, and that machine's Thespian system. Raises `VersionMismatch`."""
        wrong = version_mismatch(other, self._machine)
        if wrong is not None:
            log.error("%s", wrong)
            raise Reject(VersionMismatch(wrong))
        if membership not in self._memberships.values():
            self._memberships[monitor(membership)] = membership
        return self._me.pid, self._machine, self._system

    def reserve(self, name: str, owner: Pid) -> None:
        """Keep a place for that node, which `owner` is told of. Raises `NodeRefused`."""
        machine = self._machine
        if name in self._hosted:
            raise Reject(
                NodeRefused(f"machine {machine.name} has a node called {name} already: give each a name of its own")
            )
        if machine.room is not None and len(self._hosted) >= machine.room:
            raise Reject(NodeRefused(f"machine {machine.name} takes {machine.room} nodes, and has as many"))
        hosted = self._hosted[name] = _HostedNode(name, owner, monitor(owner))
        send_after(_PATIENCE, self._me, ScheduledCall(self._start_timed_out, (hosted,)))

    def release(self, name: str) -> None:
        """It is not to come after all; if it has, it is ended."""
        hosted = self._hosted.get(name)
        if hosted is not None:
            self._end_node(hosted)

    def rejoin(self) -> None:
        """We are not in the convention any more, as an application sees it, and it can be reached again."""
        now = self._otp_process.node.loop.time()
        again, self._nudged = now - self._nudged < _AGAIN, now
        self._engine.cast(NodeEngine.rejoin, anew=again)

    def hosted_nodes(self) -> dict[str, int]:
        """The nodes that have a place here, with the pids of their processes; 0 of one that has not come yet."""
        return {hosted.name: hosted.os_pid for hosted in self._hosted.values()}

    # --- what it is told

    def handle_info(self, message: Any) -> None:
        """By the engine, by monitors and by the clock."""
        match message:
            case ProcessForked():
                self._on_forked(message)
            case SignalProcess():
                self._engine.cast(NodeEngine.signal_foreign_node, message.name, message.signal)
            case NodeReleased():
                self.release(message.name)
            case ProcessGone():
                hosted = self._hosted.pop(message.name, None)
                if hosted is not None:
                    demonitor(hosted.watch, flush=True)
                    Ref[Any](hosted.owner).send(HostedNodeEnded(message.name, message.status, message.words))
            case SystemReady():
                self._system = message.system
                for membership in self._memberships.values():
                    Ref[Any](membership).send(SystemRenewed(self._machine.id, message.system))
            case Down():
                self._memberships.pop(message.ref, None)
                for hosted in [each for each in self._hosted.values() if each.watch is message.ref]:
                    self._end_node(hosted)
            case ScheduledCall():
                message.do(*message.args)
            case _:
                super().handle_info(message)

    def _on_forked(self, born: ProcessForked) -> None:
        hosted = self._hosted.get(born.name)
        if hosted is None:
            log.warning("node %s came without a place, and is ended", born.name)
            self._engine.cast(NodeEngine.signal_foreign_node, born.name, signal.SIGKILL)
            return
        hosted.os_pid = born.pid
        Ref[Any](hosted.owner).send(HostedNodeStarted(born.name, born.pid))

    def _start_timed_out(self, hosted: _HostedNode) -> None:
        if self._hosted.get(hosted.name) is hosted and not hosted.os_pid:
            self._end_node(hosted)

    def _end_node(self, hosted: _HostedNode) -> None:
        """Its place is gone at once when there is no process; else when that has ended."""
        if hosted.os_pid:
            self._engine.cast(NodeEngine.signal_foreign_node, hosted.name, signal.SIGKILL)
        else:
            del self._hosted[hosted.name]
            demonitor(hosted.watch, flush=True)
