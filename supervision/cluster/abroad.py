"""Those on the other node who wait for something here: for the answer to a call, or for an end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from greenroom.supervision.behaviours.caller import Caller, exited
from greenroom.supervision.kernel.pid import make_pid
from greenroom.supervision.kernel.reasons import NO_CONNECTION

from . import items
from .naming import CannotTravel

if TYPE_CHECKING:
    from greenroom.supervision.kernel.pid import Pid
    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.kernel.reasons import ExitReason

    from .switch import Switch

_get_ident = threading.get_ident


class FarCaller(Caller[Any]):
    """A caller on the other node: what it is answered goes back there, once."""

    __slots__ = ("_number", "_source", "_switch")

    def __init__(self, switch: Switch, callee: Process, source: int | None, number: int) -> None:
        """`source` is the caller's serial, if it is a process; `number` is what the other node knows the call by."""
        super().__init__(switch.node, callee, None)
        self._switch = switch
        self._source = source
        self._number = number

    @property
    def process(self) -> Process | None:
        """Who calls, as this node sees it."""
        return None if self._source is None else self._switch.there(self._source)

    @property
    def pid(self) -> Pid | None:
        """The caller's address."""
        switch = self._switch
        return None if self._source is None else make_pid(switch.name, switch.life or 0, self._source)

    def exited(self, reason: ExitReason) -> None:
        """The callee is gone: the caller's own node makes the error of it."""
        if super()._settle(None, exited(reason, self._callee)):
            self._switch.callers.pop(self._number, None)
            self._switch.post_reason(items.EXITED, self._number, reason)

    def drop(self) -> None:
        """Nobody waits for it any more."""
        super()._settle(None, exited(NO_CONNECTION, self._callee))

    def _settle(self, value: Any, error: BaseException | None) -> bool:
        node = self._node
        if _get_ident() != node.thread:
            return node.from_thread(self._settle, value, error)
        if not super()._settle(value, error):
            return False
        self._switch.callers.pop(self._number, None)
        try:
            if error is None:
                self._switch.post(items.REPLY, self._number, value)
            else:
                self._switch.post(items.FAIL, self._number, error)
        except CannotTravel as refused:
            self._switch.post(items.FAIL, self._number, refused)
        return True


class FarWatch:
    """Somebody on the other node wants to know of an end here."""

    __slots__ = ("_number", "_switch", "process")

    def __init__(self, switch: Switch, process: Process, number: int) -> None:
        """`number` is what the other node knows it by."""
        self._switch = switch
        self._number = number
        self.process = process

    def exited(self, reason: ExitReason) -> None:
        """That was it."""
        self._switch.watches.pop(self._number, None)
        self._switch.post_reason(items.GONE, self._number, reason)

    def drop(self) -> None:
        """Nobody wants to know any more."""
        self.process.forget(self)
