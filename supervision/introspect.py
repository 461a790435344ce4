"""Look into a running server between two of its messages, from outside: OTP's `sys`.

Each of these is a system message. It waits its turn behind what was sent before, but passes a suspended server; no
callback sees it, and an event timeout goes on. Made for debugging, tests and repairs, not for programs to rely on.

The state of a server is its instance's fields: what `vars()` shows, and its slots. A state machine has one more: `state`.
"""

# ruff: noqa: SLF001 - to look into servers is what this file is for
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from .behaviours.actions import Reject
from .behaviours.caller import Caller, absent, settle_call
from .behaviours.calls import DEFAULT_TIMEOUT
from .behaviours.server import Server
from .kernel.api import resolve
from .kernel.clock import check_seconds
from .kernel.current import current, current_node
from .kernel.errors import ActorError
from .kernel.messages import SYSTEM
from .snapshot import take as snapshot
from .tracing import watch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from .kernel.pid import Pid

__all__ = ["Status", "get_state", "replace_state", "resume", "snapshot", "status", "suspend", "watch"]

T = TypeVar("T")

_ENGINE = ("greenroom.supervision.behaviours.", "greenroom.supervision.kernel.", "greenroom.supervision.statem.")


@dataclass(frozen=True, slots=True)
class Status:
    """What a server says of itself besides its state; `waiting` is how many messages lie in its mailbox."""

    pid: Pid
    label: str
    behaviour: type[Server]
    names: tuple[Hashable, ...]
    parent: Pid | None
    suspended: bool
    waiting: int


async def get_state(who: object, timeout: float | None = DEFAULT_TIMEOUT) -> dict[str, Any]:
    """The fields of a server by name: a new dict, of the very values."""
    return await _ask(who, _get_fields, timeout)


async def replace_state(
    who: object,
    function: Callable[[dict[str, Any]], Mapping[str, Any]],
    timeout: float | None = DEFAULT_TIMEOUT,
) -> dict[str, Any]:
    """Give a server the fields that `function` makes of the ones it has, and return them.

    What `function` leaves out is deleted. When it raises, its error is raised here; the server keeps its state, and lives.
    """

    def replace(server: Server) -> dict[str, Any]:
        before = _get_fields(server)
        try:
            after = dict(function(dict(before)))
            _set_fields(server, before, after)
        except Exception as error:
            raise Reject(error) from error
        return after

    return await _ask(who, replace, timeout)


async def suspend(who: object, timeout: float | None = DEFAULT_TIMEOUT) -> None:
    """Have a server keep its messages instead of handling them, until `resume`. It can still be stopped and looked into."""
    await _ask(who, lambda server: server._otp_set_aside(), timeout)


async def resume(who: object, timeout: float | None = DEFAULT_TIMEOUT) -> None:
    """Have a suspended server go on, with what came meanwhile, in order."""
    await _ask(who, lambda server: server._otp_take_up(), timeout)


async def status(who: object, timeout: float | None = DEFAULT_TIMEOUT) -> Status:
    """Who the server is, and whether it keeps up."""

    def look(server: Server) -> Status:
        process = server._otp_process
        return Status(
            pid=process.pid,
            label=process.label,
            behaviour=type(server),
            names=tuple(process.names or ()),
            parent=None if process.parent is None else process.parent.pid,
            suspended=server._otp_kept is not None,
            waiting=len(process.mailbox or ()) + len(server._otp_kept or ()),
        )

    return await _ask(who, look, timeout)


async def _ask(who: object, look: Callable[[Server], T], timeout: float | None) -> T:
    """Have `look` called with the server, in its own context."""
    check_seconds(timeout)
    node = current_node()
    process, pid, name = resolve(node, who)
    if process is None:
        raise absent(node, pid, name)
    if process.away:
        raise ActorError(f"{process} is on another node: look into it there")
    if not isinstance(process.behaviour.inner, Server) and not process.life:
        message = f"{process} is no server: it has no state to look into, and takes no system messages"
        raise ActorError(message)
    caller: Caller[T] = Caller(node, process, current.get())
    return await settle_call(process, (SYSTEM, look, caller), caller, timeout)


def _slots(cls: type) -> tuple[str, ...]:
    slots: Any = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _fields(server: Server) -> list[str]:
    """The names of its fields: the behaviour's own bookkeeping is not among them."""
    theirs = [cls for cls in reversed(type(server).__mro__) if not cls.__module__.startswith(_ENGINE)]
    slots = [name for cls in theirs for name in _slots(cls) if name not in ("__dict__", "__weakref__")]
    return [*server._otp_shown, *(name for name in slots if hasattr(server, name)), *getattr(server, "__dict__", {})]


def _get_fields(server: Server) -> dict[str, Any]:
    return {name: getattr(server, name) for name in _fields(server)}


def _set_fields(server: Server, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    real = server._otp_shown
    try:
        for name in before.keys() - after.keys():
            delattr(server, real.get(name, name))
        for name, value in after.items():
            setattr(server, real.get(name, name), value)
    except AttributeError:  # no such slot: all or nothing
        for name in _fields(server):
            if name not in before:
                delattr(server, name)
        for name, value in before.items():
            setattr(server, real.get(name, name), value)
        raise
