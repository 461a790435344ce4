"""The warden: the process below the application that starts the Thespian system, replaces it, and sees to it that no process is left.

A program of its own, executed anew with null standard streams: nothing of the application is inherited but a socket and the lifeline. It
has one thread, so it may fork; everything below is a fork of it, so what it has imported need not be imported again. It is the subreaper
of all below: a process that loses its parent there becomes its child.

It is told what to do on the socket. When that or the lifeline ends, everything below is killed, and then it ends. When Thespian's admin,
its logger or the keeper ends, it replaces all three; the nodes' processes are not touched, since nothing that they do needs those. When
it dies itself, the application cuts the lifeline, and nothing below survives that.
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

from . import bootstrap, pids
from . import crash_output as last_words
from . import daemon_protocol as orders
from .bootstrap import NODE_VARIABLE, Inherited, name_of_forks, name_of_node, take_note
from .node_records import EngineFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .daemon_protocol import Begin, Orders

PREFIX: Final = "gr-"
"""What the names of processes below a warden begin with, but for those that code in a node has executed."""
TICK: Final = 1.0 if hasattr(os, "pidfd_open") else 0.05
"""How often it looks around although nothing was told."""
_SILENCE: Final = 2.0
"""How long the keeper may take to tell how a process of its ended."""
_STUCK: Final = 5.0
"""How long it may take to make one."""
_SWEEP: Final = 10.0
_POLITE: Final = 0.5
_LOOK: Final = 0.005
_STRAYS: Final = 5.0
"""For so long after a node's process has ended, a process that it has started may still turn up: a fork takes its name when it first runs."""
_STRAY_TICK: Final = 0.1
_NOTES: Final = 100
"""How many it reads at a time."""


