"""A process of another node, as this one holds it: its words are items on the link that leads there.

One for each pid that somebody here holds, by a link, a monitor, a call under way or a variable; it is forgotten when nobody does. A name on
another node is nobody in particular: each use of it is one of its own, and is looked up there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.supervision.behaviours.caller import Caller
from greenroom.supervision.kernel.away import Away
from greenroom.supervision.kernel.errors import ActorError
from greenroom.supervision.kernel.exits import TOMBSTONE
from greenroom.supervision.kernel.messages import ASK, CALL, CAST, INFO, STOP, TELL
from greenroom.supervision.kernel.pid import Pid

from . import items
from .naming import CannotTravel

if TYPE_CHECKING:
    from greenroom.supervision.kernel.messages import Down, Entry, Exit
    from greenroom.supervision.kernel.names import On
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import Process, Waiter
    from greenroom.supervision.kernel.reasons import ExitReason

    from .switch import Switch


class FarProcess(Away):
    """The near end of one."""

    __slots__ = ("_switch", "_watch", "named", "to")

    def __init__(self, node: Node, switch: Switch, pid: Pid, name: On | None = None) -> None:
        """`name` when it is addressed by that, and may be anybody, or nobody."""
        super().__init__(node, pid, None, "process")
        self.behaviour = TOMBSTONE
        self.named = name is not None
        self.to: Any = pid.serial if name is None else [name.name]
        self._switch = switch
        self._watch = 0  # the number under which the other node was asked to tell of its end

    def __str__(self) -> str:
        return f"{self.to[0]!r} on {self.pid.node}" if self.named else f"process {self.pid}"

    __repr__ = __str__

    # --- messages

    def deliver(self, entry: Entry) -> bool:
        """Send it. False when it is gone, or the link has more to carry than it may."""
        if self.life or not self._switch.has_room:
            return False
        switch, kind = self._switch, entry[0]
        if kind == CALL:
            switch.call(self, entry[4], items.CALL, entry[1], list(entry[2]), entry[3])
        elif kind == CAST:
            switch.post_to(self, items.CAST, self.to, entry[1], list(entry[2]), entry[3])
        elif kind == INFO:
            switch.post_to(self, items.SEND, self.to, entry[1])
        elif kind == ASK:
            switch.call(self, entry[2], items.ASK, entry[1])
        elif kind == TELL:
            switch.post_to(self, items.TELL, self.to, entry[1])
        elif kind == STOP:
            switch.post_reason_to(self, items.STOP, self.to, entry[1])
        else:
            raise CannotTravel(f"{self} is on another node: what looks inside a process has to run there")
        return True

    def deliver_exempt(self, entry: Entry) -> bool:
        """As `deliver`: what bounds its mailbox is known there."""
        return self.deliver(entry)

    def deliver_signal(self, message: Down | Exit) -> None:
        """Never: who watches from there is told by an item of its own."""
        raise CannotTravel(f"{message!r} is for {self}, which is on another node")

    # --- links and monitors: none of these may raise, since deaths pass through them

    def check_link(self) -> None:
        """Refuse a link to a name: it would be to whoever has that name when the wish arrives there."""
        if self.named:
            raise ActorError(
                f"cannot link to {self}: a link is to a process and not to a name, so ask whose it is: await whereis_on(…)"
            )

    def joined(self, other: Process) -> None:
        """Have it linked there too."""
        if not self.life:
            self._switch.post_to(self, items.LINK, other.pid.serial, self.to)

    def parted(self, other: Process) -> None:
        """Have it unlinked there too."""
        if not self.life:
            self._switch.post_to(self, items.UNLINK, other.pid.serial, self.to)

    def cut(self, other: Process, reason: ExitReason) -> None:
        """Tell it how the one that it was linked to has ended."""
        if not self.life:
            self._switch.post_reason_to(self, items.CUT, other.pid.serial, self.to, reason)

    def signalled(self, source: Pid, reason: ExitReason) -> None:
        """Pass the signal on; it decides there what to make of it."""
        if not self.life:
            self._switch.post_reason_to(self, items.EXIT, source.serial, self.to, reason)

    def killed(self) -> None:
        """Have it killed."""
        if not self.life:
            self._switch.post_to(self, items.KILL, self.to)

    def watched(self) -> None:
        """Ask to be told of its end, once for all who want to know."""
        if not self._watch and not self.life:
            self._watch = self._switch.arm(self)

    def unwatched(self) -> None:
        """Nobody may want to know any more."""
        if self._watch and not self.life and self.monitors is None and not self._awaited():
            number, self._watch = self._watch, 0
            self._switch.disarm(self, number)

    # --- who waits

    def await_death(self, waiter: Waiter) -> None:
        """Tell `waiter` when it is gone; a caller's answer says so by itself."""
        super().await_death(waiter)
        if not isinstance(waiter, Caller):
            self.watched()

    def forget(self, waiter: Waiter) -> None:
        """The waiter has what it wanted, or wants it no more."""
        super().forget(waiter)
        if isinstance(waiter, Caller):
            self._switch.forget(self, waiter)  # pyright: ignore[reportUnknownArgumentType] - of whatever
        else:
            self.unwatched()

    def _awaited(self) -> bool:
        waiting = self.callers
        if waiting is None:
            return False
        return any(not isinstance(each, Caller) for each in (waiting if isinstance(waiting, dict) else (waiting,)))


class Held(Away):
    """A process of another node in the hands of another thread of this one: what is sent to it is sent by the node's own thread.

    Nothing of the links is locked, so nothing of them is touched before that.
    """

    __slots__ = ("target",)

    def __init__(self, node: Node, pid: Pid, target: Pid | On) -> None:
        """`target` is who is meant; it is looked up when the node's thread comes to it."""
        super().__init__(node, pid, None, "process")
        self.behaviour = TOMBSTONE
        self.target = target

    def deliver(self, entry: Entry) -> bool:
        """Called in the node's own thread."""
        elsewhere, target = self.node.elsewhere, self.target
        if elsewhere is None:
            return False
        process = elsewhere.process(target) if isinstance(target, Pid) else elsewhere.named(target)
        return process is not None and process.deliver(entry)

    # What follows is refused by the kernel's words before they get here.

    def joined(self, other: Process) -> None:
        """Not from another thread."""
        self.node.check_thread(f"link {other} to {self.target}")

    def parted(self, other: Process) -> None:
        """Not from another thread."""
        self.node.check_thread(f"unlink {other} from {self.target}")

    def cut(self, other: Process, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it was
        """Not from another thread."""
        self.node.check_thread(f"unlink {other} from {self.target}")

    def signalled(self, source: Pid, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it was
        """Not from another thread."""
        self.node.check_thread(f"end {self.target}")

    def killed(self) -> None:
        """Not from another thread."""
        self.node.check_thread(f"kill {self.target}")

    def watched(self) -> None:
        """Not from another thread."""
        self.node.check_thread(f"monitor {self.target}")

    def unwatched(self) -> None:
        """Not from another thread."""
        self.node.check_thread(f"monitor {self.target}")
