"""A process of another node, as this one holds it: its words are items on the link that leads there.

One for each pid that is held here, by a link, a monitor, a call under way or a variable; it is forgotten when it is not held any more. A name on
another node is no process in particular: each use of it is one of its own, and is looked up there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from greenroom.supervision.behaviours.replies import Caller, exit_error
from greenroom.supervision.kernel import process_messages
from greenroom.supervision.kernel.errors import ActorError
from greenroom.supervision.kernel.process import EXITED_BEHAVIOUR, RemoteProcessBase
from greenroom.supervision.kernel.process_messages import NO_CONNECTION, Pid, make_pid

from . import link_protocol
from .addresses import CannotTravel

if TYPE_CHECKING:
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import ExitWaiter, Process
    from greenroom.supervision.kernel.process_lookup import On
    from greenroom.supervision.kernel.process_messages import Down, Exit, ExitReason, MailboxEntry

    from .remote_node import RemoteNode


class RemoteProcess(RemoteProcessBase):
    """The near end of one."""

    __slots__ = ("_remote", "_watch", "named", "to")

    def __init__(self, node: Node, remote: RemoteNode, pid: Pid, name: On | None = None) -> None:
        """`name` when it is addressed by that, and may be any process, or none."""
        super().__init__(node, pid, None, "process")
        self.behaviour = EXITED_BEHAVIOUR
        self.named = name is not None
        self.to: Any = pid.serial if name is None else [name.name]
        self._remote = remote
        self._watch = 0  # the number under which the other node was asked to tell of its end

    def __str__(self) -> str:
        return f"{self.to[0]!r} on {self.pid.node}" if self.named else f"process {self.pid}"

    __repr__ = __str__

    # --- messages

    def deliver(self, entry: MailboxEntry) -> bool:
        """Send it. False when it is gone, or the link has more to carry than it may."""
        if self.life or not self._remote.has_room:
            return False
        remote, kind = self._remote, entry[0]
        if kind == process_messages.CALL:
            remote.call(self, entry[4], link_protocol.CALL, entry[1], list(entry[2]), entry[3])
        elif kind == process_messages.CAST:
            remote.post(link_protocol.CAST, self.to, entry[1], list(entry[2]), entry[3], to=self)
        elif kind == process_messages.INFO:
            remote.post(link_protocol.SEND, self.to, entry[1], to=self)
        elif kind == process_messages.ASK:
            remote.call(self, entry[2], link_protocol.ASK, entry[1])
        elif kind == process_messages.TELL:
            remote.post(link_protocol.TELL, self.to, entry[1], to=self)
        elif kind == process_messages.STOP:
            remote.post_reason(link_protocol.STOP, self.to, entry[1], to=self)
        else:
            raise CannotTravel(f"{self} is on another node: what looks inside a process has to run there")
        return True

    def deliver_exempt(self, entry: MailboxEntry) -> bool:
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

    def send_link(self, other: Process) -> None:
        """Have it linked there too."""
        if not self.life:
            self._remote.post(link_protocol.LINK, other.pid.serial, self.to, to=self)

    def send_unlink(self, other: Process) -> None:
        """Have it unlinked there too."""
        if not self.life:
            self._remote.post(link_protocol.UNLINK, other.pid.serial, self.to, to=self)

    def send_linked_exit(self, other: Process, reason: ExitReason) -> None:
        """Tell it how the process that it was linked to has ended."""
        if not self.life:
            self._remote.post_reason(link_protocol.CUT, other.pid.serial, self.to, reason, to=self)

    def send_exit_signal(self, source: Pid, reason: ExitReason) -> None:
        """Pass the signal on; it decides there what to make of it."""
        if not self.life:
            self._remote.post_reason(link_protocol.EXIT, source.serial, self.to, reason, to=self)

    def send_kill(self) -> None:
        """Have it killed."""
        if not self.life:
            self._remote.post(link_protocol.KILL, self.to, to=self)

    def add_watch(self) -> None:
        """Ask to be told of its end, once for all watchers here."""
        if not self._watch and not self.life:
            self._watch = self._remote.arm(self)

    def drop_watch(self) -> None:
        """Take that request back once nothing here watches it any more."""
        if self._watch and not self.life and self.monitors is None and not self._awaited():
            number, self._watch = self._watch, 0
            self._remote.disarm(self, number)

    # --- waiters

    def add_exit_waiter(self, waiter: ExitWaiter) -> None:
        """Tell `waiter` when it is gone; a caller's answer says so by itself."""
        super().add_exit_waiter(waiter)
        if not isinstance(waiter, Caller):
            self.add_watch()

    def remove_exit_waiter(self, waiter: ExitWaiter) -> None:
        """The waiter has what it wanted, or wants it no more."""
        super().remove_exit_waiter(waiter)
        if isinstance(waiter, Caller):
            self._remote.forget(self, waiter)  # pyright: ignore[reportUnknownArgumentType] - of whatever
        else:
            self.drop_watch()

    def _awaited(self) -> bool:
        waiting = self.callers
        if waiting is None:
            return False
        return any(not isinstance(each, Caller) for each in (waiting if isinstance(waiting, dict) else (waiting,)))


