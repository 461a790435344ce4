"""The engine of a cluster: a process of the application's node that owns the daemon and a record of every node started through it.

`NodeOwner`s call it to start and to end nodes. It gets messages from the daemon, from the links, from the nodes themselves, from the membership and from
machine hosts. The first request starts the daemon. The engine ends when the daemon does: waiting callers get the reason, the operating system's kernel kills
everything below the daemon, and the engine's supervisor starts another engine. The engine also kills the process of a node whose owner has gone, or whose
link has gone silent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.errors import ConfigError
from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.behaviours.refs import Ref
from greenroom.supervision.behaviours.replies import Reject, Stop, later
from greenroom.supervision.kernel.api import demonitor, monitor, send_after
from greenroom.supervision.kernel.process_lookup import self_pid
from greenroom.supervision.kernel.process_messages import Crash, Down

from . import bootstrap, os_processes
from . import daemon_protocol as protocol
from .bootstrap import NodeImportFailed, NodeOutput, NodeReady
from .daemon_handle import DaemonHandle
from .home_links import key_of_home, links_of_home
from .machines import NODE, SYSTEM, Machine, capabilities_text, check_capabilities, local_versions, meets_requirements
from .node_records import (
    EngineFailed,
    NodeFailed,
    NodeProcessEnded,
    NodeRecord,
    NodeStarted,
    ProcessEnding,
    ScheduledCall,
)
from .peers import NodeDown, NodeUp

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision.behaviours.replies import Caller
    from greenroom.supervision.kernel.process_messages import ExitReason, Pid

    from .cluster_settings import ClusterSettings, NodeSpec
    from .machines import Capability

log = logging.getLogger("greenroom.cluster")

_BEGINNING: Final = 30.0
_PING: Final = 2.0
_PATIENCE: Final = 10.0
"""How long the daemon may take to answer a ping before it counts as hung."""
_STOPPING: Final = 5.0
_UNTOLD: Final = 0.3
"""After a node's link is gone: how long to wait for the report of its end, before its process is killed."""
_TERM: Final = 0.5
_AGAIN: Final = 0.3


