"""What two peers agree on at the beginning: a revision, and what each side can do.

`read_hello` checks an `initialize`, `Features` becomes the capabilities that a server declares, `welcome` is its answer; and
`missing` says, of a request that is about to be sent, which capability the peer has not declared for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from .errors import ErrorCode, McpError
from .json import is_object
from .messages import Notification, Request
from .methods import ALIASES, METHODS, Side, check_params
from .results import uses_tools
from .versions import V2025_03_26, V2025_11_25, at_least, negotiate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .messages import Message


def unable(why: str) -> McpError:
    """The error for a request that the peer's revision or capabilities do not allow."""
    return McpError(ErrorCode.INVALID_REQUEST, why)


class Hello(NamedTuple):
    """The client that wants to begin, and how."""

    requested: str
    """The revision that the client asked for."""
    version: str
    """The one that it gets."""
    capabilities: dict[str, Any]
    client_info: dict[str, Any]


def read_hello(params: dict[str, Any]) -> Hello:
    """The params of an `initialize`, checked. Raises `McpError` (-32602), which travels as HTTP 400."""
    check_params("initialize", params)
    requested = params["protocolVersion"]
    return Hello(requested, negotiate(requested), params["capabilities"], params["clientInfo"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a server can do, from which its capabilities follow. A feature that is off is not there at all."""

    tools: bool = False
    tools_list_changed: bool = False
    resources: bool = False
    resources_subscribe: bool = False
    resources_list_changed: bool = False
    prompts: bool = False
    prompts_list_changed: bool = False
    logging: bool = False
    completions: bool = False
    tasks: Mapping[str, Any] | None = None
    experimental: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_wire(self, version: str = V2025_11_25) -> dict[str, Any]:
        """The capabilities object. What a revision does not know yet is left out."""
        flags: dict[str, tuple[bool, dict[str, bool]]] = {
            "tools": (self.tools, {"listChanged": self.tools_list_changed}),
            "resources": (
                self.resources,
                {"subscribe": self.resources_subscribe, "listChanged": self.resources_list_changed},
            ),
            "prompts": (self.prompts, {"listChanged": self.prompts_list_changed}),
            "logging": (self.logging, {}),
            "completions": (self.completions and at_least(version, V2025_03_26), {}),
        }
        wire: dict[str, Any] = {
            name: {part: True for part, on in parts.items() if on} for name, (there, parts) in flags.items() if there
        }
        if self.tasks is not None and at_least(version, V2025_11_25):
            wire["tasks"] = dict(self.tasks)
        if self.experimental:
            wire["experimental"] = dict(self.experimental)
        return wire


def welcome(
    version: str, capabilities: Mapping[str, Any], server_info: Mapping[str, Any], instructions: str | None = None
) -> dict[str, Any]:
    """The result of an `initialize`. Raises `McpError` (-32603) for a server that cannot say who it is."""
    for name in ("name", "version"):
        if not isinstance(server_info.get(name), str):
            raise McpError(ErrorCode.INTERNAL_ERROR, f'Internal error: the server\'s "{name}" is no string')
    result: dict[str, Any] = {
        "protocolVersion": version,
        "capabilities": dict(capabilities),
        "serverInfo": dict(server_info),
    }
    if instructions is not None:
        result["instructions"] = instructions
    return result


def declares(capabilities: Mapping[str, Any], path: str) -> bool:
    """Whether a capability was declared: an object, even an empty one, or `true`, at the end of a dotted path.

    An `elicitation` that names no mode means forms.
    """
    if path == "elicitation.form":
        modes = capabilities.get("elicitation")
        return is_object(modes) and ("form" in modes or "url" not in modes)
    here: Any = capabilities
    for name in path.split("."):
        here = here.get(name) if is_object(here) else None
    return here is True or is_object(here)


def missing(
    method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any], hearer: Side, version: str = V2025_11_25
) -> str | None:
    """The first capability that a request needs of `hearer` and that was not declared; None when it may be sent."""
    return next((path for path in needs(method, params, hearer, version) if not declares(capabilities, path)), None)


def needs(method: str, params: Mapping[str, Any], hearer: Side, version: str = V2025_11_25) -> list[str]:
    """All capabilities that `hearer` must have declared for a request: its method's, and what the params ask for besides.

    Parts of capabilities came with the newest revision; before it, forms and context needed no word of their own.
    """
    line = METHODS.get(method)
    if line is None:
        return []
    paths = [line.capability] if line.capability and line.declarer(hearer) is hearer else []
    in_parts = at_least(version, V2025_11_25)
    if method == "elicitation/create":
        if params.get("mode") == "url":
            paths.append("elicitation.url")
        elif in_parts:
            paths.append("elicitation.form")
    if method == "sampling/createMessage":
        if uses_tools(params):
            paths.append("sampling.tools")
        if in_parts and params.get("includeContext") not in (None, "none"):
            paths.append("sampling.context")
    if params.get("task") is not None:
        paths.append(f"tasks.requests.{method.replace('/', '.')}")
    return paths


# --- Which messages are legal when: the states of a session, and what each kind of message does in each. One table, nothing beside it.
# The table is a server's view of one peer. It says of every message, in every state, one of three things: take it, ignore it, or refuse
# it with an error; and which state comes then. There is no message that it does not know, so a session needs no branch of its own.
# The reference page and its picture are drawn from here.
# States: `NEW` until an `initialize` was taken; `INITIALIZING` until the peer has said that it is ready; `READY`; `CLOSED`. A peer that
# introduces itself once more begins anew, in the same session.
# `UNGATED` is the same without the gate: requests are taken before the peer has said `notifications/initialized`, and even before its
# `initialize`, as some servers always did.


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
