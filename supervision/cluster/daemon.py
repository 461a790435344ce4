"""The daemon: the process below the application that starts the Thespian system, replaces it when a part dies, and leaves no process behind.

It is a program of its own, executed with null standard streams: it inherits nothing of the application but a socket and the death pipe. It has one thread, so
it may fork; everything below it is forked from it, so modules that it has imported need not be imported again. It is the subreaper of everything below:
processes that lose their parent become its children.

The application's engine sends it messages on the socket. When the socket or the death pipe is closed, the daemon kills everything below and exits. When
Thespian's admin, its logger or the fork server ends, it replaces all three and leaves the nodes' processes alone, which need none of those. When the daemon
itself dies, the application closes the death pipe, which kills everything below.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from . import bootstrap, crash_output, os_processes
from . import daemon_protocol as protocol
from .bootstrap import NODE_VARIABLE, InheritedState, name_of_forks, name_of_node, send_log_line
from .node_records import EngineFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .daemon_protocol import DaemonSocket, StartDaemon

PREFIX: Final = "gr-"
"""Prefix of the names of processes below a daemon; programs that a node's code executes have their own names."""
TICK: Final = 1.0 if hasattr(os, "pidfd_open") else 0.05
"""How often it polls when no descriptor is ready."""
_SILENCE: Final = 2.0
"""How long the fork server may take to report how one of its processes ended."""
_STUCK: Final = 5.0
"""How long the fork server may take to make a process."""
_SWEEP: Final = 10.0
_POLITE: Final = 0.5
_LOOK: Final = 0.005
_STRAYS: Final = 5.0
"""A process that a node's code has forked takes its name only when it first runs, so it is looked for this long after the node has ended."""
_STRAY_TICK: Final = 0.1
_NOTES: Final = 100
"""How many notes are read at a time."""


class DaemonChild:
    """One process below the daemon: a part of the system, or a node's."""

    def __init__(self, name: str, pid: int) -> None:
        self.name = name
        self.pid = pid
        self.pidfd = os_processes.open_pidfd(pid)
        self.ended_at: float | None = None
        """When the end of a node's process was noticed."""

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return os_processes.has_ended(self.pid, self.pidfd)

    def end(self, number: int) -> bool:
        """Send the process a signal. False when it is gone."""
        return os_processes.send_signal(number, self.pid, self.pidfd)

    def forget(self) -> None:
        """Close the pidfd."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


class ProcessSystem(Protocol):
    """A maker of processes for nodes, as the daemon sees it; `ThespianSystem` implements it.

    It takes messages to start and to signal processes, here or on another machine, and reports how each began and ended.
    """

    id: str
    port: int
    channel: DaemonSocket
    """The socket for those messages."""
    parts: list[DaemonChild]
    """Its own processes. When one of them ends, the whole system is replaced."""
    fork_server: DaemonChild
    """The one of them that makes the nodes' processes."""

    @property
    def listener(self) -> socket.socket:
        """Thespian's listening socket in this process. No message is expected there."""
        ...

    def refuse_connection(self) -> None:
        """Accept and close a connection to `listener`."""
        ...

    def shutdown(self) -> None:
        """Ask the system to end. That may do nothing; the caller kills what is left."""
        ...

    def forget(self) -> None:
        """Release its sockets and pidfds."""
        ...


