"""The events of a state machine, and the results and actions of its state functions, as frozen values.

::

    match event:
        case Call(Door.unlock, (code,)) if code == self.code:
            return Next(DoorState.CLOSED, Reply(event.caller, True))
        case StateTimeout():
            return Next(DoorState.LOCKED)

From outside come `Call` and `Cast` (methods marked `@event`, by reference), `AskEvent`, `TellEvent` and `Info` (any value); from the machine itself its three
kinds of timeouts and `Internal`. `Enter` is no event: it tells a state function that its state is entered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from greenroom.supervision.behaviours.replies import Caller, Stop
from greenroom.supervision.kernel.clock import check_seconds
from greenroom.supervision.kernel.process_messages import ASK, CALL, CAST, CONTINUE, INFO, TELL, ExitReason, as_reason

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from greenroom.supervision.kernel.process_messages import MailboxEntry


@dataclass(frozen=True, slots=True)
class Call:
    """``ref.call(Door.unlock, "1234")``: the caller waits for the reply.

    `args` holds the positional arguments of `method` and `kwargs` its keyword-only ones, defaults filled in, however
    the call was written, so that one pattern matches all forms.
    """

    method: Any  # a function; pyright thinks that a value pattern never equals one
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    caller: Caller[Any]


@dataclass(frozen=True, slots=True)
class Cast:
    """``ref.cast(Door.push)``: as a call, without a waiting caller."""

    method: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AskEvent:
    """``await ref.ask(request)``: any value as a request, whose caller waits for the reply."""

    request: Any
    caller: Caller[Any]


@dataclass(frozen=True, slots=True)
class TellEvent:
    """``ref.tell(request)``: any value as a request, without a waiting caller."""

    request: Any


@dataclass(frozen=True, slots=True)
class Info:
    """Any other message: `Down`, `Exit`, and those of plain `send` and `send_after`."""

    message: Any


@dataclass(frozen=True, slots=True)
class Internal:
    """An event that the machine sent itself with `NextEvent`; it cannot come from outside."""

    content: Any = None


@dataclass(frozen=True, slots=True)
class StateTimeout:
    """The machine was in one state for that long. A change of state cancels it."""

    content: Any = None


@dataclass(frozen=True, slots=True)
class EventTimeout:
    """No event came for that long. Any event cancels it."""

    content: Any = None


@dataclass(frozen=True, slots=True)
class GenericTimeout:
    """The timer called `name` ran out. Only the machine cancels it."""

    name: Hashable
    content: Any = None


@dataclass(frozen=True, slots=True)
class Enter:
    """The state is entered, before any event: from `old_state`, which is the state itself at the start and on `RepeatState`."""

    old_state: Any


TimeoutEvent: TypeAlias = StateTimeout | EventTimeout | GenericTimeout
Queued: TypeAlias = Call | Cast | AskEvent | TellEvent | Info | Internal | TimeoutEvent
"""The events that can be queued, and inserted by `NextEvent`."""
Event: TypeAlias = Queued | Enter

TIMEOUTS: Final = (StateTimeout, EventTimeout, GenericTimeout)
QUEUED: Final = (Call, Cast, AskEvent, TellEvent, Info, Internal, *TIMEOUTS)


_FROM_OUTSIDE: Final[Mapping[type, int]] = {Call: CALL, Cast: CAST, AskEvent: ASK, TellEvent: TELL, Info: INFO}


def entry_of(event: Event) -> MailboxEntry:
    """The event as a mailbox entry, its kind followed by its fields: for code that describes entries."""
    kind = _FROM_OUTSIDE.get(type(event))
    return (CONTINUE, event) if kind is None else (kind, *(getattr(event, name) for name in event.__match_args__))


# --- The results of a state function, as frozen values: the next state, and the actions of the transition.
# Actions are done in the order in which they are listed. `Reply` and `Fail` answer at once; the others belong to the
# transition, and the last of a kind wins: of several timeouts, the last for each timer. A wrong action, or one not
# allowed there, ends the machine with a `BadReturn` that names it.

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)

# --- actions


@dataclass(frozen=True, slots=True)
class Postpone:
    """Postpone this event: it is retried after the next change of state, before all newer events.

    ``Postpone(False)`` cancels an earlier one of the same transition. From `init` it has no effect, as there is no
    event; from an enter call it is refused.
    """

    on: bool = True


POSTPONE: Final = Postpone()


@dataclass(frozen=True, slots=True)
class NextEvent:
    """Handle `event` next, before all waiting events; several keep their order. Not from an enter call."""

    event: Queued

    def __post_init__(self) -> None:
        _check_event(self.event, QUEUED, "the next event is")


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a `Call` or an `AskEvent`, the current one or one whose caller was kept."""

    caller: Caller[Any]
    value: Any = None

    def __post_init__(self) -> None:
        _check_caller(self.caller)


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer with an error, which is raised from the caller's `await`."""

    caller: Caller[Any]
    error: Exception

    def __post_init__(self) -> None:
        _check_caller(self.caller)