class NodeEngine(GenServer):
    """One per cluster."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self._daemon: DaemonHandle | None = None
        self._records: dict[str, NodeRecord] = {}
        self._pings = 0
        self._answered = 0
        self._why = ""
        self.parts: dict[str, int] = {}
        self.port = 0
        self._membership: Ref[Any] | None = None
        self._machine_host: Ref[Any] | None = None
        self._joined: dict[str, protocol.MachineJoined] = {}
        self._foreign_nodes: set[str] = set()
        self._system = ""
        self._until_ready: list[tuple[Caller[Any], Callable[[], Any]]] = []

    def init(self) -> None:
        """Watch the links. The daemon is started by the first request."""
        self._me: Ref[NodeEngine] = Ref(self_pid())
        self._peers = links_of_home()
        self._peers.watch(self._me)
        self._otp_process.add_exit_waiter(self)

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """Have the daemon end all nodes and itself; kill it when it does not."""
        self._peers.unwatch(self._me)
        daemon = self._daemon
        if daemon is None:
            return
        if not daemon.over:
            daemon.send(protocol.FinishDaemon())
            await _ended_within(_STOPPING, daemon)
            daemon.release()
        if not await _ended_within(_STOPPING, daemon):
            daemon.kill()
            await _ended_within(_STOPPING, daemon)

    # --- called by node owners

    def start_node_process(self, host: Pid, name: str, spec: NodeSpec) -> NodeStarted:
        """Start a process for the node of `host`, and reply when the node is ready. Raises `NodeFailed`, `EngineFailed`."""
        if name in self._records:
            raise Reject(NodeFailed(name, "a node of that name exists already"))
        self._check_requirements(spec)
        self._ensure_daemon()
        record = self._records[name] = NodeRecord(name, spec, host, monitor(host), self.caller)
        self._schedule(spec.start_timeout, self._start_timed_out, record)
        self._place_or_start(record)
        result: NodeStarted = later()
        return result

    def end_node(self, name: str) -> ProcessEnding:
        """End a node: in order, then by SIGTERM, then by SIGKILL. Replies with how it ended."""
        record = self._records.get(name)
        if record is None:
            return ProcessEnding(lost=True, asked=True)
        record.ending.append(self.caller)
        record.asked = True
        if record.stopper is None:
            self._signal(record, signal.SIGKILL)
        else:
            Ref(record.stopper).send(bootstrap.LEAVE)
            patience = record.spec.stop_timeout
            self._schedule(patience, self._signal, record, signal.SIGTERM)
            self._schedule(patience + _TERM, self._signal, record, signal.SIGKILL)
        result: ProcessEnding = later()
        return result

    def running(self) -> dict[str, int]:
        """The pids of the running processes: the daemon's parts, and the nodes by name."""
        nodes = {record.name: record.pid for record in self._records.values() if record.pid}
        return {**self.parts, **nodes}

    def _ensure_daemon(self) -> DaemonHandle:
        """The daemon, started if there is none yet."""
        daemon = self._daemon
        if daemon is None:
            daemon = self._daemon = DaemonHandle(self._me.send)
            settings = self.settings
            daemon.send(
                protocol.StartDaemon(
                    key_of_home(),
                    settings.bind,
                    settings.port or (settings.port_of_leader if self._machine_host is None else 0),
                    list(settings.preload),
                    self._this_machine.announcement(),
                    settings.intensity,
                    settings.period,
                    settings.convention or "",
                )
            )
            self.parts = {"daemon": daemon.pid}
            send_after(_BEGINNING, self._me, ScheduledCall(self._check_daemon_started))
        if daemon.over:
            raise EngineFailed("the daemon, which starts processes, has just ended: try again")
        return daemon

    @cached_property
    def _this_machine(self) -> Machine:
        """This machine as it announces itself to others."""
        settings = self.settings
        greenroom, python = local_versions()
        return Machine(
            name=settings.machine,
            id=secrets.token_hex(16),
            addresses=tuple(each for each in self._peers.addresses if each.startswith("tcp:")),
            capabilities=check_capabilities(settings.capabilities),
            room=settings.room,
            greenroom=greenroom,
            python=python,
        )

    # --- called by the membership, and by this machine's machine host

    def join(self, membership: Ref[Any]) -> tuple[Machine, list[protocol.MachineJoined]]:
        """Join the convention: returns this machine and the other members. `membership` gets the later changes, and the placement requests."""
        self._membership = membership
        for record in self._records.values():
            if record.is_placing:  # the membership that was asked to place it is gone
                self._place_or_start(record)
        result: tuple[Machine, list[protocol.MachineJoined]] = self._when_ready(
            lambda: (self._this_machine, list(self._joined.values()))
        )
        return result

    def accept_foreign_nodes(self, machine_host: Ref[Any]) -> tuple[Machine, str]:
        """Join the convention and accept nodes of other applications. `machine_host` gets the events of their processes."""
        self._machine_host = machine_host
        for name in self._foreign_nodes:  # nodes of a former machine host: no application can be told of them any more
            self.signal_foreign_node(name, signal.SIGKILL)
        result: tuple[Machine, str] = self._when_ready(lambda: (self._this_machine, self._system))
        return result

    def _when_ready(self, answer: Callable[[], Any]) -> Any:
        self._ensure_daemon()
        if self._system:
            return answer()
        self._until_ready.append((self.caller, answer))
        return later()

    def signal_foreign_node(self, name: str, number: int) -> None:
        """Send a signal to the process of another machine's node."""
        self._ensure_daemon().send(protocol.SignalProcess(name, number))

    def rejoin(self, *, anew: bool) -> None:
        """Register with the convention again; `anew` with another Thespian system."""
        self._ensure_daemon().send(protocol.RejoinConvention(anew))

    # --- placement
    # A node on another machine has a record like any other. Signals to its process go through that machine's machine host, which also reports its end. When that
    # machine cannot be reached any more, its nodes count as lost.

    def _check_requirements(self, spec: NodeSpec) -> None:
        """Refuse requirements that this machine does not meet, when there are no others."""
        requires = spec.requires
        if self._membership is None and requires and not meets_requirements(self._this_machine.offers, requires):
            raise Reject(
                ConfigError(
                    f"a node requires {capabilities_text(requires)}, which this machine does not have: {self._this_machine}; to have it placed on "
                    "another one, set `convention` in the cluster's settings"
                )
            )

    def _place_or_start(self, record: NodeRecord) -> None:
        """Start its process here; if it has requirements, ask the membership for a machine first."""
        requires = dict(record.spec.requires)
        if requires and self._membership is not None:
            record.is_placing = True
            local = sum(each.machine_host is None and not each.is_placing for each in self._records.values())
            self._membership.send(protocol.PlacementRequest(record.name, requires, local))
        else:
            self._start_process(record, None, {})

    def _start_process(self, record: NodeRecord, machine: Machine | None, requires: dict[str, Capability]) -> None:
        """Have the daemon start its process; with `requires`, on the machine that meets them, which is `machine`."""
        try:
            told = bootstrap.boot_for(
                record.name, record.spec, self.settings, self._peers.addresses, self._me.pid, machine
            )
            boot = bootstrap.pack(told)
        except ValueError as error:
            record.why = str(error)
            self._node_ended(record, ProcessEnding(lost=True))
        else:
            self._ensure_daemon().send(protocol.StartProcess(record.name, boot, requires))

    def _on_placed(self, record: NodeRecord | None, placed: protocol.NodePlaced) -> None:
        machine_host: Ref[Any] | None = None if placed.machine_host is None else Ref(placed.machine_host)
        if record is None or not record.is_placing:  # it was cancelled
            if machine_host is not None:
                machine_host.send(protocol.NodeReleased(placed.name))
            self._report_released(placed.name)
            return
        record.is_placing = False
        if machine_host is None:
            self._start_process(record, None, {})
        else:
            record.machine_host, record.host_monitor = machine_host, monitor(machine_host)
            self._start_process(record, placed.machine, {SYSTEM: placed.system})

    def _place_again(self, record: NodeRecord) -> None:
        """The chosen machine has another Thespian system by now, or none: no process was made, so place the node again."""
        self._release_host(record)
        self._report_released(record.name)
        record.is_placing = True
        self._schedule(_AGAIN, self._retry_placement, record)

    def _retry_placement(self, record: NodeRecord) -> None:
        if self._records.get(record.name) is record and record.is_placing:
            self._place_or_start(record)

    def _release_host(self, record: NodeRecord) -> None:
        """Stop watching the machine host, and release the place there if no process has started."""
        if record.host_monitor is not None:
            demonitor(record.host_monitor, flush=True)
        if record.machine_host is not None and not record.pid:
            record.machine_host.send(protocol.NodeReleased(record.name))
        record.machine_host = record.host_monitor = None

    def _report_released(self, name: str) -> None:
        if self._membership is not None:
            self._membership.send(protocol.NodeReleased(name))

    # --- messages

    def handle_info(self, message: Any) -> Stop | None:
        """Dispatch a message of the daemon, a node, a link, a monitor or a timer."""
        match message:
            case None:
                return self._daemon_ended()
            case protocol.DaemonMessage():
                self._on_daemon_message(message)
            case NodeReady() | NodeImportFailed() | NodeOutput():
                self._on_node_message(message)
            case NodeDown():
                record = self._records.get(message.name)
                if record is not None and not record.timers:
                    self._schedule(_UNTOLD, self._link_lost, record)
            case (
                protocol.NodePlaced()
                | protocol.PlacementFailed()
                | protocol.HostedNodeStarted()
                | protocol.HostedNodeEnded()
            ):
                self._on_placement_message(message)
            case Down():
                self._on_down(message)
            case ScheduledCall():
                message.do(*message.args)
            case NodeUp():
                pass
            case _:
                return super().handle_info(message)  # type: ignore[return-value]  # it reports, and returns None
        return None

    def _on_daemon_message(self, message: protocol.DaemonMessage) -> None:
        """A message of the daemon."""
        match message:
            case protocol.SystemReady():
                self._on_ready(message)
            case protocol.MachineJoined() | protocol.MachineAbsent():
                if isinstance(message, protocol.MachineJoined):
                    self._joined[message.system] = message
                else:
                    self._joined.pop(message.system, None)
                if self._membership is not None:
                    self._membership.send(message)
            case protocol.SystemReplaced():
                log.warning(
                    "the processes that start nodes were replaced in %.0f ms, since the %s had ended; running nodes go on",
                    message.took * 1000,
                    message.part,
                )
                # Requests that were forwarded to another machine may have been lost with the former system: place those nodes again.
                for record in tuple(self._records.values()):
                    if record.machine_host is not None and not record.pid:
                        self._place_again(record)
            case protocol.LogNote():
                log.log(message.level, "%s", message.text)
                if message.node in self._records:
                    self._records[message.node].words = message.text
            case protocol.DaemonFailed():
                self._why = message.why
            case protocol.DaemonPong():
                self._answered = message.number
            case protocol.ProcessForked() | protocol.ProcessGone() | protocol.ProcessNotStarted():
                self._on_process_message(message, self._records.get(message.name))
            case protocol.StartForwarded():
                pass  # its machine host reports what becomes of it
            case _:
                log.error("unexpected message from the daemon: %r", message)

    def _on_ready(self, ready: protocol.SystemReady) -> None:
        self._system = ready.system
        if self._machine_host is not None:
            self._machine_host.send(ready)
        waiting, self._until_ready = self._until_ready, []
        for caller, answer in waiting:
            caller.reply(answer())
        if not self.port:
            self._ping_daemon()
        self.parts, self.port = ready.parts, ready.port
        log.info("processes can be started: %s, at port %d, after %.0f ms", ready.parts, ready.port, ready.took * 1000)

    def _on_process_message(
        self,
        message: protocol.ProcessForked | protocol.ProcessGone | protocol.ProcessNotStarted,
        record: NodeRecord | None,
    ) -> None:
        if record is None:
            if isinstance(message, protocol.ProcessNotStarted):
                return
            # A node of another machine's application, running here.
            (self._foreign_nodes.add if isinstance(message, protocol.ProcessForked) else self._foreign_nodes.discard)(
                message.name
            )
            if self._machine_host is not None:
                self._machine_host.send(message)
            return
        match message:
            case protocol.ProcessForked():
                record.pid = message.pid
                record.pidfd = os_processes.open_pidfd(message.pid)
                if record.asked:
                    self._signal(record, signal.SIGKILL)
            case protocol.ProcessGone():
                self._node_ended(record, record.ended(message.status, message.words))
            case protocol.ProcessNotStarted() if record.machine_host is not None:
                self._place_again(record)
            case protocol.ProcessNotStarted():
                record.why = message.why
                self._node_ended(record, ProcessEnding(lost=True))

    def _on_placement_message(
        self,
        message: protocol.NodePlaced | protocol.PlacementFailed | protocol.HostedNodeStarted | protocol.HostedNodeEnded,
    ) -> None:
        """A message of the membership, or of another machine's machine host."""
        record = self._records.get(message.name)
        match message:
            case protocol.NodePlaced():
                self._on_placed(record, message)
            case protocol.PlacementFailed() if record is not None:
                if record.starting is not None:
                    record.starting.fail(message.error)
                    record.starting = None
                self._node_ended(record, ProcessEnding(lost=True, asked=True))
            case protocol.HostedNodeStarted() if record is not None:
                record.pid = message.os_pid
            case protocol.HostedNodeEnded() if record is not None:
                self._node_ended(record, record.ended(message.status, message.words))
            case _:
                pass

    def _on_node_message(self, message: NodeReady | NodeImportFailed | NodeOutput) -> None:
        """A message of a node."""
        record = self._records.get(message.name)
        if record is None:
            return
        match message:
            case NodeReady():
                record.stopper = message.stopper
                if record.starting is not None:
                    self._forget_timers(record)
                    caller, record.starting = record.starting, None
                    caller.reply(NodeStarted(message.os_pid, message.stopper))
            case NodeImportFailed():
                record.why = message.why
                if record.machine_host is not None:  # the other machine may have other code installed
                    machine = record.machine_host.pid.node.removeprefix(NODE)
                    record.why = (
                        f"machine {machine} could not import what it needs; the application's modules have to be installed "
                        f"there, or be where the `--path` of its member program says: {message.why.strip()}"
                    )
                self._signal(record, signal.SIGKILL)
            case NodeOutput():
                for logger, level, line, data in message.lines:
                    extra = {"node": message.name} if data is None else {"node": message.name, "greenroom": data}
                    logging.getLogger(logger).log(level, "%s", line, extra=extra)
                if message.dropped:
                    log.warning(
                        "node %s: %d lines of output were dropped, since they came faster than they could be sent",
                        message.name,
                        message.dropped,
                    )

    def _on_down(self, down: Down) -> None:
        """The owner of a node has ended: kill the node. Or a machine host has: the nodes on that machine are lost, and how they ended is unknown."""
        for record in tuple(self._records.values()):
            if record.watch is down.ref:
                record.asked = True
                self._signal(record, signal.SIGKILL)
            elif record.host_monitor is down.ref:
                record.why = f"its machine was lost: {down.reason}"
                self._node_ended(record, ProcessEnding(lost=True, asked=record.asked))
                # If the node lives on after all, it stops when its link ends.
                self._peers.disconnect(record.name, "its machine was lost")

    # --- timers

    def _schedule(self, seconds: float, do: Callable[..., object], record: NodeRecord, *more: Any) -> None:
        record.timers.append(send_after(seconds, self._me, ScheduledCall(do, (record, *more))))

    def _start_timed_out(self, record: NodeRecord) -> None:
        if record.starting is not None:
            record.why = f"it was not ready within {record.spec.start_timeout:g} s"
            self._signal(record, signal.SIGKILL)

    def _link_lost(self, record: NodeRecord) -> None:
        """The link is gone, and no end was reported: kill the process."""
        record.hung = record.machine_host is not None or not os_processes.has_ended(record.pid, record.pidfd)
        self._signal(record, signal.SIGKILL)

    def _check_daemon_started(self) -> None:
        """Kill a daemon that has not reported in time that it runs."""
        if self._daemon is not None and not self.port:
            self._why = f"the daemon had not begun after {_BEGINNING:g} s, and was killed"
            self._daemon.kill()

    def _ping_daemon(self) -> None:
        """Ping the daemon, and kill it when it has not answered for too long."""
        daemon = self._daemon
        if daemon is None or daemon.over:
            return
        if (self._pings - self._answered) * _PING > _PATIENCE:
            self._why = f"the daemon did not answer for {_PATIENCE:g} s, and was killed"
            daemon.kill()
            return
        self._pings += 1
        daemon.send(protocol.DaemonPing(self._pings))
        send_after(_PING, self._me, ScheduledCall(self._ping_daemon))

    # --- ends

    def _signal(self, record: NodeRecord, number: int) -> None:
        """Send a signal directly where there is a pidfd, else through the daemon, which knows whether the process exists yet."""
        if self._records.get(record.name) is not record:
            return
        if record.is_placing or (record.machine_host is not None and not record.pid):  # there is no process yet
            self._node_ended(record, ProcessEnding(lost=True, asked=record.asked))
        elif record.machine_host is not None:
            record.machine_host.send(protocol.SignalProcess(record.name, number))
        elif record.pidfd is not None:
            os_processes.send_signal(number, record.pid, record.pidfd)
        elif self._daemon is not None:
            self._daemon.send(protocol.SignalProcess(record.name, number))

    def _node_ended(self, record: NodeRecord, ending: ProcessEnding) -> None:
        del self._records[record.name]
        self._release_host(record)
        self._report_released(record.name)
        self._peers.forget(record.name)
        self._forget_timers(record)
        self._close_pidfd(record)
        demonitor(record.watch, flush=True)
        if record.starting is not None:
            record.starting.fail(NodeFailed(record.name, record.why or f"its process {ending}"))
        else:
            Ref(record.host).send(NodeProcessEnded(ending))
        for caller in record.ending:
            caller.reply(ending)

    def _forget_timers(self, record: NodeRecord) -> None:
        for timer in record.timers:
            timer.cancel()
        record.timers.clear()

    def _close_pidfd(self, record: NodeRecord) -> None:
        if record.pidfd is not None:
            os.close(record.pidfd)
            record.pidfd = None

    def _daemon_ended(self) -> Stop:
        daemon = self._daemon
        assert daemon is not None
        how = "ended" if daemon.status is None else str(ProcessEnding.of_status(daemon.status))
        why = self._why or f"the daemon {how}. {daemon.error_output()}".strip()
        return Stop(Crash(EngineFailed(why)))

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """Release everything. Called also when the engine was killed and `terminate` could not run."""
        for record in self._records.values():
            self._close_pidfd(record)
        if self._daemon is not None:
            self._daemon.release()
            self._daemon.error_output()


async def _ended_within(seconds: float, daemon: DaemonHandle) -> bool:
    try:
        await asyncio.wait_for(daemon.ended.wait(), seconds)
    except TimeoutError:
        return False
    return True
