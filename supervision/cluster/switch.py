"""Everything between this node and one other: the processes of it that are held here, the calls under way, and what comes on the link.

While the other is being dialled, what is said to it waits; when it is lost, everything that is held of it dies with `NoConnection`, and
whoever called, linked or watched hears of that as of any death.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from greenroom.supervision.behaviours.caller import Caller, exited
from greenroom.supervision.kernel import exits, links
from greenroom.supervision.kernel.errors import ActorError, MailboxFull, NotRegistered
from greenroom.supervision.kernel.messages import ASK, CALL, CAST, INFO, STOP, TELL
from greenroom.supervision.kernel.pid import make_pid
from greenroom.supervision.kernel.reasons import NO_CONNECTION, NO_PROCESS, Crash, Shutdown

from . import items
from .far import FarProcess
from .values import CannotTravel, RemoteError, decode, encode, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from greenroom.supervision.kernel.names import On
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.pid import Pid
    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.kernel.reasons import ExitReason

    from .link import Link

_get_ident = threading.get_ident
ROOM: Final = 256 * 1024 * 1024
"""How many bytes may wait for one link; then casts say no, and calls raise `MailboxFull`."""


class FarCaller(Caller[Any]):
    """A caller on the other node: what it is answered goes back there, once."""

    __slots__ = ("_number", "_switch")

    def __init__(self, switch: Switch, callee: Process | None, process: Process | None, number: int) -> None:
        """`number` is what the other node knows the call by."""
        super().__init__(switch.node, callee, process)
        self._switch = switch
        self._number = number

    def exited(self, reason: ExitReason) -> None:
        """The callee is gone: the caller's own node makes the error of it."""
        if super()._settle(None, exited(reason, self._callee)):
            self._switch.answered(self._number)
            self._switch.post_reason(items.EXITED, self._number, reason)

    def drop(self) -> None:
        """Nobody waits for it any more."""
        super()._settle(None, exited(NO_CONNECTION, self._callee))

    def _settle(self, value: Any, error: BaseException | None) -> bool:
        if _get_ident() != self._node.thread:
            return self._node.from_thread(self._settle, value, error)
        if not super()._settle(value, error):
            return False
        self._switch.answered(self._number)
        if error is None:
            try:
                self._switch.post(items.REPLY, self._number, value)
            except CannotTravel as refused:
                self._switch.post(items.FAIL, self._number, refused)
        else:
            self._switch.post(items.FAIL, self._number, error)
        return True


class _Watch:
    """Somebody on the other node wants to know of an end here."""

    __slots__ = ("_switch", "of", "process")

    def __init__(self, switch: Switch, process: Process, of: Any) -> None:
        self._switch = switch
        self.process = process
        self.of = of

    def exited(self, reason: ExitReason) -> None:
        self._switch.watches.pop(_key(self.of), None)
        self._switch.post_reason(items.GONE, self.of, reason)


