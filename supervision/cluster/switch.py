"""Everything between this node and one other: the processes of it that are held here, the calls under way, and what waits to be said.

While the other is being dialled, what is said to it waits; when it is lost, everything that is held of it dies with `NoConnection`, and
callers, links and monitors hear of that as of any death.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from greenroom.supervision.kernel import links, messages
from greenroom.supervision.kernel import process as cell
from greenroom.supervision.kernel.errors import ActorError, MailboxFull, NotRegistered
from greenroom.supervision.kernel.messages import NO_CONNECTION, NO_PROCESS, Crash, Shutdown, as_reason, make_pid

from . import items
from .addresses import CannotTravel
from .framing import LARGEST, LinkRefused
from .remote_process import FarCaller, FarProcess, FarWatch
from .values import RemoteError, decode, encode, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from greenroom.supervision.behaviours.caller import Caller
    from greenroom.supervision.kernel.current import On
    from greenroom.supervision.kernel.messages import ExitReason, Pid
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import Process

    from .link import Link

ROOM: Final = 256 * 1024 * 1024
"""How many bytes may wait for one link; then casts say no, and calls raise `MailboxFull`."""


class Switch:
    """This node's half of what two nodes know of each other, from dialling to the loss."""

    def __init__(self, node: Node, name: str) -> None:
        """Not connected yet; the life of that node is not known."""
        self.node = node
        self.name = name
        self.life: int | None = None
        self.link: Link | None = None
        self.lost = False
        self.watches: dict[int, FarWatch] = {}  # theirs, of processes here
        self.callers: dict[int, FarCaller] = {}  # theirs, of processes here
        self.calls: dict[int, Caller[Any]] = {}  # ours
        self._numbers: dict[Caller[Any], int] = {}
        self.armed: dict[int, FarProcess] = {}  # our watches: a process that is watched is held by that
        self._far: WeakValueDictionary[Pid, FarProcess] = WeakValueDictionary()
        self._number = 0
        self._backlog: list[tuple[int | None, bytes]] = []
        self._backlog_bytes = 0

    def __repr__(self) -> str:
        return f"<Switch to {self.name}{', lost' if self.lost else '' if self.link else ', not connected yet'}>"

    # --- the link

    def connect(self, link: Link, life: int) -> None:
        """It is there. Items that were meant for another life of that node are dropped."""
        self.life, self.link = life, link
        backlog, self._backlog, self._backlog_bytes = self._backlog, [], 0
        for meant, item in backlog:
            if meant in (None, life):
                link.post(item)
        self._bury_all(NO_PROCESS, but=life)

    def lose(self) -> None:
        """The other node cannot be reached any more."""
        if self.lost:
            return
        self.lost, self.link = True, None
        self._backlog, self._backlog_bytes = [], 0
        for watch in tuple(self.watches.values()):
            watch.drop()
        for caller in tuple(self.callers.values()):
            caller.drop()
        self.watches.clear()
        self.callers.clear()
        self._bury_all(NO_CONNECTION)
        for ours in tuple(self.calls.values()):  # those to a name, whose process was not known
            ours.exited(NO_CONNECTION)
        self.calls.clear()
        self._numbers.clear()

    def _bury_all(self, reason: ExitReason, but: int | None = None) -> None:
        """All that are held, `but` not those of that life of the other node, nor those held by a name."""
        for far in dict.fromkeys((*self.armed.values(), *self._far.values())):
            if but is None or not (far.named or far.pid.incarnation == but):
                self.bury(far, reason)

    def bury(self, far: FarProcess, reason: ExitReason) -> None:
        """It is gone."""
        if not far.life:
            self._far.pop(far.pid, None)
            far.reason = reason
            cell.bury(far)

    # --- the processes of the other node

    def process(self, pid: Pid) -> FarProcess | None:
        """The process with that pid; None in another life of its node."""
        if self.link is not None and pid.incarnation != self.life:
            return None
        far = self._far.get(pid)
        if far is None:
            far = self._far[pid] = FarProcess(self.node, self, pid)
        return far

    def named(self, name: On) -> FarProcess:
        """The process that has that name there, if any has. Raises `CannotTravel`."""
        encode(name.name, self.node.name)
        return FarProcess(self.node, self, make_pid(self.name, self.life or 0, 0), name)

    def there(self, serial: int) -> FarProcess | None:
        """A process that the other node speaks of."""
        return None if self.life is None else self.process(make_pid(self.name, self.life, serial))

    def known(self, serial: int) -> FarProcess | None:
        """The same, if it is held here."""
        return None if self.life is None else self._far.get(make_pid(self.name, self.life, serial))

    # --- out

    @property
    def has_room(self) -> bool:
        """Whether anything more may be said now."""
        return (self._backlog_bytes if self.link is None else self.link.waiting) < ROOM

    def post(self, *item: Any, to: FarProcess | None = None) -> None:
        """Say something; `to` one process, it is to no other that may have its number in another life. Raises `CannotTravel`."""
        if self.lost:
            return
        encoded = encode(list(item), self.node.name)
        if len(encoded) > LARGEST - 5:
            raise CannotTravel(
                f"a message of {len(encoded)} bytes cannot travel to another node: at most {LARGEST - 5}"
            )
        if self.link is not None:
            self.link.post(encoded)
        else:
            self._backlog.append((None if to is None or to.named else to.pid.incarnation, encoded))
            self._backlog_bytes += len(encoded)

    def post_reason(self, *item: Any, to: FarProcess | None = None) -> None:
        """Say something that ends with a reason, whatever that is made of."""
        try:
            self.post(*item, to=to)
        except CannotTravel:
            self.post(*item[:-1], _told(item[-1]), to=to)

    # --- calls and watches of ours

    def call(self, far: FarProcess, caller: Caller[Any], kind: int, *rest: Any) -> None:
        """Ask something; the answer finds `caller`."""
        number = self._number = self._number + 1
        me = caller.process
        self.post(kind, number, None if me is None or me.away else me.pid.serial, far.to, *rest, to=far)
        if not self.lost:
            self.calls[number] = caller
            self._numbers[caller] = number

    def answered(self, number: int) -> Caller[Any] | None:
        """The answer to a call has come: the caller, if it still waits."""
        caller = self.calls.pop(number, None)
        if caller is not None:
            del self._numbers[caller]
        return caller

    def forget(self, far: FarProcess, caller: Caller[Any]) -> None:
        """The caller does not wait for that answer any more: say so, unless it has just come."""
        number = self._numbers.pop(caller, None)
        if number is not None:
            del self.calls[number]
            self.post(items.FORGET, number, to=far)

    def arm(self, far: FarProcess) -> int:
        """Ask to be told of its end."""
        number = self._number = self._number + 1
        self.post(items.WATCH, number, far.to, to=far)
        self.armed[number] = far
        return number

    def disarm(self, far: FarProcess, number: int) -> None:
        """No more."""
        if self.armed.pop(number, None) is not None:
            self.post(items.UNWATCH, number, to=far)


