"""What is said on an inspect socket: a request is one line of JSON, and each line of the answer is one JSON object.

A client that sends nothing gets a snapshot, which is what `greenroom tree` of older versions does. Several requests may follow each other on one connection. An answer
is `{"ok": …}`, or `{"error": text, "kind": …}`; `follow` is answered by a line for each event from then on. The program does not trust its client: a request is
bounded, and a client that does not read loses events, which a line with `"gap"` counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from . import event_types as events

if TYPE_CHECKING:
    from collections.abc import Callable

    from .event_types import Event

LONGEST_REQUEST: Final = 16 * 1024
"""The longest request in bytes."""

ActName: TypeAlias = Literal["retry", "park", "restart", "kill", "cancel", "cancel_task", "recycle", "drain", "undrain"]
"""What a client may do to the program. Calls of tools and faults are no acts of this socket."""
Inspect: TypeAlias = "bool | Literal['acts']"
"""Whether a program's user may look at it from another terminal, and act on it."""
Level: TypeAlias = Literal["debug", "info", "warning", "error"]
LEVELS: Final[tuple[Level, ...]] = ("debug", "info", "warning", "error")
"""The levels of events, from the lowest."""
RefusalKind: TypeAlias = Literal["invalid", "unknown", "denied", "failed"]
"""Why a request has no answer: it cannot be read; there is no such thing; the program does not allow it; or it was tried in vain."""

EVENT_GROUPS: Final[dict[str, tuple[type[Event], ...]]] = {
    "calls": (events.CallStarted, events.CallEnded, events.RequestRefused),
    "sessions": (events.SessionOpened, events.SessionClosed, events.StreamOpened, events.StreamClosed),
    "questions": (events.QuestionAsked, events.QuestionEnded),
    "tasks": (events.TaskCreated, events.TaskEnded),
    "upstreams": (events.UpstreamChanged, events.BreakerChanged, events.SignInEnded),
    "pools": (events.PoolWorkerStarted, events.PoolWorkerEnded),
    "processes": (
        events.ChildStarted,
        events.ChildEnded,
        events.ProcessCrashed,
        events.SupervisorGaveUp,
        events.ProcessLeaked,
    ),
    "loop": (events.LoopBlocked, events.LoopLagged),
    "acts": (events.ActDone,),
}
"""The words by which a client names several kinds of events at once."""
DETAILS: Final = (events.CallStep, events.FramePassed, events.ServerWrote)
"""Events that are sent only to a client that names their kind."""
EVENT_KINDS: Final[dict[str, type[Event]]] = {each.__name__: each for each in events.EVENT_TYPES}


class InspectRequest(msgspec.Struct, frozen=True, kw_only=True, tag_field="ask", forbid_unknown_fields=True):
    """What a client may ask of a program."""


class SnapshotRequest(InspectRequest, frozen=True, kw_only=True, tag="snapshot"):
    """The snapshot, without waiting for whether a request comes. The connection ends after it."""


class ViewRequest(InspectRequest, frozen=True, kw_only=True, tag="view"):
    """A view of the program, as the pages of its admin listener show it."""

    name: str
    query: dict[str, str | int | float | bool | None] = {}


class FollowRequest(InspectRequest, frozen=True, kw_only=True, tag="follow"):
    """The events of the program from now on, after the `last` ones of before."""

    kinds: tuple[str, ...] = ()
    """Names of events or of groups; without any, all that are no details."""
    level: Level = "debug"
    names: tuple[str, ...] = ()
    """Names of tools, prompts, upstreams or children."""
    outcomes: tuple[str, ...] = ()
    is_failed: bool = False
    slower: float = 0.0
    """Only events of calls that took as many seconds."""
    last: int = 0
    is_live: bool = True
    """Whether events that happen later are sent as well; otherwise the connection ends."""


class ActRequest(InspectRequest, frozen=True, kw_only=True, tag="act"):
    """An act on the program. It needs `inspect="acts"` there."""

    act: ActName
    target: str


