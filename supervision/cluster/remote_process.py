"""A process of another node, as this one holds it: its words are items on the link that leads there.

One for each pid that is held here, by a link, a monitor, a call under way or a variable; it is forgotten when it is not held any more. A name on
another node is no process in particular: each use of it is one of its own, and is looked up there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision.behaviours.caller import Caller, exited
from greenroom.supervision.kernel import exits, links
from greenroom.supervision.kernel.away import Away
from greenroom.supervision.kernel.errors import ActorError, MailboxFull, NotRegistered
from greenroom.supervision.kernel.exits import TOMBSTONE
from greenroom.supervision.kernel.messages import (
    ASK,
    CALL,
    CAST,
    INFO,
    NO_CONNECTION,
    NO_PROCESS,
    STOP,
    TELL,
    Crash,
    Pid,
    as_reason,
    make_pid,
)

from . import items
from .addresses import CannotTravel
from .framing import LinkRefused
from .values import decode, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from greenroom.supervision.kernel.messages import Down, Entry, Exit, ExitReason
    from greenroom.supervision.kernel.names import On
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
            self._switch.post_to(self, items.LINK, other.pid.serial, self.to)

    def parted(self, other: Process) -> None:
        """Have it unlinked there too."""
        if not self.life:
            self._switch.post_to(self, items.UNLINK, other.pid.serial, self.to)

    def cut(self, other: Process, reason: ExitReason) -> None:
        """Tell it how the process that it was linked to has ended."""
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


# --- What another node says, and what becomes of it here: each item is dealt with by itself, and none costs the others.


def take(switch: Switch, payload: bytes) -> None:
    """A batch of items. Raises `LinkRefused` when it is none."""
    try:
        batch: list[list[Any]] = decode(payload)
    except Exception:  # noqa: BLE001 - something in it cannot be made here: find out what, and for which waiter
        batch = list(_one_by_one(switch, payload))
    if type(batch) is not list:
        raise LinkRefused("a message that no node of this version sends")
    for item in batch:
        if switch.lost:
            return
        try:
            _HANDLERS[item[0]](switch, *item[1:])
        except Exception as error:  # noqa: BLE001 - one item that makes no sense must not cost the others
            _report(switch, f"what {switch.name} said could not be dealt with", error)


def _one_by_one(switch: Switch, payload: bytes) -> Iterator[list[Any]]:
    try:
        parts = split(payload)
    except Exception as error:
        raise LinkRefused("a message that no node of this version sends") from error
    for raw in parts:
        try:
            yield decode(raw)
        except Exception as error:  # noqa: BLE001 - told to the process that it concerns
            refused = _unreadable(switch, raw, error)
            if refused is not None:
                yield refused


def _unreadable(switch: Switch, raw: bytes, error: Exception) -> list[Any] | None:
    """What is made of an item whose content cannot be made here: the waiting caller or watcher hears of it, and an end stays an end."""
    wrong = CannotTravel(
        f"what {switch.name} sent cannot be made on {switch.node.name}: {type(error).__name__}: {error}"
    )
    wrong.__cause__ = error
    try:
        parts = split(raw)
        kind = decode(parts[0])
        if kind in (items.CALL, items.ASK):
            switch.post(items.FAIL, decode(parts[1]), wrong)
        elif kind == items.WATCH:
            switch.post(items.GONE, decode(parts[1]), NO_PROCESS)  # no process here has a name that cannot be made here
        elif kind in (items.REPLY, items.FAIL):
            return [items.FAIL, decode(parts[1]), wrong]
        elif kind in (items.GONE, items.CUT, items.EXIT, items.EXITED, items.STOP):
            return [*(decode(part) for part in parts[:-1]), Crash(wrong)]
        else:
            _report(switch, f"a message from {switch.name} was dropped", wrong)
    except Exception as broken:
        raise LinkRefused("a message that no node of this version sends") from broken
    return None


def _report(switch: Switch, what: str, error: Exception) -> None:
    switch.node.loop.call_exception_handler({"message": what, "exception": error})


# --- one for each kind of item


def _here(switch: Switch, to: Any) -> Process | None:
    return switch.node.processes.get(to) if type(to) is int else switch.node.names.get(to[0])


def _deliver(switch: Switch, to: Any, *entry: Any) -> None:
    process = _here(switch, to)
    if process is not None:
        process.deliver(entry)


def _send(switch: Switch, to: Any, message: Any) -> None:
    _deliver(switch, to, INFO, message)


def _cast(switch: Switch, to: Any, method: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    _deliver(switch, to, CAST, method, tuple(args), kwargs)


def _tell(switch: Switch, to: Any, request: Any) -> None:
    _deliver(switch, to, TELL, request)


def _stop(switch: Switch, to: Any, reason: ExitReason) -> None:
    process = _here(switch, to)
    if process is not None:
        process.deliver_exempt((STOP, as_reason(reason)))


def _call(switch: Switch, number: int, source: int | None, to: Any, method: Any, args: list[Any], kwargs: Any) -> None:  # noqa: PLR0913, PLR0917 - the item's parts
    _begin(switch, number, source, to, lambda caller: (CALL, method, tuple(args), kwargs, caller))


def _ask(switch: Switch, number: int, source: int | None, to: Any, request: Any) -> None:
    _begin(switch, number, source, to, lambda caller: (ASK, request, caller))


def _begin(
    switch: Switch, number: int, source: int | None, to: Any, entry: Callable[[FarCaller], tuple[Any, ...]]
) -> None:
    process = _here(switch, to)
    if process is None:
        if type(to) is int:
            switch.post(items.EXITED, number, NO_PROCESS)
        else:
            switch.post(items.FAIL, number, NotRegistered(NO_PROCESS, to[0]))
        return
    caller = FarCaller(switch, process, source, number)
    switch.callers[number] = caller
    process.await_death(caller)
    if not process.deliver(entry(caller)) and not process.life:
        caller.fail(MailboxFull(str(process), process.limit or 0))


def _reply(switch: Switch, number: int, value: Any) -> None:
    caller = switch.answered(number)
    if caller is not None:
        caller.reply(value)


def _fail(switch: Switch, number: int, error: BaseException) -> None:
    caller = switch.answered(number)
    if caller is not None:
        caller.fail(error)


def _exited(switch: Switch, number: int, reason: ExitReason) -> None:
    caller = switch.answered(number)
    if caller is not None:
        caller.exited(as_reason(reason))


def _forget(switch: Switch, number: int) -> None:
    caller = switch.callers.pop(number, None)
    if caller is not None:
        caller.drop()


def _watch(switch: Switch, number: int, to: Any) -> None:
    process = _here(switch, to)
    if process is None:
        switch.post(items.GONE, number, NO_PROCESS)
    else:
        watch = switch.watches[number] = FarWatch(switch, process, number)
        process.await_death(watch)


def _unwatch(switch: Switch, number: int) -> None:
    watch = switch.watches.pop(number, None)
    if watch is not None:
        watch.drop()


def _gone(switch: Switch, number: int, reason: ExitReason) -> None:
    far = switch.gone(number)
    if far is not None:
        switch.bury(far, as_reason(reason))


def _link(switch: Switch, source: int, to: int) -> None:
    process, far = _here(switch, to), switch.there(source)
    if far is None:
        return
    if process is None or process.life:
        switch.post(items.CUT, to, source, NO_PROCESS)
    else:
        links.tie(process, far)


def _unlink(switch: Switch, source: int, to: int) -> None:
    process, far = _here(switch, to), switch.known(source)
    if process is not None and far is not None:
        links.untie(process, far)


def _cut(switch: Switch, source: int, to: int, reason: ExitReason) -> None:
    process, far = _here(switch, to), switch.known(source)
    if process is None or far is None or far not in links.linked(process):
        return  # it was unlinked meanwhile
    links.untie(process, far)
    exits.signal(process, far.pid, as_reason(reason))


def _exit(switch: Switch, source: int, to: Any, reason: ExitReason) -> None:
    process = _here(switch, to)
    if process is not None:
        exits.signal(process, make_pid(switch.name, switch.life or 0, source), as_reason(reason))


def _kill(switch: Switch, to: Any) -> None:
    process = _here(switch, to)
    if process is not None:
        exits.kill(process)


def _beat(switch: Switch) -> None:
    """The other node is there: the link has taken note of when."""


_HANDLERS: Final[dict[int, Callable[..., None]]] = {
    items.SEND: _send,
    items.CAST: _cast,
    items.TELL: _tell,
    items.CALL: _call,
    items.ASK: _ask,
    items.REPLY: _reply,
    items.FAIL: _fail,
    items.EXITED: _exited,
    items.FORGET: _forget,
    items.WATCH: _watch,
    items.UNWATCH: _unwatch,
    items.GONE: _gone,
    items.LINK: _link,
    items.UNLINK: _unlink,
    items.CUT: _cut,
    items.EXIT: _exit,
    items.KILL: _kill,
    items.STOP: _stop,
    items.BEAT: _beat,
}
