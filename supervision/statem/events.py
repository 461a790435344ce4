"""What happens to a state machine, as frozen values to be matched.

::

    match event:
        case Call(Door.unlock, (code,)) if code == self.code:
            return Next(DoorState.CLOSED, Reply(event.caller, True))
        case StateTimeout():
            return Next(DoorState.LOCKED)

From outside come `Call` and `Cast` (methods marked `@event`, by reference), `Ask`, `Tell` and `Info` (any value); from
the machine itself its three kinds of timeouts and `Internal`. `Enter` is no event: it is how a state hears that it is
entered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from greenroom.supervision.kernel.messages import ASK, CALL, CAST, CONTINUE, INFO, TELL

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from greenroom.supervision.behaviours.caller import Caller
    from greenroom.supervision.kernel.messages import Entry


@dataclass(frozen=True, slots=True)
class Call:
    """Somebody waits for the answer to ``ref.call(Door.unlock, "1234")``.

    `args` holds what `method` takes by position and `kwargs` what it takes by name only, defaults filled in, however
    the call was written: one pattern fits all of them.
    """

    method: Any  # a function; pyright thinks that a value pattern never equals one
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    caller: Caller[Any]


@dataclass(frozen=True, slots=True)
class Cast:
    """``ref.cast(Door.push)``: as a call, and nobody waits."""

    method: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """``await ref.ask(request)``: somebody waits for an answer to any value."""

    request: Any
    caller: Caller[Any]


@dataclass(frozen=True, slots=True)
class Tell:
    """``ref.tell(request)``."""

    request: Any


@dataclass(frozen=True, slots=True)
class Info:
    """Any other message: `Down`, `Exit`, what plain `send` and `send_after` bring."""

    message: Any


@dataclass(frozen=True, slots=True)
class Internal:
    """What the machine told itself with `NextEvent`; it cannot come from anywhere else."""

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
    """The state is entered, before any event: from `old_state`, which is the state itself at the start and on `Repeat`."""

    old_state: Any


TimeoutEvent: TypeAlias = StateTimeout | EventTimeout | GenericTimeout
Queued: TypeAlias = Call | Cast | Ask | Tell | Info | Internal | TimeoutEvent
"""What can wait in a queue, and be put there by `NextEvent`."""
Event: TypeAlias = Queued | Enter

TIMEOUTS: Final = (StateTimeout, EventTimeout, GenericTimeout)
QUEUED: Final = (Call, Cast, Ask, Tell, Info, Internal, *TIMEOUTS)


def entry_of(event: Event) -> Entry:
    """The event as it would lie in a mailbox, for whoever describes entries."""
    match event:
        case Call():
            return (CALL, event.method, event.args, event.kwargs, event.caller)
        case Cast():
            return (CAST, event.method, event.args, event.kwargs)
        case Ask():
            return (ASK, event.request, event.caller)
        case Tell():
            return (TELL, event.request)
        case Info():
            return (INFO, event.message)
        case _:
            return (CONTINUE, event)
