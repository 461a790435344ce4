"""One Thespian system as the warden runs it: its admin, its logger and the keeper, started on a free port, watched, and ended by pid."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import time
from typing import TYPE_CHECKING, Final

from . import leftovers, pids
from .endings import EngineFailed
from .hardening import inside_of
from .inherited import Inherited
from .keeper import BEGIN
from .machines import SYSTEM
from .orders import Hello, Order, Orders
from .thespian_door import ActorSystem

if TYPE_CHECKING:
    from .orders import Begin

BASE: Final = "multiprocTCPBase"
PARTS: Final = ("admin", "logger", "keeper")
PREFIX: Final = "gr-"
"""What the names of processes below a warden begin with, but for those that code in a node has executed."""
_HELLO_SECONDS: Final = 10.0
_TRIES: Final = 3
_QUIET: Final[dict[str, object]] = {"version": 1, "root": {"level": "CRITICAL"}, "disable_existing_loggers": False}


class Part:
    """One process of the system."""

    def __init__(self, name: str, pid: int) -> None:
        """It runs."""
        self.name = name
        self.pid = pid
        self.pidfd = pids.descriptor(pid)

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


class System:
    """One that runs."""

    def __init__(self, begin: Begin) -> None:
        """Start it. Raises `EngineFailed`; the caller ends what is left then."""
        self.id = secrets.token_hex(16)
        self.orders, keeper = self._sockets()
        Inherited.keeper = keeper
        try:
            self._system, self.port = _start(begin, self.id)
            self._inside = inside_of(self._system)
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

    def _sockets(self) -> tuple[Orders, socket.socket]:
        mine, keeper = socket.socketpair()
        Inherited.private.add(mine.fileno())
        return Orders(mine), keeper

    def _hello(self) -> Hello:
        until = time.monotonic() + _HELLO_SECONDS
        while (left := until - time.monotonic()) > 0:
            if select.select((self.orders,), (), (), left)[0]:
                order: Order = self.orders.next()
                if isinstance(order, Hello):
                    return order
        raise EngineFailed(f"the keeper of nodes did not come up within {_HELLO_SECONDS:g} s")

    @property
    def door(self) -> socket.socket:
        """Where Thespian would listen for what is sent to this process: nobody has anything to say there."""
        door: socket.socket = self._inside.socket
        return door

    def turn_away(self) -> None:
        """Somebody is at that door."""
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


def _start(begin: Begin, id: str) -> tuple[ActorSystem, int]:
    failure: Exception | None = None
    if begin.port:
        leftovers.clear(
            begin.bind, begin.port
        )  # Thespian would become part of whatever system of the same key listens there
    for _ in range(1 if begin.port else _TRIES):
        port = begin.port or _free_port(begin.bind)
        capabilities: dict[str, object] = {**begin.capabilities, SYSTEM: id, "Admin Port": port}
        if begin.convention:
            capabilities["Convention Address.IPv4"] = begin.convention
        try:
            return ActorSystem(BASE, capabilities, _QUIET, transientUnique=True), port
        except Exception as error:  # noqa: BLE001 - somebody was faster at that port
            failure = error
    raise EngineFailed(f"Thespian did not start at {begin.bind}: {type(failure).__name__}: {failure}") from failure


def _free_port(bind: str) -> int:
    with socket.socket() as probe:
        try:
            probe.bind((bind, 0))
        except OSError as error:
            raise EngineFailed(f"Thespian cannot listen at {bind}: {error.strerror}") from error
        return int(probe.getsockname()[1])
