"""The Thespian system that makes processes for nodes: the fork server (an actor), the actor in each node's process, and starting all of it.

The fork server is a Thespian actor with one thread and no secrets. It takes commands from the daemon over an inherited socket, forks a process for each node,
and reports how it ended. It reports its own errors there as well: an exception that reached Thespian would make it deliver the same message a second time.
When the fork server dies, the nodes' processes go on: the daemon adopts them, and starts a new system.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import select
import signal
import socket
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

from . import daemon_protocol as protocol
from . import os_processes
from . import thespian_patches as thespian
from .bootstrap import InheritedState, send_log_line
from .daemon import DaemonChild
from .machines import ANNOUNCED, ID, SYSTEM
from .node_main import become_node, stop_node
from .node_records import EngineFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .daemon_protocol import StartDaemon

BEGIN: Final = "begin"
"""The first message to the fork server, sent through Thespian by the daemon."""
_NUDGE: Final = "greenroom.nudge"
"""A capability without a meaning: Thespian registers with the convention again whenever a capability changes."""
_REMEMBERED: Final = 256


class ForkServer(thespian.Actor):
    """One per system."""

    def __init__(self) -> None:
        """It waits for `BEGIN`."""
        super().__init__()
        self._channel: protocol.DaemonSocket | None = None
        self._names: dict[int, str] = {}
        self._forwarded: dict[bytes, str] = {}
        self._reregistrations = 0

    def receiveMessage(self, message: object, sender: object) -> object:  # noqa: ARG002, N802 - Thespian's words
        """Handle a message of Thespian, or read the daemon's commands when their socket, which Thespian watches, is readable."""
        try:
            if self._channel is None:
                if message == BEGIN:
                    self._begin()
            elif isinstance(message, thespian.WatchMessage):
                for command in self._channel.take():
                    self._handle(self._channel, command)
            else:
                self._on_thespian_message(self._channel, message)
        except BaseException:  # noqa: BLE001 - it is logged; Thespian would deliver the message again
            send_log_line(
                logging.ERROR, f"the fork server failed at {type(message).__name__}:\n{traceback.format_exc()}"
            )
        if self._channel is None or self._channel.over:
            return None
        return thespian.ThespianWatch([self._channel.fileno()])

    def _begin(self) -> None:
        assert InheritedState.fork_server is not None
        thespian.restore_logging()
        os_processes.set_process_name("gr-forkserver")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)  # the daemon alone decides when it ends
        thespian.PatchCallbacks.on_exit = self._on_exit
        self._channel = protocol.DaemonSocket(InheritedState.fork_server)
        os.register_at_fork(after_in_child=_forget)
        self._channel.send(protocol.ForkServerReady(os.getpid(), os.getppid()))
        self.notifyOnSystemRegistrationChanges(True)  # noqa: FBT003 - Thespian's word

    def _on_thespian_message(self, daemon: protocol.DaemonSocket, message: object) -> None:
        """Report machines that join or leave the convention, and a forwarded request that no machine took."""
        if isinstance(message, thespian.ActorSystemConventionUpdate):
            capabilities = message.remoteCapabilities
            machine, announced, system = (capabilities.get(each) for each in (ID, ANNOUNCED, SYSTEM))
            if isinstance(machine, str) and isinstance(announced, str) and isinstance(system, str):
                here = message.remoteAdded
                daemon.send(
                    protocol.MachineJoined(machine, announced, system)
                    if here
                    else protocol.MachineAbsent(machine, system)
                )
        elif isinstance(message, thespian.PoisonMessage) and (name := self._forwarded.pop(message.poisonMessage, None)):
            why = "no machine of the convention took it: the chosen machine has left the convention, or could not make a process"
            daemon.send(protocol.ProcessNotStarted(name, why))

    def _handle(self, daemon: protocol.DaemonSocket, command: protocol.DaemonMessage) -> None:
        match command:
            case protocol.StartProcess():
                try:
                    pid = self._start_process(command)
                except Exception as error:  # noqa: BLE001 - reported to the daemon, which asked for it
                    daemon.send(protocol.ProcessNotStarted(command.name, f"{type(error).__name__}: {error}"))
                else:
                    daemon.send(
                        protocol.StartForwarded(command.name)
                        if pid is None
                        else protocol.ProcessForked(command.name, pid)
                    )
            case protocol.SignalProcess():
                for pid, name in self._names.items():
                    if name == command.name:
                        os_processes.send_signal(command.signal, pid)
            case protocol.RejoinConvention():
                self._reregistrations += 1
                self.updateCapability(_NUDGE, self._reregistrations)
            case _:
                send_log_line(logging.ERROR, f"unexpected message to the fork server: {command!r}")

    def _start_process(self, command: protocol.StartProcess) -> int | None:
        manager: Any = self._myRef
        before = {child.childProc.pid for child in getattr(manager, "_child_procs", ())}
        address = self.createActor(NodeActor, dict(command.requires) or None)
        children = getattr(manager, "_child_procs", ())  # Thespian tells it nowhere else
        made = [child.childProc.pid for child in children if child.childProc.pid not in before]
        self.send(address, command.boot)
        if made:
            self._names[made[0]] = command.name
            return int(made[0])
        if not command.requires:
            raise RuntimeError("Thespian made no process")
        while len(self._forwarded) >= _REMEMBERED:
            del self._forwarded[next(iter(self._forwarded))]
        self._forwarded[command.boot] = command.name
        return None

    def _on_exit(self, pid: int, status: int | None) -> None:
        # Called once, when the process is reaped. Thespian's own `ChildActorExited` may come several times for one end.
        name = self._names.pop(pid, None)
        if name is not None and self._channel is not None:
            self._channel.send(protocol.ProcessGone(name, pid, status))