class Switch:
    """This node's half of what two nodes know of each other."""

    def __init__(self, node: Node, name: str, life: int | None = None) -> None:
        """`life` is the other's incarnation, when that is known already."""
        self.node = node
        self.name = name
        self.life = life
        self.link: Link | None = None
        self.lost = False
        self.watches: dict[Any, _Watch] = {}
        self._far: WeakValueDictionary[Any, FarProcess] = WeakValueDictionary()
        self._calls: dict[int, Caller[Any]] = {}
        self._callers: dict[int, FarCaller] = {}
        self._number = 0
        self._backlog: list[bytes] = []
        self._backlog_bytes = 0

    def __repr__(self) -> str:
        return f"<Switch to {self.name}{', lost' if self.lost else '' if self.link else ', not connected yet'}>"

    # --- the link

    def connect(self, link: Link, life: int) -> None:
        """It is there. What was meant for another life of that node finds nobody."""
        if self.life not in (None, life):
            self._backlog = []
            self._bury_all(NO_PROCESS)
        self.life, self.link = life, link
        for item in self._backlog:
            link.post(item)
        self._backlog, self._backlog_bytes = [], 0

    def lose(self) -> None:
        """The other node cannot be reached any more."""
        if self.lost:
            return
        self.lost, self.link = True, None
        for watch in tuple(self.watches.values()):
            watch.process.forget(watch)
        self.watches.clear()
        for caller in tuple(self._callers.values()):
            caller.drop()
        self._callers.clear()
        self._bury_all(NO_CONNECTION)
        self._calls.clear()

    def _bury_all(self, reason: ExitReason) -> None:
        for far in tuple(self._far.values()):
            self._bury(far, reason)
        self._far.clear()

    def _bury(self, far: FarProcess, reason: ExitReason) -> None:
        if not far.life:
            far.reason = reason
            exits.bury(far)

    # --- out

    @property
    def has_room(self) -> bool:
        """Whether anything more may be said now."""
        return (self._backlog_bytes if self.link is None else self.link.waiting) < ROOM

    def process(self, pid: Pid) -> FarProcess | None:
        """The process with that pid; None in another life of its node."""
        if self.life is None:
            self.life = pid.incarnation
        elif pid.incarnation != self.life:
            return None
        far = self._far.get(pid.serial)
        if far is None:
            far = self._far[pid.serial] = FarProcess(self.node, self, pid)
        return far

    def named(self, name: On) -> FarProcess:
        """Whoever has that name there, if anybody has."""
        far = self._far.get(key := (name.name,))
        if far is None:
            nobody = make_pid(self.name, self.life or 0, 0)
            far = self._far[key] = FarProcess(self.node, self, nobody, name)
        return far

    def post(self, *item: Any) -> None:
        """Say something. Raises `CannotTravel`."""
        if self.lost:
            return
        encoded = encode(list(item), self.node.name)
        if self.link is not None:
            self.link.post(encoded)
        else:
            self._backlog.append(encoded)
            self._backlog_bytes += len(encoded)

    def post_reason(self, *item: Any) -> None:
        """Say something that ends with a reason, whatever that is made of."""
        try:
            self.post(*item)
        except CannotTravel:
            self.post(*item[:-1], _told(item[-1]))

    def call(self, caller: Caller[Any], kind: int, to: Any, *rest: Any) -> None:
        """Ask something; the answer finds `caller`."""
        self._number += 1
        me = caller.process
        self.post(kind, self._number, None if me is None else me.pid.serial, to, *rest)
        self._calls[self._number] = caller

    def sweep(self) -> None:
        """Forget calls that nobody waits for any more, here and there."""
        for number in [number for number, caller in self._calls.items() if caller.over]:
            del self._calls[number]
            self.post(items.FORGET, number)

    def answered(self, number: int) -> None:
        """A call that came from there is over."""
        self._callers.pop(number, None)

    # --- in

    def came(self, payload: bytes) -> None:
        """A batch of items."""
        try:
            batch: list[list[Any]] = decode(payload)
        except Exception:  # noqa: BLE001 - something in it cannot be made here: find out what, and for whom
            batch = list(self._one_by_one(payload))
        for item in batch:
            try:
                _HANDLERS[item[0]](self, *item[1:])
            except Exception as error:  # noqa: BLE001 - one item that makes no sense must not cost the others
                self.node.loop.call_exception_handler(
                    {"message": f"what {self.name} said could not be dealt with", "exception": error}
                )

    def _one_by_one(self, payload: bytes) -> Iterator[list[Any]]:
        for raw in split(payload):
            try:
                yield decode(raw)
            except Exception as error:  # noqa: BLE001 - told to whom it concerns
                refused = self._unreadable(split(raw), error)
                if refused is not None:
                    yield refused

    def _unreadable(self, parts: list[bytes], error: Exception) -> list[Any] | None:
        """What is made of an item whose content cannot be: whoever waits hears of it, and an end stays an end."""
        kind = decode(parts[0])
        wrong = CannotTravel(
            f"what {self.name} sent cannot be made on {self.node.name}: {type(error).__name__}: {error}"
        )
        wrong.__cause__ = error
        if kind in (items.CALL, items.ASK):
            self.post(items.FAIL, decode(parts[1]), wrong)
        elif kind == items.REPLY:
            return [items.FAIL, decode(parts[1]), wrong]
        elif kind in (items.GONE, items.CUT, items.EXIT, items.EXITED, items.STOP):
            return [*(decode(part) for part in parts[:-1]), Crash(wrong)]
        else:
            self.node.loop.call_exception_handler(
                {"message": f"a message from {self.name} was dropped", "exception": wrong}
            )
        return None

    def _here(self, to: Any) -> Process | None:
        return self.node.processes.get(to) if type(to) is int else self.node.names.get(to[0])

    def _there(self, serial: int) -> FarProcess | None:
        return None if self.life is None else self.process(make_pid(self.name, self.life, serial))

    def _deliver(self, to: Any, *entry: Any) -> None:
        process = self._here(to)
        if process is not None:
            process.deliver(entry)

    def _on_send(self, to: Any, message: Any) -> None:
        self._deliver(to, INFO, message)

    def _on_cast(self, to: Any, method: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        self._deliver(to, CAST, method, tuple(args), kwargs)

    def _on_tell(self, to: Any, request: Any) -> None:
        self._deliver(to, TELL, request)

    def _on_stop(self, to: Any, reason: ExitReason) -> None:
        process = self._here(to)
        if process is not None:
            process.deliver_exempt((STOP, reason))

    def _on_call(self, number: int, source: int | None, to: Any, method: Any, args: list[Any], kwargs: Any) -> None:
        self._begin(number, source, to, lambda caller: (CALL, method, tuple(args), kwargs, caller))

    def _on_ask(self, number: int, source: int | None, to: Any, request: Any) -> None:
        self._begin(number, source, to, lambda caller: (ASK, request, caller))

    def _begin(self, number: int, source: int | None, to: Any, entry: Callable[[FarCaller], Any]) -> None:
        process = self._here(to)
        if process is None:
            if type(to) is int:
                self.post(items.EXITED, number, NO_PROCESS)
            else:
                self.post(items.FAIL, number, NotRegistered(NO_PROCESS, to[0]))
            return
        caller = FarCaller(self, process, None if source is None else self._there(source), number)
        self._callers[number] = caller
        process.await_death(caller)
        if not process.deliver(entry(caller)) and not process.life:
            caller.fail(MailboxFull(str(process), process.limit or 0))

    def _on_reply(self, number: int, value: Any) -> None:
        caller = self._calls.pop(number, None)
        if caller is not None:
            caller.reply(value)

    def _on_fail(self, number: int, error: BaseException) -> None:
        caller = self._calls.pop(number, None)
        if caller is not None:
            caller.fail(error)

    def _on_exited(self, number: int, reason: ExitReason) -> None:
        caller = self._calls.pop(number, None)
        if caller is not None:
            caller.exited(reason)

    def _on_forget(self, number: int) -> None:
        caller = self._callers.pop(number, None)
        if caller is not None:
            caller.drop()

    def _on_watch(self, to: Any) -> None:
        process = self._here(to)
        if process is None:
            self.post(items.GONE, to, NO_PROCESS)
        elif _key(to) not in self.watches:
            watch = self.watches[_key(to)] = _Watch(self, process, to)
            process.await_death(watch)

    def _on_unwatch(self, to: Any) -> None:
        watch = self.watches.pop(_key(to), None)
        if watch is not None:
            watch.process.forget(watch)

    def _on_gone(self, of: Any, reason: ExitReason) -> None:
        far = self._far.pop(_key(of), None)
        if far is not None:
            self._bury(far, reason)

    def _on_link(self, source: int, to: Any) -> None:
        process, far = self._here(to), self._there(source)
        if far is None:
            return
        if process is None or process.life:
            self.post(items.CUT, to if type(to) is int else 0, source, NO_PROCESS)
        else:
            links.tie(process, far)

    def _on_unlink(self, source: int, to: Any) -> None:
        process, far = self._here(to), self._far.get(source)
        if process is not None and far is not None:
            links.forget_link(process, far)
            links.forget_link(far, process)

    def _on_cut(self, source: int, to: int, reason: ExitReason) -> None:
        process, far = self._here(to), self._far.get(source)
        if process is None or far is None or far not in links.linked(process):
            return  # it was unlinked meanwhile
        links.forget_link(process, far)
        links.forget_link(far, process)
        exits.signal(process, far.pid, reason)

    def _on_exit(self, source: int, to: Any, reason: ExitReason) -> None:
        process = self._here(to)
        if process is not None:
            exits.signal(process, make_pid(self.name, self.life or 0, source), reason)

    def _on_kill(self, to: Any) -> None:
        process = self._here(to)
        if process is not None:
            exits.kill(process)

    def _on_beat(self) -> None:
        """Somebody is there: the link has taken note of when."""


_HANDLERS: Final[dict[int, Any]] = {
    getattr(items, name.removeprefix("_on_").upper()): handler
    for name, handler in vars(Switch).items()
    if name.startswith("_on_")
}


def _key(of: Any) -> Any:
    """A serial, or a name, as what it is found by here."""
    return of if type(of) is int else (of[0],)


def _told(reason: ExitReason) -> ExitReason:
    """A reason that cannot travel, in words."""
    if isinstance(reason, Shutdown):
        return Shutdown(str(reason.detail))
    error = reason.error if isinstance(reason, Crash) else ActorError(str(reason))
    return Crash(RemoteError(type(error).__name__, str(reason)))
