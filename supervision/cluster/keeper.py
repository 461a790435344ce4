"""The keeper: a Thespian actor with one thread and no secrets, which makes processes for nodes and tells how they ended.

It takes its orders from the warden, through a socket that it inherited. Whatever goes wrong is told there: an error that would reach
Thespian would have the same message handled a second time. When it dies, the nodes' processes go on: the warden becomes their parent,
and starts another keeper.
"""

from __future__ import annotations

import logging
import os
import signal
import traceback
from typing import Any, Final

from . import hardening, pids
from .inherited import Inherited, take_note
from .node_host import NodeHost
from .orders import Born, EndHost, Gone, Hello, NotStarted, Order, Orders, Ping, Pong, StartHost
from .thespian_door import Actor, ThespianWatch, WatchMessage

BEGIN: Final = "begin"
"""What the warden sends it first, through Thespian."""


class Keeper(Actor):
    """One for each system."""

    def __init__(self) -> None:
        """It does nothing before it is told to begin."""
        super().__init__()
        self._orders: Orders | None = None
        self._names: dict[int, str] = {}

    def receiveMessage(self, message: object, sender: object) -> object:  # noqa: ARG002, N802 - Thespian's words
        """A message of Thespian's; orders come by the socket that is watched."""
        try:
            if isinstance(message, WatchMessage):
                self._obey()
            elif message == BEGIN and self._orders is None:
                self._begin()
        except BaseException:  # noqa: BLE001 - it is told, and Thespian must not see it
            take_note(
                logging.ERROR, f"the keeper of nodes failed at {type(message).__name__}:\n{traceback.format_exc()}"
            )
        if self._orders is None or self._orders.over:
            return None
        return ThespianWatch([self._orders.fileno()])

    def _begin(self) -> None:
        assert Inherited.keeper is not None
        hardening.restore_logging()
        pids.take_name("gr-keeper")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)  # it ends with the warden, which nobody else decides upon
        hardening.Log.exited = self._exited
        self._orders = Orders(Inherited.keeper)
        os.register_at_fork(after_in_child=_forget)
        self._orders.send(Hello(os.getpid(), os.getppid()))

    def _obey(self) -> None:
        assert self._orders is not None
        for order in self._orders.take():
            self._do(order)

    def _do(self, order: Order) -> None:
        assert self._orders is not None
        match order:
            case StartHost():
                try:
                    pid = self._make(order)
                except Exception as error:  # noqa: BLE001 - whoever asked for it is told
                    self._orders.send(NotStarted(order.name, f"{type(error).__name__}: {error}"))
                else:
                    self._names[pid] = order.name
                    self._orders.send(Born(order.name, pid))
            case EndHost():
                for pid, name in self._names.items():
                    if name == order.name:
                        pids.send_signal(order.signal, pid)
            case Ping():
                self._orders.send(Pong(order.number))
            case _:
                take_note(logging.ERROR, f"the keeper of nodes was told what is not for it: {order!r}")

    def _make(self, order: StartHost) -> int:
        manager: Any = self._myRef
        before = {child.childProc.pid for child in getattr(manager, "_child_procs", ())}
        address = self.createActor(NodeHost, dict(order.requires) or None)
        made = [child.childProc.pid for child in manager._child_procs if child.childProc.pid not in before]  # noqa: SLF001 - nowhere else is it told
        if not made:
            raise RuntimeError("Thespian made no process")
        self.send(address, order.boot)
        return int(made[0])

    def _exited(self, pid: int, status: int | None) -> None:
        # Thespian tells of an end as often as it hears of it; this comes once, from the moment when the process is reaped.
        name = self._names.pop(pid, None)
        if name is not None and self._orders is not None:
            self._orders.send(Gone(name, pid, status))


def _forget() -> None:
    """In a node's process: the orders are not for it."""
    hardening.Log.exited = None
    if Inherited.keeper is not None:
        Inherited.keeper.close()
        Inherited.keeper = None