def _forget() -> None:
    """In a node's process: close the socket of the daemon's commands."""
    thespian.PatchCallbacks.on_exit = None
    if InheritedState.fork_server is not None:
        InheritedState.fork_server.close()
        InheritedState.fork_server = None


# --- The actor that Thespian sees in a node's process. The main thread stays Thespian's; the node runs in a thread of its own.

_PATIENCE: Final = 30


class NodeActor(thespian.Actor):
    """One per node process."""

    @staticmethod
    def actorSystemCapabilityCheck(capabilities: Mapping[str, object], requires: Mapping[str, object]) -> bool:  # noqa: N802 - Thespian's name
        """Whether this is the machine that was meant."""
        return all(capabilities.get(name) == wanted for name, wanted in requires.items())

    def __init__(self) -> None:
        """Wait for the boot message. `SIGALRM` ends the process when none comes: the process that asked for this one may have died meanwhile."""
        super().__init__()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_PATIENCE)

    def receiveMessage(self, message: object, sender: object) -> None:  # noqa: ARG002, N802 - Thespian's words
        """The first message is the boot data; later ones are ignored."""
        try:
            if type(message) is bytes:
                signal.alarm(0)
                thespian.restore_logging()
                manager = self._myRef
                foreign = manager._parentAddr == manager._adminAddr  # noqa: SLF001 - Thespian tells it nowhere else
                become_node(message, manager.transport.childResetFileNumList(), foreign=foreign)
            elif isinstance(message, thespian.ActorExitRequest):
                stop_node()
        except BaseException:  # noqa: BLE001 - it is logged; Thespian would deliver the message again
            send_log_line(
                logging.ERROR, f"the process of a node failed at {type(message).__name__}:\n{traceback.format_exc()}"
            )


# --- Starting and ending one Thespian system: its admin, its logger and the fork server, on a free port, watched and killed by pid.