@dataclass(frozen=True, slots=True)
class After:
    """Deliver `event` after so many seconds; a running timer of that kind, or name, is restarted.

    0 is at once: after all events that are queued already, and before any message that is still in the mailbox.
    `math.inf` and None cancel the timer.
    """

    seconds: float | None
    event: TimeoutEvent

    def __post_init__(self) -> None:
        _check_event(self.event, TIMEOUTS, "a timer brings")
        check_seconds(self.seconds)


@dataclass(frozen=True, slots=True)
class At:
    """Deliver `event` at a moment on the event loop's clock (`GenStatem.now`); a past moment delivers it like a message."""

    moment: float
    event: TimeoutEvent

    def __post_init__(self) -> None:
        _check_event(self.event, TIMEOUTS, "a timer brings")
        if math.isnan(self.moment):
            raise ValueError(f"give a moment on the event loop's clock, not {self.moment!r}")


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the timer of `event`'s kind, or name; the content is ignored. A missing timer is no error."""

    event: TimeoutEvent

    def __post_init__(self) -> None:
        _check_event(self.event, TIMEOUTS, "a timer brings")


@dataclass(frozen=True, slots=True)
class UpdateTimeout:
    """Replace the event of a running timer, which keeps its time. If none runs, `event` comes as after 0 seconds."""

    event: TimeoutEvent

    def __post_init__(self) -> None:
        _check_event(self.event, TIMEOUTS, "a timer brings")


# A wrong value is refused where it is made, so that the traceback shows the line to correct.


def _check_event(event: object, kinds: tuple[type, ...], what: str) -> None:
    if not isinstance(event, kinds):
        known = ", ".join(f"{kind.__name__}(…)" for kind in kinds)
        raise TypeError(f"{what} one of {known}, not {event!r}")


def _check_caller(caller: object) -> None:
    if not isinstance(caller, Caller):
        raise TypeError(f"the caller to answer is the `caller` of a Call or an AskEvent, not {caller!r}")


ReplyAction: TypeAlias = Reply | Fail
Timing: TypeAlias = After | At | Cancel | UpdateTimeout
EnterAction: TypeAlias = ReplyAction | Timing
Action: TypeAlias = EnterAction | Postpone | NextEvent

# --- results


@dataclass(frozen=True, init=False)
class Next(Generic[S_co]):
    """Go to `state`. The same state as before is no change: nothing is retried, cancelled or entered."""

    __slots__ = ("actions", "state")  # by hand: made by `dataclass`, they break `Next[DoorState](…)`

    state: S_co
    actions: tuple[Action, ...]

    def __init__(self, state: S_co, *actions: Action) -> None:
        """`actions` are done on the way."""
        object.__setattr__(self, "state", state)
        object.__setattr__(self, "actions", actions)


@dataclass(frozen=True, slots=True, init=False)
class Keep:
    """Stay in the state. Returning None means the same."""

    actions: tuple[Action, ...]

    def __init__(self, *actions: Action) -> None:
        """`actions` are done on the way."""
        object.__setattr__(self, "actions", actions)


@dataclass(frozen=True, slots=True, init=False)
class RepeatState:
    """Stay, and enter the state again if `state_enter` is set. Otherwise the same as `Keep`: it is no change."""

    actions: tuple[Action, ...]

    def __init__(self, *actions: Action) -> None:
        """`actions` are done on the way."""
        object.__setattr__(self, "actions", actions)


@dataclass(frozen=True, slots=True, init=False)
class StopAndReply:
    """Send these replies, then stop with this reason."""

    reason: ExitReason
    replies: tuple[ReplyAction, ...]

    def __init__(self, reason: ExitReason | BaseException, *replies: ReplyAction) -> None:
        """An exception as `reason` becomes a `Crash`."""
        object.__setattr__(self, "reason", as_reason(reason))
        object.__setattr__(self, "replies", replies)


Result: TypeAlias = Next[S] | Keep | RepeatState | Stop | StopAndReply | None
"""The return type of a state function: ``def locked(self, event: Event) -> Result[DoorState]``."""