def _told(reason: ExitReason) -> ExitReason:
    """A reason that cannot travel, in words."""
    if isinstance(reason, Shutdown):
        try:
            return Shutdown(str(reason.detail))
        except Exception:  # noqa: BLE001 - whatever a user's __str__ does
            return Shutdown(object.__repr__(reason.detail))
    error = reason.error if isinstance(reason, Crash) else ActorError(str(reason))
    return Crash(RemoteError(type(error).__name__, str(reason)))


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
    _deliver(switch, to, messages.INFO, message)


def _cast(switch: Switch, to: Any, method: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
    _deliver(switch, to, messages.CAST, method, tuple(args), kwargs)


def _tell(switch: Switch, to: Any, request: Any) -> None:
    _deliver(switch, to, messages.TELL, request)


def _stop(switch: Switch, to: Any, reason: ExitReason) -> None:
    process = _here(switch, to)
    if process is not None:
        process.deliver_exempt((messages.STOP, as_reason(reason)))


def _call(switch: Switch, number: int, source: int | None, to: Any, method: Any, args: list[Any], kwargs: Any) -> None:  # noqa: PLR0913, PLR0917 - the item's parts
    _begin(switch, number, source, to, lambda caller: (messages.CALL, method, tuple(args), kwargs, caller))


def _ask(switch: Switch, number: int, source: int | None, to: Any, request: Any) -> None:
    _begin(switch, number, source, to, lambda caller: (messages.ASK, request, caller))


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
    far = switch.armed.pop(number, None)
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
    cell.signal(process, far.pid, as_reason(reason))


def _exit(switch: Switch, source: int, to: Any, reason: ExitReason) -> None:
    process = _here(switch, to)
    if process is not None:
        cell.signal(process, make_pid(switch.name, switch.life or 0, source), as_reason(reason))


def _kill(switch: Switch, to: Any) -> None:
    process = _here(switch, to)
    if process is not None:
        cell.kill(process)


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