BASE: Final = "multiprocTCPBase"
PARTS: Final = ("admin", "logger", "forkserver")
_HELLO_SECONDS: Final = 10.0
_TRIES: Final = 3
_QUIET: Final[dict[str, object]] = {"version": 1, "root": {"level": "CRITICAL"}, "disable_existing_loggers": False}


class ThespianSystem:
    """A running system: the `ProcessSystem` of the daemon."""

    def __init__(self, begin: StartDaemon) -> None:
        """Start it. Raises `EngineFailed`; the caller kills what is left then."""
        self.id = secrets.token_hex(16)
        mine, fork_server = socket.socketpair()
        InheritedState.private.add(mine.fileno())
        self.channel = protocol.DaemonSocket(mine)
        InheritedState.fork_server = fork_server
        try:
            self._system, self.port = _start(begin, self.id)
            self._inside = thespian.transport_of(self._system)
            address = self._system.createActor("greenroom.supervision.cluster.thespian_system.ForkServer")
            self._system.tell(address, BEGIN)
            ready = self._await_fork_server()
        finally:
            InheritedState.fork_server = None
            fork_server.close()
        admin = ready.admin
        others = [
            seen.pid for seen in os_processes.all_processes().values() if seen.parent == admin and seen.pid != ready.pid
        ]
        if not others:
            raise EngineFailed(
                "Thespian's admin has no process besides the fork server, and there should be its logger"
            )
        # The logger is the admin's first child. A later one may be a node that another machine has already asked for.
        logger = min(others, key=lambda pid: (os_processes.start_tick(pid), pid))
        self.parts = [DaemonChild(*each) for each in zip(PARTS, (admin, logger, ready.pid), strict=True)]
        self.fork_server = self.parts[-1]

    def _await_fork_server(self) -> protocol.ForkServerReady:
        until = time.monotonic() + _HELLO_SECONDS
        while (left := until - time.monotonic()) > 0:
            if select.select((self.channel,), (), (), left)[0]:
                command: protocol.DaemonMessage = self.channel.next()
                if isinstance(command, protocol.ForkServerReady):
                    return command
        raise EngineFailed(f"the fork server did not come up within {_HELLO_SECONDS:g} s")

    @property
    def listener(self) -> socket.socket:
        """Thespian's listening socket in this process. No message is expected there."""
        listener: socket.socket = self._inside.socket
        return listener

    def refuse_connection(self) -> None:
        """Accept and close a connection to `listener`."""
        with contextlib.suppress(OSError):
            self.listener.accept()[0].close()

    def shutdown(self) -> None:
        """Ask Thespian to end everything. That may do nothing; the caller kills what is left."""
        with contextlib.suppress(Exception):
            self._system.shutdown()

    def forget(self) -> None:
        """Close the sockets and pidfds."""
        self.channel.sock.close()
        for part in self.parts:
            part.forget()


def _start(begin: StartDaemon, id: str) -> tuple[thespian.ActorSystem, int]:
    failure: Exception | None = None
    if begin.port:
        # On a fixed port Thespian would join any system with the same key that listens there, instead of starting one.
        thespian.free_port(begin.bind, begin.port)
    for _ in range(1 if begin.port else _TRIES):
        port = begin.port or _free_port(begin.bind)
        capabilities: dict[str, object] = {**begin.capabilities, SYSTEM: id, "Admin Port": port}
        if begin.convention:
            capabilities["Convention Address.IPv4"] = begin.convention
        try:
            return thespian.ActorSystem(BASE, capabilities, _QUIET, transientUnique=True), port
        except Exception as error:  # noqa: BLE001 - another process has taken the port in between
            failure = error
    raise EngineFailed(f"Thespian did not start at {begin.bind}: {type(failure).__name__}: {failure}") from failure


def _free_port(bind: str) -> int:
    with socket.socket() as probe:
        try:
            probe.bind((bind, 0))
        except OSError as error:
            raise EngineFailed(f"Thespian cannot listen at {bind}: {error.strerror}") from error
        return int(probe.getsockname()[1])