class CrossThreadProcess(RemoteProcessBase):
    """A process of another node in the hands of another thread of this one: what is sent to it is sent by the node's own thread.

    Nothing of the links is locked, so nothing of them is touched before that.
    """

    __slots__ = ("target",)

    def __init__(self, node: Node, pid: Pid, target: Pid | On) -> None:
        """`target` is the process that is meant; it is looked up when the node's thread comes to it."""
        super().__init__(node, pid, None, "process")
        self.behaviour = EXITED_BEHAVIOUR
        self.target = target

    def deliver(self, entry: MailboxEntry) -> bool:
        """Called in the node's own thread."""
        elsewhere, target = self.node.remote_nodes, self.target
        if elsewhere is None:
            return False
        process = elsewhere.process(target) if isinstance(target, Pid) else elsewhere.named(target)
        return process is not None and process.deliver(entry)

    def _refuse(self, *_: Any, **__: Any) -> None:
        """Not from another thread; the kernel's words refuse it before it gets here."""
        self.node.check_thread(f"link, monitor or end {self.target}")

    send_link = send_unlink = send_linked_exit = send_exit_signal = send_kill = add_watch = drop_watch = _refuse


# --- Processes of the other node that wait for something here: for the answer to a call, or for an end.

_get_ident = threading.get_ident


class RemoteCaller(Caller[Any]):
    """A caller on the other node: what it is answered goes back there, once."""

    __slots__ = ("_number", "_remote", "_source")

    def __init__(self, remote: RemoteNode, callee: Process, source: int | None, number: int) -> None:
        """`source` is the caller's serial, if it is a process; `number` is what the other node knows the call by."""
        super().__init__(remote.node, callee, None)
        self._remote = remote
        self._source = source
        self._number = number

    @property
    def process(self) -> Process | None:
        """The calling process, as this node sees it."""
        return None if self._source is None else self._remote.there(self._source)

    @property
    def pid(self) -> Pid | None:
        """The caller's address."""
        remote = self._remote
        return None if self._source is None else make_pid(remote.name, remote.life or 0, self._source)

    def on_exit(self, reason: ExitReason) -> None:
        """The callee is gone: the caller's own node makes the error of it."""
        if super()._settle(None, exit_error(reason, self._callee)):
            self._remote.callers.pop(self._number, None)
            self._remote.post_reason(link_protocol.EXITED, self._number, reason)

    def drop(self) -> None:
        """The caller does not wait for it any more."""
        super()._settle(None, exit_error(NO_CONNECTION, self._callee))

    def _settle(self, value: Any, error: BaseException | None) -> bool:
        node = self._node
        if _get_ident() != node.thread:
            return node.call_from_thread(self._settle, value, error)
        if not super()._settle(value, error):
            return False
        self._remote.callers.pop(self._number, None)
        try:
            if error is None:
                self._remote.post(link_protocol.REPLY, self._number, value)
            else:
                self._remote.post(link_protocol.FAIL, self._number, error)
        except CannotTravel as refused:
            self._remote.post(link_protocol.FAIL, self._number, refused)
        return True


class RemoteWatch:
    """A watch of the other node on a process here."""

    __slots__ = ("_number", "_remote", "process")

    def __init__(self, remote: RemoteNode, process: Process, number: int) -> None:
        """`number` is what the other node knows it by."""
        self._remote = remote
        self._number = number
        self.process = process

    def on_exit(self, reason: ExitReason) -> None:
        """That was it."""
        self._remote.watches.pop(self._number, None)
        self._remote.post_reason(link_protocol.GONE, self._number, reason)

    def drop(self) -> None:
        """The other node does not want to know any more."""
        self.process.remove_exit_waiter(self)
