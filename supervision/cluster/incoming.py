"""What another node says, and what becomes of it here: each item is dealt with by itself, and none costs the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision.kernel import exits, links
from greenroom.supervision.kernel.errors import MailboxFull, NotRegistered
from greenroom.supervision.kernel.messages import ASK, CALL, CAST, INFO, STOP, TELL
from greenroom.supervision.kernel.pid import make_pid
from greenroom.supervision.kernel.reasons import NO_PROCESS, Crash, as_reason

from . import items
from .abroad import FarCaller, FarWatch
from .naming import CannotTravel
from .sealing import LinkRefused
from .values import decode, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.kernel.reasons import ExitReason

    from .switch import Switch


def take(switch: Switch, payload: bytes) -> None:
    """A batch of items. Raises `LinkRefused` when it is none."""
    try:
        batch: list[list[Any]] = decode(payload)
    except Exception:  # noqa: BLE001 - something in it cannot be made here: find out what, and for whom
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
        except Exception as error:  # noqa: BLE001 - told to whom it concerns
            refused = _unreadable(switch, raw, error)
            if refused is not None:
                yield refused


def _unreadable(switch: Switch, raw: bytes, error: Exception) -> list[Any] | None:
    """What is made of an item whose content cannot be: whoever waits hears of it, and an end stays an end."""
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
            switch.post(items.GONE, decode(parts[1]), NO_PROCESS)  # a name that cannot be made here is nobody's
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
    """Somebody is there: the link has taken note of when."""


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
