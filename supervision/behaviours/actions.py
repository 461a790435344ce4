"""What a callback can ask for besides its answer, as frozen values that it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from greenroom.supervision.kernel.clock import check_seconds
from greenroom.supervision.kernel.messages import IDLE_TIMEOUT
from greenroom.supervision.kernel.reasons import NORMAL, ExitReason, as_reason

T = TypeVar("T")


class _Unset:
    """No value at all, where None is one."""

    def __repr__(self) -> str:
        return "(none)"


UNSET: Final = _Unset()


@dataclass(frozen=True, slots=True)
class Continue:
    """Do this next, before any message: `handle_continue` gets `token`."""

    token: object


@dataclass(frozen=True, slots=True)
class EventTimeout:
    """`handle_info` gets `message` after so many `seconds`, unless another message comes first.

    0 is at once, before whatever lies in the mailbox; None is never. `absolute` makes `seconds` a moment on the event
    loop's clock. Looking inside the server (`introspect`) neither cancels nor restarts it.
    """

    seconds: float | None
    message: object = IDLE_TIMEOUT
    absolute: bool = False

    def __post_init__(self) -> None:
        if self.seconds is not None and not self.absolute:
            check_seconds(self.seconds)


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the caller; then perhaps `then`, or a `Timeout` message when nothing else comes for `idle_after` seconds."""

    value: object
    then: Continue | EventTimeout | None = None
    idle_after: float | None = None

    def __post_init__(self) -> None:
        _check_next(self.then, self.idle_after)


@dataclass(frozen=True, slots=True)
class NoReply:
    """Go on without an answer: for casts and messages, or for a call that is answered later by its `Caller`."""

    then: Continue | EventTimeout | None = None
    idle_after: float | None = None

    def __post_init__(self) -> None:
        _check_next(self.then, self.idle_after)


def _check_next(then: object, idle_after: float | None) -> None:
    """Refuse what cannot be done next where it is asked for, before anybody is answered."""
    if idle_after is not None:
        check_seconds(idle_after)
        if then is not None:
            raise ValueError(f"{then!r} and idle_after={idle_after:g} exclude each other: return one of them")
    elif then is not None and not isinstance(then, Continue | EventTimeout):
        raise TypeError(f"a callback goes on with Continue(…), EventTimeout(…) or nothing, not with {then!r}")


@dataclass(frozen=True, slots=True)
class Stop:
    """End with this reason, after answering the caller if `reply` is given."""

    reason: ExitReason | BaseException = NORMAL
    reply: object = UNSET

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", as_reason(self.reason))


@dataclass(frozen=True, slots=True)
class Ignore:
    """From `init`: do not run, and call that no failure."""


IGNORE: Final = Ignore()

ACTIONS: Final = frozenset((Reply, NoReply, Stop, Continue, EventTimeout, Ignore))


# The same, typed as the answer of a method that is called by reference: `def take(self) -> Item: return later()`.


def later() -> Any:
    """The answer comes later: keep `self.caller` and call its `reply`."""
    return NoReply()


def replying(value: T, *, then: Continue | EventTimeout | None = None, idle_after: float | None = None) -> T:
    """Answer `value`, and go on as asked."""
    return cast("T", Reply(value, then, idle_after))


def stopping(value: T, reason: ExitReason | BaseException = NORMAL) -> T:
    """Answer `value`, and stop."""
    return cast("T", Stop(reason, value))


class Reject(Exception):
    """Raised by a handler: the caller's request was wrong. The caller gets `error`; the server goes on."""

    def __init__(self, error: Exception) -> None:
        """`error` is raised from the caller's `await`."""
        if not isinstance(error, Exception):  # pyright: ignore[reportUnnecessaryIsInstance] - `raise Reject("why")` is near
            raise TypeError(f"Reject carries an exception for the caller, not {error!r}")
        super().__init__(error)
        self.error = error