class Part:
    """One process below: of the engine, or of a node."""

    def __init__(self, name: str, pid: int) -> None:
        """It runs."""
        self.name = name
        self.pid = pid
        self.pidfd = pids.descriptor(pid)
        self.ended_at: float | None = None
        """When that was noticed, of a node's."""

    @property
    def ended(self) -> bool:
        """Whether it has."""
        return pids.has_ended(self.pid, self.pidfd)

    def end(self, number: int) -> bool:
        """Send it that signal."""
        return pids.send_signal(number, self.pid, self.pidfd)

    def forget(self) -> None:
        """It is gone."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


class ProcessEngine(Protocol):
    """What starts, places and watches the processes of nodes, as the warden sees it.

    It takes orders to start and to end processes here or on another machine, and tells of each how it began and ended.
    """

    id: str
    port: int
    orders: Orders
    """Where it is told what to do, and tells what came of it."""
    parts: list[Part]
    """Its own processes: when one of them ends, all of it is replaced."""
    keeper: Part
    """The one of them that makes the processes of nodes."""

    @property
    def door(self) -> socket.socket:
        """Where it listens in this process: no message for it is expected there."""
        ...

    def turn_away(self) -> None:
        """A connection has come to that door."""
        ...

    def shutdown(self) -> None:
        """Ask all of it to end. That may do nothing; the caller ends what is left."""
        ...

    def forget(self) -> None:
        """All of it is gone."""
        ...


class Warden:
    """The one of this process."""

    def __init__(
        self, home: Orders, begin: Begin, line: int, notes: socket.socket, engine: Callable[[Begin], ProcessEngine]
    ) -> None:
        """Nothing is started yet; `engine` starts what makes processes, or raises `EngineFailed`."""
        self._home = home
        self._begin = begin
        self._line = line
        self._notes = notes
        self._engine = engine
        self._system: ProcessEngine | None = None
        self._hosts: dict[str, Part] = {}
        self._pending: dict[str, tuple[orders.StartHost, float]] = {}
        self._doomed: dict[str, int] = {}
        self._words: dict[str, int] = {}
        self._statuses: dict[int, int] = {}
        self._deaths: deque[float] = deque()
        self._departed: deque[tuple[float, Part]] = deque()
        self._finished = False
        self._selector = selectors.DefaultSelector()
        Inherited.private.add(self._selector.fileno())
        self._listen(home.fileno(), line, notes.fileno())

    def _listen(self, *descriptors: int | None) -> None:
        for descriptor in descriptors:
            if descriptor is not None:
                self._selector.register(descriptor, selectors.EVENT_READ)
                Inherited.private.add(descriptor)
        Inherited.private.discard(self._line)

    def _ignore(self, *descriptors: int | None) -> None:
        for descriptor in descriptors:
            if descriptor is not None:
                self._selector.unregister(descriptor)
                Inherited.private.discard(descriptor)

    # --- the system

    def start(self) -> None:
        """Start a system. Raises `EngineFailed`, and `Cut` when the application is gone."""
        began = time.monotonic()
        with bootstrap.waiting(self._line):  # that may wait seconds for processes that ended with the application
            system = self._system = self._engine(self._begin)
        self._listen(system.door.fileno(), system.orders.fileno(), *(part.pidfd for part in system.parts))
        parts = {part.name: part.pid for part in system.parts}
        self._home.send(
            orders.Ready({"warden": os.getpid(), **parts}, system.port, time.monotonic() - began, system.id)
        )
        for name, (order, _) in self._pending.items():
            self._pending[name] = (order, time.monotonic())
            system.orders.send(order)
        self._hear_keeper(system)  # what came with its greeting is read already: no selector tells of it

    def _replace(self, system: ProcessEngine) -> None:
        """A part of the system has ended: end what is left of it, and start another. No node's process is touched."""
        ended = next(part for part in system.parts if part.ended)
        began = time.monotonic()
        with contextlib.suppress(ValueError):  # half an order: it was killed in the middle of it
            self._hear_keeper(system)  # its last
        self._system = None
        self._ignore(system.door.fileno(), system.orders.fileno(), *(part.pidfd for part in system.parts))
        for part in system.parts:
            part.end(signal.SIGKILL)
        system.forget()
        hosts = frozenset(host.pid for host in self._hosts.values())
        self._sweep(lambda: pids.descendants(os.getpid(), hosts, PREFIX))
        self._bear(began)
        self.start()
        self._home.send(orders.Replaced(ended.name, self._statuses.pop(ended.pid, None), time.monotonic() - began))

    def _bear(self, now: float) -> None:
        """Another death of a system: too many are ours as well."""
        deaths = self._deaths
        deaths.append(now)
        while now - deaths[0] > self._begin.period:
            deaths.popleft()
        if len(deaths) > self._begin.intensity:
            raise EngineFailed(
                f"the Thespian system had to be replaced {len(deaths)} times within {self._begin.period:g} s: that is given up"
            )

    # --- the loop

    def run(self) -> None:
        """Until it is told to finish, or the application is gone."""
        self._obey(self._home.take())
        while not self._finished:
            ready = {key.fd for key, _ in self._selector.select(_STRAY_TICK if self._departed else TICK)}
            if self._line in ready and bootstrap.is_cut(self._line):
                return
            if self._home.fileno() in ready:
                self._obey(self._home.take())
                if self._home.over:
                    return
            if self._notes.fileno() in ready:
                self._pass_notes()
            system = self._system
            if system is not None:
                if system.door.fileno() in ready:
                    system.turn_away()
                if system.orders.fileno() in ready:
                    self._hear_keeper(system)
                if any(part.ended for part in system.parts):
                    self._replace(system)
            self._look_around()

    def _obey(self, given: Iterable[orders.Order]) -> None:
        for order in given:
            match order:
                case orders.StartHost():
                    self._pending[order.name] = (order, time.monotonic())
                    if self._system is not None:
                        self._system.orders.send(order)
                case orders.EndHost():
                    self._end_host(order)
                case orders.Rejoin(anew=True):
                    if self._system is not None:
                        self._system.keeper.end(signal.SIGKILL)
                case orders.Rejoin():
                    if self._system is not None:
                        self._system.orders.send(order)
                case orders.Ping():
                    self._home.send(orders.Pong(order.number))
                case orders.Finish():
                    self._finished = True
                case _:
                    raise EngineFailed(f"the warden was told what is not for it: {order!r}")

    def _hear_keeper(self, system: ProcessEngine) -> None:
        for order in system.orders.take():
            match order:
                case orders.Born():
                    self._born(order)
                case orders.Gone():
                    self._gone(order.name, order.status)
                case orders.NotStarted() | orders.Sent():
                    self._pending.pop(order.name, None)
                    self._doomed.pop(order.name, None)
                    self._home.send(order)
                case orders.Joined() | orders.Absent():
                    self._home.send(order)
                case _:
                    take_note(logging.ERROR, f"the keeper of nodes said what it should not: {order!r}")

    def _pass_notes(self) -> None:
        for _ in range(_NOTES):
            try:
                data, memories, _, _ = socket.recv_fds(self._notes, 4 * bootstrap.NOTE_BYTES + 512, 1)
            except BlockingIOError:
                return
            note = None
            with contextlib.suppress(ValueError):  # code in a node may write anything there
                note = orders.decoded(data)
            match note:
                case orders.LastWords(node):
                    if node in self._words:
                        last_words.close([self._words.pop(node)])
                    if memories:
                        self._words[node] = memories.pop()
                case orders.Note():
                    self._home.send(note)
                case orders.Aboard(node, pid) if node not in self._hosts and pid in pids.descendants(os.getpid()):
                    self._born(orders.Born(node, pid))
                case orders.Reaped(pid, status) if any(host.pid == pid for host in self._hosts.values()):
                    self._statuses[pid] = status
                case _:
                    pass
            last_words.close(memories)

    # --- the nodes' processes

    def _born(self, order: orders.Born) -> None:
        self._pending.pop(order.name, None)
        host = self._hosts[order.name] = Part(order.name, order.pid)
        self._listen(host.pidfd)
        self._home.send(order)
        if order.name in self._doomed:
            host.end(self._doomed.pop(order.name))

    def _end_host(self, order: orders.EndHost) -> None:
        host = self._hosts.get(order.name)
        if host is not None:
            host.end(order.signal)
            if order.signal != signal.SIGKILL:
                host.end(signal.SIGCONT)  # a stopped process cannot hear the other
        elif order.name in self._pending:
            self._doomed[order.name] = order.signal

    def _gone(self, name: str, status: int | None) -> None:
        host = self._hosts.pop(name, None)
        if host is None:
            return
        if host.ended_at is None:
            self._ignore(host.pidfd)
        host.forget()
        self._pass_notes()
        memory = self._words.pop(name, -1)
        self._home.send(orders.Gone(name, host.pid, status, last_words.read(memory)))
        last_words.close([memory])
        self._end_orphans(host)
        self._departed.append((time.monotonic() + _STRAYS, host))

    def _end_orphans(self, *hosts: Part) -> None:
        """What code in a node has started ends with the node: a process that stays behind of it is our child by now."""
        parts = self._system.parts if self._system is not None else ()
        known = {each.pid for each in (*self._hosts.values(), *parts, *hosts)}
        nodes = [host.name for host in hosts if host.name not in self._hosts]  # its successor's are not meant
        names = {pids.cut(name_of_node(node)) for node in nodes} | {name_of_forks(host.pid) for host in hosts}
        for pid in pids.children():
            if pid in known:
                continue
            if pids.name_of(pid) in names or any(pids.was_started_with(pid, NODE_VARIABLE, node) for node in nodes):
                for each in (pid, *pids.descendants(pid)):
                    pids.send_signal(signal.SIGKILL, each)

    def _end_strays(self, now: float) -> None:
        """Those of nodes that have ended a while ago."""
        departed = self._departed
        if departed:
            self._end_orphans(*(host for _, host in departed))
        while departed and departed[0][0] < now:
            departed.popleft()

    def _look_around(self) -> None:
        """See which processes have ended without a report: the children of a former keeper, and orphans; and whether the keeper is stuck."""
        self._reap()
        now = time.monotonic()
        self._end_strays(now)
        system = self._system
        for host in tuple(self._hosts.values()):
            if host.ended_at is None:
                if not host.ended:
                    continue
                host.ended_at = now
                self._ignore(host.pidfd)
                status = pids.status_of_dead(host.pid)
                if status is not None:
                    self._statuses[host.pid] = status
            if host.pid in self._statuses:
                self._gone(host.name, self._statuses.pop(host.pid))
            elif now - host.ended_at > _SILENCE:
                self._gone(host.name, None)
        if system is not None and any(now - since > _STUCK for _, since in self._pending.values()):
            take_note(logging.WARNING, f"the keeper of nodes has made no process for {_STUCK:g} s, and is replaced")
            system.keeper.end(signal.SIGKILL)

    def _reap(self) -> None:
        while (found := pids.reap()) is not None:
            pid, status = found
            parts = self._system.parts if self._system is not None else ()
            if any(each.pid == pid for each in (*self._hosts.values(), *parts)):
                self._statuses[pid] = status

    # --- the end

    def finish(self) -> None:
        """In order, if that was asked for: the nodes first, then Thespian; and then every process that is left."""
        if self._finished:
            for host in self._hosts.values():
                host.end(signal.SIGTERM)
            until = time.monotonic() + _POLITE
            while self._hosts and self._system is not None and time.monotonic() < until:
                self._hear_keeper(self._system)
                self._look_around()
                time.sleep(_LOOK)
            if self._system is not None:
                for part in self._system.parts:
                    part.end(signal.SIGCONT)
                self._system.shutdown()
        self._sweep(lambda: pids.descendants(os.getpid()))

    def _sweep(self, left: Callable[[], Iterable[int]]) -> None:
        """Kill them until there are none."""
        until = time.monotonic() + _SWEEP
        while found := list(left()):
            for pid in found:
                pids.send_signal(signal.SIGKILL, pid)
            if time.monotonic() > until:
                raise EngineFailed(f"processes {found} cannot be killed")
            time.sleep(_LOOK)
            self._reap()
        self._reap()