class LinkRequest(InspectRequest, frozen=True, kw_only=True, tag="observe-link"):
    """A fresh address of the program's page in the browser, which works once."""


class InspectRefusal(Exception):
    """A request has no answer; the text says why."""

    def __init__(self, kind: RefusalKind, text: str) -> None:
        """`kind` is for programs, and `text` for people."""
        super().__init__(text)
        self.kind: RefusalKind = kind


AnyRequest: TypeAlias = SnapshotRequest | ViewRequest | FollowRequest | ActRequest | LinkRequest
_REQUESTS: Final[msgspec.json.Decoder[AnyRequest]] = msgspec.json.Decoder(AnyRequest)


def read_request(line: bytes) -> AnyRequest:
    """The request of a line. Raises `InspectRefusal`."""
    if len(line) > LONGEST_REQUEST:
        raise InspectRefusal("invalid", f"a request has at most {LONGEST_REQUEST} bytes")
    try:
        return _REQUESTS.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InspectRefusal("invalid", f"this is no request: {str(error)[:200]}") from None


# --- events


_SEVERE: Final = (events.ProcessCrashed, events.SupervisorGaveUp, events.ProcessLeaked)
_NOTABLE: Final = (events.ChildEnded, events.LoopBlocked, events.RequestRefused, events.ActDone)
_FREQUENT: Final = (events.CallStarted, events.StreamOpened, events.StreamClosed, events.LoopLagged, *DETAILS)


def level_of(event: Event) -> Level:
    """How much an event matters to an operator."""
    if isinstance(event, _SEVERE):
        return "error"
    if isinstance(event, _NOTABLE):
        return "warning"
    if isinstance(event, _FREQUENT):
        return "debug"
    if isinstance(event, events.CallEnded):
        return "warning" if event.is_failure else "info"
    if isinstance(event, events.UpstreamChanged):
        return "info" if event.state in ("ready", "starting", "stopping", "stopped") else "warning"
    if isinstance(event, events.BreakerChanged):
        return "info" if event.state == "closed" else "warning"
    return "warning" if getattr(event, "is_failure", False) else "info"


def event_filter(asked: FollowRequest) -> Callable[[Event], bool]:
    """Whether an event is among those that a client asks for. Raises `InspectRefusal` for a kind that does not exist."""
    kinds: set[type[Event]] = set()
    for word in asked.kinds:
        if word not in EVENT_KINDS and word not in EVENT_GROUPS:
            raise InspectRefusal(
                "unknown",
                f"there is no kind of event {word[:100]!r}: there are {', '.join([*EVENT_GROUPS, *EVENT_KINDS])}",
            )
        kinds |= {EVENT_KINDS[word]} if word in EVENT_KINDS else set(EVENT_GROUPS[word])
    if events.FramePassed in kinds:
        raise InspectRefusal("denied", "messages of the protocol may hold secrets: `greenroom wire` shows them without")
    if not asked.kinds:
        kinds = {each for each in events.EVENT_TYPES if each not in DETAILS}
    levels = frozenset(LEVELS[LEVELS.index(asked.level) :])
    names, outcomes = frozenset(asked.names), frozenset(asked.outcomes)
    fails: frozenset[str] = events.FAILED_OUTCOMES | {"tool_error", "cancelled"}

    def matches(event: Event) -> bool:
        if type(event) not in kinds:
            return False
        found: Any = event
        if asked.level != "debug" and level_of(event) not in levels:
            return False
        if names and names.isdisjoint(getattr(found, field, "") for field in ("name", "upstream", "child", "program")):
            return False
        outcome: object = getattr(found, "outcome", "")
        if outcomes and outcome not in outcomes:
            return False
        if isinstance(event, events.CallEnded) and event.is_listen:  # its end is no failure, and its time no duration
            return not asked.slower and (event.is_failure or not asked.is_failed)
        if asked.is_failed and outcome not in fails:
            return False
        return not asked.slower or getattr(found, "seconds", 0.0) >= asked.slower

    return matches
