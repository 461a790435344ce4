"""A process of another node, as this one holds it: its words are items on the link that leads there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.supervision.behaviours.caller import Caller
from greenroom.supervision.kernel.away import Away
from greenroom.supervision.kernel.exits import TOMBSTONE
from greenroom.supervision.kernel.messages import ASK, CALL, CAST, INFO, STOP, TELL

from . import items
from .values import CannotTravel

if TYPE_CHECKING:
    from greenroom.supervision.kernel.messages import Down, Entry, Exit
    from greenroom.supervision.kernel.names import On
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.pid import Pid
    from greenroom.supervision.kernel.process import Process, Waiter
    from greenroom.supervision.kernel.reasons import ExitReason

    from .switch import Switch


class FarProcess(Away):
    """One for each that somebody here holds; forgotten when nobody does."""

    __slots__ = ("_asked", "_switch", "to")

    def __init__(self, node: Node, switch: Switch, pid: Pid, name: On | None = None) -> None:
        """`name` when it is addressed by that, and may be anybody, or nobody."""
        super().__init__(node, pid, None, "process")
        self.behaviour = TOMBSTONE
        self._switch = switch
        self._asked = False  # to be told of its end
        self.to: Any = pid.serial if name is None else [name.name]

    def __str__(self) -> str:
        return f"process {self.pid}" if type(self.to) is int else f"{self.to[0]!r} on {self.pid.node}"

    # --- messages

    def deliver(self, entry: Entry) -> bool:
        """Send it. False when it is gone, or the link has more to carry than it may."""
        if self.life or not self._switch.has_room:
            return False
        switch, kind = self._switch, entry[0]
        if kind == INFO:
            switch.post(items.SEND, self.to, entry[1])
        elif kind == CAST:
            switch.post(items.CAST, self.to, entry[1], list(entry[2]), entry[3])
        elif kind == TELL:
            switch.post(items.TELL, self.to, entry[1])
        elif kind == CALL:
            switch.call(entry[4], items.CALL, self.to, entry[1], list(entry[2]), entry[3])
        elif kind == ASK:
            switch.call(entry[2], items.ASK, self.to, entry[1])
        elif kind == STOP:
            switch.post(items.STOP, self.to, entry[1])
        else:
            raise CannotTravel(f"{self} is on another node: what looks inside a process has to run there")
        return True

    def deliver_exempt(self, entry: Entry) -> bool:
        """As `deliver`: what bounds its mailbox is known there."""
        return self.deliver(entry)

    def deliver_signal(self, message: Down | Exit) -> None:
        """Never: who watches from there is told by an item of its own."""
        raise CannotTravel(f"{message!r} is for {self}, which is on another node")

    # --- links and monitors

    def joined(self, other: Process) -> None:
        """Have it linked there too."""
        self._switch.post(items.LINK, other.pid.serial, self.to)

    def parted(self, other: Process) -> None:
        """Have it unlinked there too."""
        if not self.life:
            self._switch.post(items.UNLINK, other.pid.serial, self.to)

    def cut(self, other: Process, reason: ExitReason) -> None:
        """Tell it how the one that it was linked to has ended."""
        if not self.life:
            self._switch.post(items.CUT, other.pid.serial, self.to, reason)

    def signalled(self, source: Pid, reason: ExitReason) -> None:
        """Pass the signal on; it decides there what to make of it."""
        if not self.life:
            self._switch.post(items.EXIT, source.serial, self.to, reason)

    def killed(self) -> None:
        """Have it killed."""
        if not self.life:
            self._switch.post(items.KILL, self.to)

    def watched(self) -> None:
        """Ask to be told of its end, once for all who want to know."""
        if not self._asked and not self.life:
            self._asked = True
            self._switch.post(items.WATCH, self.to)

    def unwatched(self) -> None:
        """Nobody may want to know any more."""
        if self._asked and not self.life and self.monitors is None and not self._awaited():
            self._asked = False
            self._switch.post(items.UNWATCH, self.to)

    # --- who waits

    def await_death(self, waiter: Waiter) -> None:
        """Tell `waiter` when it is gone; a caller's answer says so by itself."""
        super().await_death(waiter)
        if not isinstance(waiter, Caller):
            self.watched()

    def forget(self, waiter: Waiter) -> None:
        """The waiter has what it wanted."""
        super().forget(waiter)
        if not isinstance(waiter, Caller):
            self.unwatched()

    def _awaited(self) -> bool:
        waiting = self.callers
        if waiting is None:
            return False
        return any(not isinstance(each, Caller) for each in (waiting if isinstance(waiting, dict) else (waiting,)))
