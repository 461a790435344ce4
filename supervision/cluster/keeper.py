"""Thespian as the engine of processes: the keeper, the actor in whose process a node runs, and the system that the warden has of both.

The keeper is a Thespian actor with one thread and no secrets, which makes processes for nodes and tells how they ended. It takes its orders from the warden, through a socket that it inherited. Whatever goes wrong is told there: an error that would reach
Thespian would have the same message handled a second time. When it dies, the nodes' processes go on: the warden becomes their parent,
and starts another keeper.
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

from . import daemon_protocol as orders
from . import pids
from . import thespian_taming as thespian
from .bootstrap import Inherited, take_note
from .machines import ANNOUNCED, ID, SYSTEM
from .node_main import boot, leave
from .node_records import EngineFailed
from .warden import Part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .daemon_protocol import Begin

BEGIN: Final = "begin"
"""What the warden sends it first, through Thespian."""
_NUDGE: Final = "greenroom.nudge"
"""A capability that says nothing: when one changes, Thespian registers anew with the convention."""
_REMEMBERED: Final = 256


class Keeper(thespian.Actor):
    """One for each system."""

    def __init__(self) -> None:
        """It does nothing before it is told to begin."""
        super().__init__()
        self._orders: orders.Orders | None = None
        self._names: dict[int, str] = {}
        self._sent: dict[bytes, str] = {}
        self._nudges = 0

    def receiveMessage(self, message: object, sender: object) -> object:  # noqa: ARG002, N802 - Thespian's words
        """A message of Thespian's; orders come by the socket that is watched."""
        try:
            if self._orders is None:
                if message == BEGIN:
                    self._begin()
            elif isinstance(message, thespian.WatchMessage):
                for order in self._orders.take():
                    self._obey(self._orders, order)
            else:
                self._hear(self._orders, message)
        except BaseException:  # noqa: BLE001 - it is told, and Thespian must not see it
            take_note(
                logging.ERROR, f"the keeper of nodes failed at {type(message).__name__}:\n{traceback.format_exc()}"
            )
        if self._orders is None or self._orders.over:
            return None
        return thespian.ThespianWatch([self._orders.fileno()])

    def _begin(self) -> None:
        assert Inherited.keeper is not None
        thespian.restore_logging()
        pids.take_name("gr-keeper")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)  # only the warden decides when it ends
        thespian.Log.exited = self._exited
        self._orders = orders.Orders(Inherited.keeper)
        os.register_at_fork(after_in_child=_forget)
        self._orders.send(orders.Hello(os.getpid(), os.getppid()))
        self.notifyOnSystemRegistrationChanges(True)  # noqa: FBT003 - Thespian's word

    def _hear(self, warden: orders.Orders, message: object) -> None:
        """Of other machines: which are in the convention, and that there is no such machine any more."""
        if isinstance(message, thespian.ActorSystemConventionUpdate):
            capabilities = message.remoteCapabilities
            machine, announced, system = (capabilities.get(each) for each in (ID, ANNOUNCED, SYSTEM))
            if isinstance(machine, str) and isinstance(announced, str) and isinstance(system, str):
                here = message.remoteAdded
                warden.send(orders.Joined(machine, announced, system) if here else orders.Absent(machine, system))
        elif isinstance(message, thespian.PoisonMessage) and (name := self._sent.pop(message.poisonMessage, None)):
            why = (
                "no machine of the convention took it: the one that was meant has left it, or could not make a process"
            )
            warden.send(orders.NotStarted(name, why))

    def _obey(self, warden: orders.Orders, order: orders.Order) -> None:
        match order:
            case orders.StartHost():
                try:
                    pid = self._make(order)
                except Exception as error:  # noqa: BLE001 - the warden, which asked for it, is told
                    warden.send(orders.NotStarted(order.name, f"{type(error).__name__}: {error}"))
                else:
                    warden.send(orders.Sent(order.name) if pid is None else orders.Born(order.name, pid))
            case orders.EndHost():
                for pid, name in self._names.items():
                    if name == order.name:
                        pids.send_signal(order.signal, pid)
            case orders.Rejoin():
                self._nudges += 1
                self.updateCapability(_NUDGE, self._nudges)
            case _:
                take_note(logging.ERROR, f"the keeper of nodes was told what is not for it: {order!r}")

    def _make(self, order: orders.StartHost) -> int | None:
        manager: Any = self._myRef
        before = {child.childProc.pid for child in getattr(manager, "_child_procs", ())}
        address = self.createActor(NodeHost, dict(order.requires) or None)
        children = getattr(manager, "_child_procs", ())  # nowhere else is it told
        made = [child.childProc.pid for child in children if child.childProc.pid not in before]
        self.send(address, order.boot)
        if made:
            self._names[made[0]] = order.name
            return int(made[0])
        if not order.requires:
            raise RuntimeError("Thespian made no process")
        while len(self._sent) >= _REMEMBERED:
            del self._sent[next(iter(self._sent))]
        self._sent[order.boot] = order.name
        return None

    def _exited(self, pid: int, status: int | None) -> None:
        # Thespian tells of an end as often as it hears of it; this comes once, from the moment when the process is reaped.
        name = self._names.pop(pid, None)
        if name is not None and self._orders is not None:
            self._orders.send(orders.Gone(name, pid, status))


def _forget() -> None:
    """In a node's process: the orders are not for it."""
    thespian.Log.exited = None
    if Inherited.keeper is not None:
        Inherited.keeper.close()
        Inherited.keeper = None


