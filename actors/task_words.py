"""What sessions, hosts and a task's own process say to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from greenroom.protocol.messages import Request
    from greenroom.supervision import Pid, Ref

    from .jobs import Facts


class Plan(NamedTuple):
    """What a peer's task is to do, and who waits to hear that it has begun."""

    session: Ref[Any]
    key: int
    """The session's number for the call that asked."""
    request: Request
    facts: Facts
    timeout: float | None
    asked: bool
    """Whether the peer wanted a task, rather than an answer."""


class Wait(NamedTuple):
    """A call of that session waits for the task's end."""

    session: Ref[Any]
    pid: Pid
    key: int


class Unwait(NamedTuple):
    """It does not any more."""

    pid: Pid
    key: int


class Cancel(NamedTuple):
    """The task is not wanted any more. Whoever says so may wait to hear what came of it."""

    why: str
    session: Ref[Any] | None = None
    key: int = 0


class Kept(NamedTuple):
    """To a session: what that call wants has been passed on to whoever keeps the task, who can be watched from now on."""

    key: int


class Decided(NamedTuple):
    """To a session: that call of yours can be answered from the record now. `won` is whether it was its wish that decided."""

    key: int
    won: bool = False


class Update(NamedTuple):
    """The host says how it goes."""

    message: str | None
