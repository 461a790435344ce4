"""Which messages are legal when: the states of a session, and what each kind of message does in each. One table, nothing beside it.

The table is a server's view of one peer. It says of every message, in every state, one of three things: take it, ignore it, or refuse
it with an error; and which state comes then. There is no message that it does not know, so a session needs no branch of its own.
The reference page and its picture are drawn from here.

States: `NEW` until an `initialize` was taken; `INITIALIZING` until the peer has said that it is ready; `READY`; `CLOSED`. A peer that
introduces itself once more begins anew, in the same session.

`UNGATED` is the same without the gate: requests are taken before the peer has said `notifications/initialized`, and even before its
`initialize`, as some servers always did.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from .errors import ErrorCode, McpError
from .messages import Notification, Request
from .methods import ALIASES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .messages import Message


class State(StrEnum):
    """Where a session is in its life."""

    NEW = "new"
    INITIALIZING = "initializing"
    READY = "ready"
    CLOSED = "closed"


class Event(StrEnum):
    """What can happen to a session, as far as its state is concerned."""

    INITIALIZE = "initialize"
    REJECTED = "initialize fails"
    """Ours: the `initialize` that was taken could not be granted after all."""
    INITIALIZED = "notifications/initialized"
    PING = "ping"
    REQUEST = "any other request"
    NOTIFICATION = "any other notification"
    ANSWER = "a response"
    END = "the end"
    """Of the connection, by DELETE, by whatever."""


class Verdict(Enum):
    """What to do with a message."""

    TAKE = "take"
    IGNORE = "ignore"
    REFUSE = "refuse"


class Rule(NamedTuple):
    """A cell of the table."""

    verdict: Verdict
    state: State
    """The one that comes now."""
    why: str = ""
    """What the peer is told when it is refused."""

    @property
    def taken(self) -> bool:
        """Whether the message is to be acted upon."""
        return self.verdict is Verdict.TAKE

    def error(self) -> McpError:
        """What to answer to a refused request."""
        return McpError(ErrorCode.INVALID_REQUEST, self.why)


Table: TypeAlias = "Mapping[tuple[State, Event], Rule]"


def _take(state: State) -> Rule:
    return Rule(Verdict.TAKE, state)


def _ignore(state: State) -> Rule:
    return Rule(Verdict.IGNORE, state)


def _refuse(state: State, why: str) -> Rule:
    return Rule(Verdict.REFUSE, state, why)


_NEW, _INITIALIZING, _READY, _CLOSED = State

_HELLO_FIRST = 'Server not initialized: send "initialize" first'
_READY_FIRST = 'Server not initialized: send "notifications/initialized" first'
_OVER = "The session has ended"

TABLE: Final[Table] = {
    (_NEW, Event.INITIALIZE): _take(_INITIALIZING),
    (_NEW, Event.REJECTED): _ignore(_NEW),
    (_NEW, Event.INITIALIZED): _ignore(_NEW),
    (_NEW, Event.PING): _take(_NEW),
    (_NEW, Event.REQUEST): _refuse(_NEW, _HELLO_FIRST),
    (_NEW, Event.NOTIFICATION): _ignore(_NEW),
    (_NEW, Event.ANSWER): _ignore(_NEW),
    (_NEW, Event.END): _take(_CLOSED),
    (_INITIALIZING, Event.INITIALIZE): _take(_INITIALIZING),
    (_INITIALIZING, Event.REJECTED): _take(_NEW),
    (_INITIALIZING, Event.INITIALIZED): _take(_READY),
    (_INITIALIZING, Event.PING): _take(_INITIALIZING),
    (_INITIALIZING, Event.REQUEST): _refuse(_INITIALIZING, _READY_FIRST),
    (_INITIALIZING, Event.NOTIFICATION): _take(_INITIALIZING),
    (_INITIALIZING, Event.ANSWER): _take(_INITIALIZING),
    (_INITIALIZING, Event.END): _take(_CLOSED),
    (_READY, Event.INITIALIZE): _take(_INITIALIZING),
    (_READY, Event.REJECTED): _ignore(_READY),
    (_READY, Event.INITIALIZED): _ignore(_READY),
    (_READY, Event.PING): _take(_READY),
    (_READY, Event.REQUEST): _take(_READY),
    (_READY, Event.NOTIFICATION): _take(_READY),
    (_READY, Event.ANSWER): _take(_READY),
    (_READY, Event.END): _take(_CLOSED),
    (_CLOSED, Event.INITIALIZE): _refuse(_CLOSED, _OVER),
    (_CLOSED, Event.REJECTED): _ignore(_CLOSED),
    (_CLOSED, Event.INITIALIZED): _ignore(_CLOSED),
    (_CLOSED, Event.PING): _refuse(_CLOSED, _OVER),
    (_CLOSED, Event.REQUEST): _refuse(_CLOSED, _OVER),
    (_CLOSED, Event.NOTIFICATION): _ignore(_CLOSED),
    (_CLOSED, Event.ANSWER): _ignore(_CLOSED),
    (_CLOSED, Event.END): _ignore(_CLOSED),
}

UNGATED: Final[Table] = {
    **TABLE,
    (_NEW, Event.REQUEST): _take(_NEW),
    (_NEW, Event.NOTIFICATION): _take(_NEW),
    (_NEW, Event.ANSWER): _take(_NEW),
    (_INITIALIZING, Event.REQUEST): _take(_INITIALIZING),
}


def event_of(message: Message) -> Event:
    """What a message is to the table."""
    if isinstance(message, Request):
        return _REQUESTS.get(message.method, Event.REQUEST)
    if isinstance(message, Notification):
        return _NOTIFICATIONS.get(ALIASES.get(message.method, message.method), Event.NOTIFICATION)
    return Event.ANSWER


_REQUESTS = {"initialize": Event.INITIALIZE, "ping": Event.PING}
_NOTIFICATIONS = {"notifications/initialized": Event.INITIALIZED}


def judge(state: State, what: Message | Event, *, gate: bool = True) -> Rule:
    """What to do with a message, and the state that comes then. Knows an answer to everything, in a third of a microsecond."""
    event = what if isinstance(what, Event) else event_of(what)
    return (TABLE if gate else UNGATED)[state, event]
