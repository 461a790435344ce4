"""A process of another node as this node holds it: messages and signals to it become items on the link to that node.

There is one object per pid while a link, a monitor, a call or a variable holds it. A name on another node refers to no particular process: each use makes an
object of its own, and the name is looked up on that node.
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
    """Stands here for a process of another node."""

    __slots__ = ("_remote", "_watch", "named", "to")

    def __init__(self, node: Node, remote: RemoteNode, pid: Pid, name: On | None = None) -> None:
        """With `name`, it stands for whichever process has that name there."""
        super().__init__(node, pid, None, "process")
        self.behaviour = EXITED_BEHAVIOUR
        self.named = name is not None
        self.to: Any = pid.serial if name is None else [name.name]
        self._remote = remote
        self._watch = 0  # the number of the watch on it; 0 is none

    def __str__(self) -> str:
        return f"{self.to[0]!r} on {self.pid.node}" if self.named else f"process {self.pid}"

    __repr__ = __str__

    # --- messages

    def deliver(self, entry: MailboxEntry) -> bool:
        """Send a message. False when the process has ended, or when too much waits for the link."""
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
            raise CannotTravel(f"{self} is on another node: code that looks inside a process has to run there")
        return True

    def deliver_exempt(self, entry: MailboxEntry) -> bool:
        """As `deliver`: the bound of its mailbox is checked on its own node."""
        return self.deliver(entry)

    def deliver_signal(self, message: Down | Exit) -> None:
        """Not used: remote watchers are told by items."""
        raise CannotTravel(f"{message!r} is for {self}, which is on another node")

    # --- links and monitors: these must not raise, since ends of processes are propagated through them

    def check_link(self) -> None:
        """Refuse a link to a name: which process had it when the request arrived would be unknown."""
        if self.named:
            raise ActorError(
                f"cannot link to {self}: a link is to a process and not to a name: look the process up with await whereis_on(…)"
            )

    def send_link(self, other: Process) -> None:
        """Link it on its node."""
        if not self.life:
            self._remote.post(link_protocol.LINK, other.pid.serial, self.to, to=self)

    def send_unlink(self, other: Process) -> None:
        """Unlink it on its node."""
        if not self.life:
            self._remote.post(link_protocol.UNLINK, other.pid.serial, self.to, to=self)

    def send_linked_exit(self, other: Process, reason: ExitReason) -> None:
        """Report the end of the process that it was linked to."""
        if not self.life:
            self._remote.post_reason(link_protocol.CUT, other.pid.serial, self.to, reason, to=self)

    def send_exit_signal(self, source: Pid, reason: ExitReason) -> None:
        """Forward an exit signal."""
        if not self.life:
            self._remote.post_reason(link_protocol.EXIT, source.serial, self.to, reason, to=self)

    def send_kill(self) -> None:
        """Forward a kill."""
        if not self.life:
            self._remote.post(link_protocol.KILL, self.to, to=self)

    def add_watch(self) -> None:
        """Watch it on its node, once for all watchers here."""
        if not self._watch and not self.life:
            self._watch = self._remote.arm(self)

    def drop_watch(self) -> None:
        """End that watch when nothing here watches it any more."""
        if self._watch and not self.life and self.monitors is None and not self._awaited():
            number, self._watch = self._watch, 0
            self._remote.disarm(self, number)

    # --- waiters

    def add_exit_waiter(self, waiter: ExitWaiter) -> None:
        """Tell `waiter` when it ends. A `Caller` needs no watch: the reply to its call says so."""
        super().add_exit_waiter(waiter)
        if not isinstance(waiter, Caller):
            self.add_watch()

    def remove_exit_waiter(self, waiter: ExitWaiter) -> None:
        """The waiter does not wait any more."""
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
    """A process of another node, used from another thread of this one: what is sent goes through the node's own thread.

    The links have no locks, so no other thread may touch them.
    """

    __slots__ = ("target",)

    def __init__(self, node: Node, pid: Pid, target: Pid | On) -> None:
        """`target` is looked up in the node's thread."""
        super().__init__(node, pid, None, "process")
        self.behaviour = EXITED_BEHAVIOUR
        self.target = target

    def deliver(self, entry: MailboxEntry) -> bool:
        """Runs in the node's own thread."""
        elsewhere, target = self.node.remote_nodes, self.target
        if elsewhere is None:
            return False
        process = elsewhere.process(target) if isinstance(target, Pid) else elsewhere.named(target)
        return process is not None and process.deliver(entry)

    def _refuse(self, *_: Any, **__: Any) -> None:
        """Not possible from another thread. The public functions refuse it before this is reached."""
        self.node.check_thread(f"link, monitor or end {self.target}")

    send_link = send_unlink = send_linked_exit = send_exit_signal = send_kill = add_watch = drop_watch = _refuse


# --- Processes of the other node that wait for a process here: for a reply, or for its end.

_get_ident = threading.get_ident


class RemoteCaller(Caller[Any]):
    """A caller on the other node; it gets one reply."""

    __slots__ = ("_number", "_remote", "_source")

    def __init__(self, remote: RemoteNode, callee: Process, source: int | None, number: int) -> None:
        """`source` is the serial of the calling process, if it is one; `number` identifies the call on the other node."""
        super().__init__(remote.node, callee, None)
        self._remote = remote
        self._source = source
        self._number = number

    @property
    def process(self) -> Process | None:
        """The calling process, as this node holds it."""
        return None if self._source is None else self._remote.there(self._source)

    @property
    def pid(self) -> Pid | None:
        """The pid of the calling process."""
        remote = self._remote
        return None if self._source is None else make_pid(remote.name, remote.life or 0, self._source)

    def on_exit(self, reason: ExitReason) -> None:
        """The called process has ended; the other node makes the error for its caller."""
        if super()._settle(None, exit_error(reason, self._callee)):
            self._remote.callers.pop(self._number, None)
            self._remote.post_reason(link_protocol.EXITED, self._number, reason)

    def drop(self) -> None:
        """The caller has stopped waiting."""
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
        """`number` identifies it on the other node."""
        self._remote = remote
        self._number = number
        self.process = process

    def on_exit(self, reason: ExitReason) -> None:
        """Report the end."""
        self._remote.watches.pop(self._number, None)
        self._remote.post_reason(link_protocol.GONE, self._number, reason)

    def drop(self) -> None:
        """The other node has ended the watch."""
        self.process.remove_exit_waiter(self)
