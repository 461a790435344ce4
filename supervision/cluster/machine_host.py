"""The process of a machine that hosts nodes of other machines' applications: it keeps their places, and kills nodes without an owner.

Applications call it to reserve a place before Thespian makes a process here, and get a message when the process was made and when it ended. A node without a
reserved place is killed, and so is one whose application has gone or cannot be reached. When the machine host dies, its supervisor restarts the machine's engine
with it, and no hosted node is left.
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
"""How long a place is reserved for a process that does not come."""
_AGAIN: Final = 5.0
"""When the machine has to register again within so many seconds, it gets a new Thespian system instead."""


@dataclass(eq=False, slots=True)
class _HostedNode:
    """A node with a reserved place."""

    name: str
    owner: Pid
    watch: Monitor
    os_pid: int = 0


class MachineHost(GenServer):
    """One per machine."""

    def __init__(self, engine: Ref[NodeEngine]) -> None:
        """`engine` is the machine's own."""
        self._engine = engine
        self._hosted: dict[str, _HostedNode] = {}
        self._memberships: dict[Monitor, Pid] = {}
        self._nudged = -_AGAIN

    async def init(self) -> None:
        """Join the convention, and get the events of nodes that other machines start here."""
        self._me: Ref[MachineHost] = Ref(self_pid())
        self._machine, self._system = await self._engine.within(None).call(NodeEngine.accept_foreign_nodes, self._me)
        log.info("machine %s takes nodes", self._machine)

    # --- called by applications

    def register_application(self, other: Machine, membership: Pid) -> tuple[Pid, Machine, str]:
        """Register an application that may place nodes here; returns this process, its machine and its Thespian system. Raises `VersionMismatch`."""
        wrong = version_mismatch(other, self._machine)
        if wrong is not None:
            log.error("%s", wrong)
            raise Reject(VersionMismatch(wrong))
        if membership not in self._memberships.values():
            self._memberships[monitor(membership)] = membership
        return self._me.pid, self._machine, self._system

    def reserve(self, name: str, owner: Pid) -> None:
        """Reserve a place for a node; `owner` gets its events. Raises `NodeRefused`."""
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
        """Give a place up; its process, if there is one, is killed."""
        hosted = self._hosted.get(name)
        if hosted is not None:
            self._end_node(hosted)

    def rejoin(self) -> None:
        """An application can reach this machine, but does not find it in the convention: register again."""
        now = self._otp_process.node.loop.time()
        again, self._nudged = now - self._nudged < _AGAIN, now
        self._engine.cast(NodeEngine.rejoin, anew=again)

    def hosted_nodes(self) -> dict[str, int]:
        """The nodes with a place here, with the pids of their processes; 0 for one that has not started yet."""
        return {hosted.name: hosted.os_pid for hosted in self._hosted.values()}

    # --- messages

    def handle_info(self, message: Any) -> None:
        """Dispatch a message of the engine, a monitor or a timer."""
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
            log.warning("node %s has no reserved place here, and is killed", born.name)
            self._engine.cast(NodeEngine.signal_foreign_node, born.name, signal.SIGKILL)
            return
        hosted.os_pid = born.pid
        Ref[Any](hosted.owner).send(HostedNodeStarted(born.name, born.pid))

    def _start_timed_out(self, hosted: _HostedNode) -> None:
        if self._hosted.get(hosted.name) is hosted and not hosted.os_pid:
            self._end_node(hosted)

    def _end_node(self, hosted: _HostedNode) -> None:
        """Free the place: at once when there is no process, else when the killed process has ended."""
        if hosted.os_pid:
            self._engine.cast(NodeEngine.signal_foreign_node, hosted.name, signal.SIGKILL)
        else:
            del self._hosted[hosted.name]
            demonitor(hosted.watch, flush=True)