class Daemon:
    """One per daemon process."""

    def __init__(
        self,
        application: DaemonSocket,
        begin: StartDaemon,
        death_pipe: int,
        notes: socket.socket,
        engine: Callable[[StartDaemon], ProcessSystem],
    ) -> None:
        """`engine` starts a system, or raises `EngineFailed`."""
        self._application = application
        self._begin = begin
        self._death_pipe = death_pipe
        self._notes = notes
        self._engine = engine
        self._system: ProcessSystem | None = None
        self._processes: dict[str, DaemonChild] = {}
        self._pending: dict[str, tuple[protocol.StartProcess, float]] = {}
        self._end_when_started: dict[str, int] = {}
        self._crash_memories: dict[str, int] = {}
        self._statuses: dict[int, int] = {}
        self._deaths: deque[float] = deque()
        self._recently_ended: deque[tuple[float, DaemonChild]] = deque()
        self._finished = False
        self._selector = selectors.DefaultSelector()
        InheritedState.private.add(self._selector.fileno())
        self._listen(application.fileno(), death_pipe, notes.fileno())

    def _listen(self, *descriptors: int | None) -> None:
        for descriptor in descriptors:
            if descriptor is not None:
                self._selector.register(descriptor, selectors.EVENT_READ)
                InheritedState.private.add(descriptor)
        InheritedState.private.discard(self._death_pipe)

    def _ignore(self, *descriptors: int | None) -> None:
        for descriptor in descriptors:
            if descriptor is not None:
                self._selector.unregister(descriptor)
                InheritedState.private.discard(descriptor)

    # --- the system

    def start(self) -> None:
        """Start a system. Raises `EngineFailed`, and `ApplicationGone`."""
        began = time.monotonic()
        with bootstrap.abort_when_application_ends(
            self._death_pipe
        ):  # Thespian may wait seconds for processes that have already been killed with the application
            system = self._system = self._engine(self._begin)
        self._listen(system.listener.fileno(), system.channel.fileno(), *(part.pidfd for part in system.parts))
        parts = {part.name: part.pid for part in system.parts}
        self._application.send(
            protocol.SystemReady({"daemon": os.getpid(), **parts}, system.port, time.monotonic() - began, system.id)
        )
        for name, (message, _) in self._pending.items():
            self._pending[name] = (message, time.monotonic())
            system.channel.send(message)
        self._read_fork_server(system)  # messages that came with its first one are buffered: no selector reports them

    def _replace(self, system: ProcessSystem) -> None:
        """A part of the system has ended: kill the rest, and start another. The nodes' processes are left alone."""
        ended = next(part for part in system.parts if part.ended)
        began = time.monotonic()
        with contextlib.suppress(ValueError):  # a truncated message: the fork server was killed while it wrote
            self._read_fork_server(system)  # what it has still sent
        self._system = None
        self._ignore(system.listener.fileno(), system.channel.fileno(), *(part.pidfd for part in system.parts))
        for part in system.parts:
            part.end(signal.SIGKILL)
        system.forget()
        processes = frozenset(process.pid for process in self._processes.values())
        self._sweep(lambda: os_processes.descendants(os.getpid(), processes, PREFIX))
        self._count_death(began)
        self.start()
        self._application.send(
            protocol.SystemReplaced(ended.name, self._statuses.pop(ended.pid, None), time.monotonic() - began)
        )

    def _count_death(self, now: float) -> None:
        """Count a death of the system. Raises `EngineFailed` when there are too many within the period."""
        deaths = self._deaths
        deaths.append(now)
        while now - deaths[0] > self._begin.period:
            deaths.popleft()
        if len(deaths) > self._begin.intensity:
            raise EngineFailed(
                f"the Thespian system had to be replaced {len(deaths)} times within {self._begin.period:g} s: the daemon gives up"
            )

    # --- the loop

    def run(self) -> None:
        """Serve until told to finish, or until the application is gone."""
        self._handle(self._application.take())
        while not self._finished:
            ready = {key.fd for key, _ in self._selector.select(_STRAY_TICK if self._recently_ended else TICK)}
            if self._death_pipe in ready and bootstrap.is_application_gone(self._death_pipe):
                return
            if self._application.fileno() in ready:
                self._handle(self._application.take())
                if self._application.over:
                    return
            if self._notes.fileno() in ready:
                self._read_notes()
            system = self._system
            if system is not None:
                if system.listener.fileno() in ready:
                    system.refuse_connection()
                if system.channel.fileno() in ready:
                    self._read_fork_server(system)
                if any(part.ended for part in system.parts):
                    self._replace(system)
            self._check_processes()

    def _handle(self, messages: Iterable[protocol.DaemonMessage]) -> None:
        for message in messages:
            match message:
                case protocol.StartProcess():
                    self._pending[message.name] = (message, time.monotonic())
                    if self._system is not None:
                        self._system.channel.send(message)
                case protocol.SignalProcess():
                    self._signal_process(message)
                case protocol.RejoinConvention(anew=True):
                    if self._system is not None:
                        self._system.fork_server.end(signal.SIGKILL)
                case protocol.RejoinConvention():
                    if self._system is not None:
                        self._system.channel.send(message)
                case protocol.DaemonPing():
                    self._application.send(protocol.DaemonPong(message.number))
                case protocol.FinishDaemon():
                    self._finished = True
                case _:
                    raise EngineFailed(f"unexpected message to the daemon: {message!r}")

    def _read_fork_server(self, system: ProcessSystem) -> None:
        for message in system.channel.take():
            match message:
                case protocol.ProcessForked():
                    self._on_forked(message)
                case protocol.ProcessGone():
                    self._on_gone(message.name, message.status)
                case protocol.ProcessNotStarted() | protocol.StartForwarded():
                    self._pending.pop(message.name, None)
                    self._end_when_started.pop(message.name, None)
                    self._application.send(message)
                case protocol.MachineJoined() | protocol.MachineAbsent():
                    self._application.send(message)
                case _:
                    send_log_line(logging.ERROR, f"unexpected message from the fork server: {message!r}")

    def _read_notes(self) -> None:
        for _ in range(_NOTES):
            try:
                data, memories, _, _ = socket.recv_fds(self._notes, 4 * bootstrap.NOTE_BYTES + 512, 1)
            except BlockingIOError:
                return
            note = None
            with contextlib.suppress(ValueError):  # code in a node can write anything to this socket
                note = protocol.decode_message(data)
            match note:
                case protocol.CrashMemory(node):
                    if node in self._crash_memories:
                        crash_output.close_memories([self._crash_memories.pop(node)])
                    if memories:
                        self._crash_memories[node] = memories.pop()
                case protocol.LogNote():
                    self._application.send(note)
                case protocol.ForeignNodeStarted(node, pid) if (
                    node not in self._processes and pid in os_processes.descendants(os.getpid())
                ):
                    self._on_forked(protocol.ProcessForked(node, pid))
                case protocol.ProcessReaped(pid, status) if any(
                    process.pid == pid for process in self._processes.values()
                ):
                    self._statuses[pid] = status
                case _:
                    pass
            crash_output.close_memories(memories)

    # --- the nodes' processes

    def _on_forked(self, message: protocol.ProcessForked) -> None:
        self._pending.pop(message.name, None)
        process = self._processes[message.name] = DaemonChild(message.name, message.pid)
        self._listen(process.pidfd)
        self._application.send(message)
        if message.name in self._end_when_started:
            process.end(self._end_when_started.pop(message.name))

    def _signal_process(self, message: protocol.SignalProcess) -> None:
        process = self._processes.get(message.name)
        if process is not None:
            process.end(message.signal)
            if message.signal != signal.SIGKILL:
                process.end(signal.SIGCONT)  # a stopped process takes no other signal but SIGKILL
        elif message.name in self._pending:
            self._end_when_started[message.name] = message.signal

    def _on_gone(self, name: str, status: int | None) -> None:
        process = self._processes.pop(name, None)
        if process is None:
            return
        if process.ended_at is None:
            self._ignore(process.pidfd)
        process.forget()
        self._read_notes()
        memory = self._crash_memories.pop(name, -1)
        self._application.send(protocol.ProcessGone(name, process.pid, status, crash_output.read_stacks(memory)))
        crash_output.close_memories([memory])
        self._end_orphans(process)
        self._recently_ended.append((time.monotonic() + _STRAYS, process))

    def _end_orphans(self, *processes: DaemonChild) -> None:
        """Kill what code in these nodes has started. Such orphans are children of this process by now, since it is the subreaper."""
        parts = self._system.parts if self._system is not None else ()
        known = {each.pid for each in (*self._processes.values(), *parts, *processes)}
        nodes = [
            process.name for process in processes if process.name not in self._processes
        ]  # not the processes of a restarted node with the same name
        names = {os_processes.truncated_name(name_of_node(node)) for node in nodes} | {
            name_of_forks(process.pid) for process in processes
        }
        for pid in os_processes.children():
            if pid in known:
                continue
            if os_processes.name_of(pid) in names or any(
                os_processes.was_started_with(pid, NODE_VARIABLE, node) for node in nodes
            ):
                for each in (pid, *os_processes.descendants(pid)):
                    os_processes.send_signal(signal.SIGKILL, each)

    def _end_strays(self, now: float) -> None:
        """Kill late orphans of nodes that ended a while ago."""
        departed = self._recently_ended
        if departed:
            self._end_orphans(*(process for _, process in departed))
        while departed and departed[0][0] < now:
            departed.popleft()

    def _check_processes(self) -> None:
        """Notice processes that ended without a report (children of a former fork server, orphans), and a fork server that is stuck."""
        self._reap()
        now = time.monotonic()
        self._end_strays(now)
        system = self._system
        for process in tuple(self._processes.values()):
            if process.ended_at is None:
                if not process.ended:
                    continue
                process.ended_at = now
                self._ignore(process.pidfd)
                status = os_processes.status_of_dead(process.pid)
                if status is not None:
                    self._statuses[process.pid] = status
            if process.pid in self._statuses:
                self._on_gone(process.name, self._statuses.pop(process.pid))
            elif now - process.ended_at > _SILENCE:
                self._on_gone(process.name, None)
        if system is not None and any(now - since > _STUCK for _, since in self._pending.values()):
            send_log_line(logging.WARNING, f"the fork server has made no process for {_STUCK:g} s, and is replaced")
            system.fork_server.end(signal.SIGKILL)

    def _reap(self) -> None:
        while (found := os_processes.reap()) is not None:
            pid, status = found
            parts = self._system.parts if self._system is not None else ()
            if any(each.pid == pid for each in (*self._processes.values(), *parts)):
                self._statuses[pid] = status

    # --- the end

    def finish(self) -> None:
        """End everything: after `FinishDaemon` in order, nodes before Thespian, then all that is left by SIGKILL."""
        if self._finished:
            for process in self._processes.values():
                process.end(signal.SIGTERM)
            until = time.monotonic() + _POLITE
            while self._processes and self._system is not None and time.monotonic() < until:
                self._read_fork_server(self._system)
                self._check_processes()
                time.sleep(_LOOK)
            if self._system is not None:
                for part in self._system.parts:
                    part.end(signal.SIGCONT)
                self._system.shutdown()
        self._sweep(lambda: os_processes.descendants(os.getpid()))

    def _sweep(self, left: Callable[[], Iterable[int]]) -> None:
        """Kill these processes until none is left."""
        until = time.monotonic() + _SWEEP
        while found := list(left()):
            for pid in found:
                os_processes.send_signal(signal.SIGKILL, pid)
            if time.monotonic() > until:
                raise EngineFailed(f"processes {found} cannot be killed")
            time.sleep(_LOOK)
            self._reap()
        self._reap()
