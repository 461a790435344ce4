"""A process of another node, as this one holds it: its words are items on the link that leads there.

One for each pid that is held here, by a link, a monitor, a call under way or a variable; it is forgotten when it is not held any more. A name on
another node is no process in particular: each use of it is one of its own, and is looked up there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from greenroom.supervision.behaviours.caller import Caller, exited
from greenroom.supervision.kernel import messages
from greenroom.supervision.kernel.errors import ActorError
from greenroom.supervision.kernel.messages import NO_CONNECTION, Pid, make_pid
from greenroom.supervision.kernel.process import TOMBSTONE, Away

from . import items
from .addresses import CannotTravel

if TYPE_CHECKING:
    from greenroom.supervision.kernel.current import On
    from greenroom.supervision.kernel.messages import Down, Entry, Exit, ExitReason
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import Process, Waiter

    from .switch import Switch


class FarProcess(Away):
    """The near end of one."""

    __slots__ = ("_switch", "_watch", "named", "to")

    def __init__(self, node: Node, switch: Switch, pid: Pid, name: On | None = None) -> None:
        """`name` when it is addressed by that, and may be any process, or none."""
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
        if kind == messages.CALL:
            switch.call(self, entry[4], items.CALL, entry[1], list(entry[2]), entry[3])
        elif kind == messages.CAST:
            switch.post(items.CAST, self.to, entry[1], list(entry[2]), entry[3], to=self)
        elif kind == messages.INFO:
            switch.post(items.SEND, self.to, entry[1], to=self)
        elif kind == messages.ASK:
            switch.call(self, entry[2], items.ASK, entry[1])
        elif kind == messages.TELL:
            switch.post(items.TELL, self.to, entry[1], to=self)
        elif kind == messages.STOP:
            switch.post_reason(items.STOP, self.to, entry[1], to=self)
        else:
            raise CannotTravel(f"{self} is on another node: what looks inside a process has to run there")
        return True

    def deliver_exempt(self, entry: Entry) -> bool:
        """As `deliver`: what bounds its mailbox is known there."""
        return self.deliver(entry)

    def deliver_signal(self, message: Down | Exit) -> None:
        """Never: a watcher there is told by an item of its own."""
        raise CannotTravel(f"{message!r} is for {self}, which is on another node")

    # --- links and monitors: none of these may raise, since deaths pass through them

    def check_link(self) -> None:
        """Refuse a link to a name: it would be to the process that has that name when the wish arrives there."""
        if self.named:
            raise ActorError(
                f"cannot link to {self}: a link is to a process and not to a name, so ask whose it is: await whereis_on(…)"
            )

    def joined(self, other: Process) -> None:
        """Have it linked there too."""
        if not self.life:
            self._switch.post(items.LINK, other.pid.serial, self.to, to=self)

    def parted(self, other: Process) -> None:
        """Have it unlinked there too."""
        if not self.life:
            self._switch.post(items.UNLINK, other.pid.serial, self.to, to=self)

    def cut(self, other: Process, reason: ExitReason) -> None:
        """Tell it how the process that it was linked to has ended."""
        if not self.life:
            self._switch.post_reason(items.CUT, other.pid.serial, self.to, reason, to=self)

    def signalled(self, source: Pid, reason: ExitReason) -> None:
        """Pass the signal on; it decides there what to make of it."""
        if not self.life:
            self._switch.post_reason(items.EXIT, source.serial, self.to, reason, to=self)

    def killed(self) -> None:
        """Have it killed."""
        if not self.life:
            self._switch.post(items.KILL, self.to, to=self)

    def watched(self) -> None:
        """Ask to be told of its end, once for all watchers here."""
        if not self._watch and not self.life:
            self._watch = self._switch.arm(self)

    def unwatched(self) -> None:
        """Take that request back once nothing here watches it any more."""
        if self._watch and not self.life and self.monitors is None and not self._awaited():
            number, self._watch = self._watch, 0
            self._switch.disarm(self, number)

    # --- waiters

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
        """`target` is the process that is meant; it is looked up when the node's thread comes to it."""
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

    def _refuse(self, *_: Any, **__: Any) -> None:
        """Not from another thread; the kernel's words refuse it before it gets here."""
        self.node.check_thread(f"link, monitor or end {self.target}")

    joined = parted = cut = signalled = killed = watched = unwatched = _refuse


# --- Processes of the other node that wait for something here: for the answer to a call, or for an end.

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
        """The calling process, as this node sees it."""
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
        """The caller does not wait for it any more."""
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
    """A watch of the other node on a process here."""

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
        """The other node does not want to know any more."""
        self.process.forget(self)