# --- What Thespian knows of a node: the actor whose process it runs in. The main thread stays Thespian's; the node has a thread of its own.

_PATIENCE: Final = 30


class NodeHost(thespian.Actor):
    """One for each process."""

    @staticmethod
    def actorSystemCapabilityCheck(capabilities: Mapping[str, object], requires: Mapping[str, object]) -> bool:  # noqa: N802 - Thespian's name
        """Whether a machine is the one that is meant."""
        return all(capabilities.get(name) == wanted for name, wanted in requires.items())

    def __init__(self) -> None:
        """It waits for what to boot, but not for ever: its requester may not be able to send that any more."""
        super().__init__()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_PATIENCE)

    def receiveMessage(self, message: object, sender: object) -> None:  # noqa: ARG002, N802 - Thespian's words
        """The first bytes are what to boot; later ones are not looked at."""
        try:
            if type(message) is bytes:
                signal.alarm(0)
                thespian.restore_logging()
                manager = self._myRef
                guest = manager._parentAddr == manager._adminAddr  # noqa: SLF001 - nowhere else is it told
                boot(message, manager.transport.childResetFileNumList(), guest=guest)
            elif isinstance(message, thespian.ActorExitRequest):
                leave()
        except BaseException:  # noqa: BLE001 - it is told, and Thespian must not see it
            take_note(
                logging.ERROR, f"the process of a node failed at {type(message).__name__}:\n{traceback.format_exc()}"
            )


# --- One Thespian system as the warden runs it: its admin, its logger and the keeper, started on a free port, watched, and ended by pid.

BASE: Final = "multiprocTCPBase"
PARTS: Final = ("admin", "logger", "keeper")
_HELLO_SECONDS: Final = 10.0
_TRIES: Final = 3
_QUIET: Final[dict[str, object]] = {"version": 1, "root": {"level": "CRITICAL"}, "disable_existing_loggers": False}


class System:
    """One that runs: a `ProcessEngine`."""

    def __init__(self, begin: Begin) -> None:
        """Start it. Raises `EngineFailed`; the caller ends what is left then."""
        self.id = secrets.token_hex(16)
        mine, keeper = socket.socketpair()
        Inherited.private.add(mine.fileno())
        self.orders = orders.Orders(mine)
        Inherited.keeper = keeper
        try:
            self._system, self.port = _start(begin, self.id)
            self._inside = thespian.inside_of(self._system)
            address = self._system.createActor("greenroom.supervision.cluster.keeper.Keeper")
            self._system.tell(address, BEGIN)
            hello = self._hello()
        finally:
            Inherited.keeper = None
            keeper.close()
        admin = hello.admin
        others = [seen.pid for seen in pids.everybody().values() if seen.parent == admin and seen.pid != hello.pid]
        if not others:
            raise EngineFailed("Thespian's admin has no process besides the keeper, and there should be its logger")
        # The logger is the first that it makes; what comes later may be a node that another machine wanted here at once.
        logger = min(others, key=lambda pid: (pids.began(pid), pid))
        self.parts = [Part(*each) for each in zip(PARTS, (admin, logger, hello.pid), strict=True)]
        self.keeper = self.parts[-1]

    def _hello(self) -> orders.Hello:
        until = time.monotonic() + _HELLO_SECONDS
        while (left := until - time.monotonic()) > 0:
            if select.select((self.orders,), (), (), left)[0]:
                order: orders.Order = self.orders.next()
                if isinstance(order, orders.Hello):
                    return order
        raise EngineFailed(f"the keeper of nodes did not come up within {_HELLO_SECONDS:g} s")

    @property
    def door(self) -> socket.socket:
        """Where Thespian would listen for what is sent to this process: no message for it is expected there."""
        door: socket.socket = self._inside.socket
        return door

    def turn_away(self) -> None:
        """A connection has come to that door: close it."""
        with contextlib.suppress(OSError):
            self.door.accept()[0].close()

    def shutdown(self) -> None:
        """Ask Thespian to end it all. That may do nothing; the caller ends what is left."""
        with contextlib.suppress(Exception):
            self._system.shutdown()

    def forget(self) -> None:
        """All of it is gone."""
        self.orders.sock.close()
        for part in self.parts:
            part.forget()


def _start(begin: Begin, id: str) -> tuple[thespian.ActorSystem, int]:
    failure: Exception | None = None
    if begin.port:
        # Thespian would become part of whatever system of the same key listens there.
        thespian.clear(begin.bind, begin.port)
    for _ in range(1 if begin.port else _TRIES):
        port = begin.port or _free_port(begin.bind)
        capabilities: dict[str, object] = {**begin.capabilities, SYSTEM: id, "Admin Port": port}
        if begin.convention:
            capabilities["Convention Address.IPv4"] = begin.convention
        try:
            return thespian.ActorSystem(BASE, capabilities, _QUIET, transientUnique=True), port
        except Exception as error:  # noqa: BLE001 - another process was faster at that port
            failure = error
    raise EngineFailed(f"Thespian did not start at {begin.bind}: {type(failure).__name__}: {failure}") from failure


def _free_port(bind: str) -> int:
    with socket.socket() as probe:
        try:
            probe.bind((bind, 0))
        except OSError as error:
            raise EngineFailed(f"Thespian cannot listen at {bind}: {error.strerror}") from error
        return int(probe.getsockname()[1])
