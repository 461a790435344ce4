"""The table of methods, the handshake, and the states of a session.

The table says for each method which side sends it, with which params and result, since which revision, and which capability it needs. The
session's router, the capability and params checks, the client and the generated reference page all read this one table; a later revision is
another value in its last columns. The table of session states says which message is legal when.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec
import msgspec.inspect as types

from . import wire_shapes as shapes
from .content import uses_tools
from .errors import BadAnswer, ErrorCode, LocalProtocolError, McpError
from .jsonrpc import JsonRpcNotification, JsonRpcRequest, is_object
from .versions import OLDEST, STATELESS, V2025_03_26, V2025_06_18, V2025_11_25, negotiate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from msgspec import Struct, ValidationError

    from .jsonrpc import JsonRpcMessage


class PeerSide(Enum):
    """The two sides of a session."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> PeerSide:
        """The opposite side."""
        return PeerSide.SERVER if self is PeerSide.CLIENT else PeerSide.CLIENT


class MessageDirection(Enum):
    """Which side sends the method."""

    TO_SERVER = "client → server"
    TO_CLIENT = "server → client"
    BOTH = "both ways"

    def reaches(self, side: PeerSide) -> bool:
        """Whether the method may be sent to that side."""
        return self is MessageDirection.BOTH or (self is MessageDirection.TO_SERVER) == (side is PeerSide.SERVER)


class MethodKind(Enum):
    """Requests are answered, notifications are not."""

    REQUEST = "request"
    NOTIFICATION = "notification"


class Method(NamedTuple):
    """One method: a row of the table."""

    name: str
    direction: MessageDirection
    params: type[shapes.BaseParams] = shapes.BaseParams
    result: type[msgspec.Struct] | None = None
    """None for a notification."""
    capability: str | None = None
    """The capability that must be declared, as a dotted path. `declarer` says by which side."""
    since: str = OLDEST
    until: str | None = V2025_11_25
    """The last revision with this method; None for methods that the stateless revision kept."""
    kind: MethodKind = MethodKind.REQUEST

    def exists_in(self, version: str) -> bool:
        """Whether that revision has the method."""
        return self.since <= version and (self.until is None or version <= self.until)

    def declarer(self, receiver: PeerSide) -> PeerSide:
        """The side that must have declared the capability: the side that answers a request, or that sends a notification.

        `notifications/elicitation/complete` is the exception: clients that can open URLs declare it.
        """
        if self.kind is MethodKind.REQUEST or self.name == "notifications/elicitation/complete":
            return receiver
        return receiver.other


_TO_SERVER, _TO_CLIENT, _BOTH = MessageDirection.TO_SERVER, MessageDirection.TO_CLIENT, MessageDirection.BOTH
_notification_method = partial(Method, kind=MethodKind.NOTIFICATION)

METHODS: Final[Mapping[str, Method]] = {
    method.name: method
    for method in (
        Method("initialize", _TO_SERVER, shapes.InitializeParams, shapes.InitializeResult),
        Method("ping", _BOTH, shapes.BaseParams, shapes.BaseResult),
        Method("server/discover", _TO_SERVER, shapes.BaseParams, shapes.DiscoverResult, since=STATELESS, until=None),
        Method("subscriptions/listen", _TO_SERVER, shapes.ListenParams, shapes.BaseResult, since=STATELESS, until=None),
        Method("tools/list", _TO_SERVER, shapes.ListParams, shapes.ListToolsResult, "tools", until=None),
        Method("tools/call", _TO_SERVER, shapes.CallToolParams, shapes.CallToolResultShape, "tools", until=None),
        Method("resources/list", _TO_SERVER, shapes.ListParams, shapes.ListResourcesResult, "resources", until=None),
        Method(
            "resources/templates/list",
            _TO_SERVER,
            shapes.ListParams,
            shapes.ListResourceTemplatesResult,
            "resources",
            until=None,
        ),
        Method(
            "resources/read", _TO_SERVER, shapes.ResourceUriParams, shapes.ReadResourceResult, "resources", until=None
        ),
        Method("resources/subscribe", _TO_SERVER, shapes.ResourceUriParams, shapes.BaseResult, "resources.subscribe"),
        Method("resources/unsubscribe", _TO_SERVER, shapes.ResourceUriParams, shapes.BaseResult, "resources.subscribe"),
        Method("prompts/list", _TO_SERVER, shapes.ListParams, shapes.ListPromptsResult, "prompts", until=None),
        Method("prompts/get", _TO_SERVER, shapes.GetPromptParams, shapes.GetPromptResult, "prompts", until=None),
        # Before 2025-03-26 a server could not declare completions; a server with completions declares them all the same.
        Method(
            "completion/complete", _TO_SERVER, shapes.CompleteParams, shapes.CompleteResult, "completions", until=None
        ),
        Method("logging/setLevel", _TO_SERVER, shapes.SetLevelParams, shapes.BaseResult, "logging"),
        Method("tasks/list", _BOTH, shapes.ListParams, shapes.ListTasksResult, "tasks.list", V2025_11_25),
        Method("tasks/get", _BOTH, shapes.TaskIdParams, shapes.GetTaskResult, "tasks", V2025_11_25),
        Method("tasks/result", _BOTH, shapes.TaskIdParams, shapes.BaseResult, "tasks", V2025_11_25),
        Method("tasks/cancel", _BOTH, shapes.TaskIdParams, shapes.GetTaskResult, "tasks.cancel", V2025_11_25),
        Method("roots/list", _TO_CLIENT, shapes.BaseParams, shapes.ListRootsResult, "roots"),
        Method(
            "sampling/createMessage", _TO_CLIENT, shapes.CreateMessageParams, shapes.CreateMessageResult, "sampling"
        ),
        Method("elicitation/create", _TO_CLIENT, shapes.ElicitParams, shapes.ElicitResult, "elicitation", V2025_06_18),
        _notification_method("notifications/initialized", _TO_SERVER),
        _notification_method("notifications/cancelled", _BOTH, shapes.CancelledParams, until=None),
        _notification_method("notifications/progress", _BOTH, shapes.ProgressParams, until=None),
        _notification_method("notifications/roots/list_changed", _TO_SERVER, capability="roots.listChanged"),
        _notification_method("notifications/message", _TO_CLIENT, shapes.LogMessageParams, None, "logging", until=None),
        _notification_method(
            "notifications/tools/list_changed", _TO_CLIENT, capability="tools.listChanged", until=None
        ),
        _notification_method(
            "notifications/resources/list_changed", _TO_CLIENT, capability="resources.listChanged", until=None
        ),
        _notification_method(
            "notifications/resources/updated",
            _TO_CLIENT,
            shapes.ResourceUriParams,
            None,
            "resources.subscribe",
            until=None,
        ),
        _notification_method(
            "notifications/prompts/list_changed", _TO_CLIENT, capability="prompts.listChanged", until=None
        ),
        _notification_method(
            "notifications/elicitation/complete",
            _TO_CLIENT,
            shapes.ElicitationCompleteParams,
            None,
            "elicitation.url",
            V2025_11_25,
        ),
        _notification_method("notifications/tasks/status", _BOTH, shapes.TaskStatusParams, None, "tasks", V2025_11_25),
        _notification_method(
            "notifications/subscriptions/acknowledged",
            _TO_CLIENT,
            shapes.ListenParams,
            since=STATELESS,
            until=None,
        ),
        # An extension of greenroom, in no revision: some missed messages are no longer kept.
        _notification_method("notifications/replay_truncated", _TO_CLIENT),
    )
}

ALIASES: Final[Mapping[str, str]] = {"initialized": "notifications/initialized"}
"""Method names of old clients."""


TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"

EXTENSION_METHODS: Final[Mapping[str, Method]] = {
    method.name: method
    for method in (
        Method("tasks/get", _TO_SERVER, shapes.TaskIdParams, shapes.BaseResult, since=STATELESS, until=None),
        Method("tasks/update", _TO_SERVER, shapes.UpdateTaskParams, shapes.BaseResult, since=STATELESS, until=None),
        Method("tasks/cancel", _TO_SERVER, shapes.TaskIdParams, shapes.BaseResult, since=STATELESS, until=None),
        _notification_method("notifications/tasks", _TO_CLIENT, shapes.DetailedTaskParams, since=STATELESS, until=None),
    )
}
"""The methods of `TASKS_EXTENSION`, of which some have names of methods of the handshake era. A request has to declare the extension."""


def find_method(name: str, version: str | None = None, receiver: PeerSide | None = None) -> Method | None:
    """The method of that name, if the revision has it and it may be sent to that side."""
    name = ALIASES.get(name, name)
    method = METHODS.get(name)
    if method is None or (version is not None and not method.exists_in(version)):
        method = EXTENSION_METHODS.get(name)
    if method is None or (version is not None and not method.exists_in(version)):
        return None
    return method if receiver is None or method.direction.reaches(receiver) else None


def methods_of(version: str, receiver: PeerSide | None = None) -> Iterator[Method]:
    """All methods of a revision, or those that may be sent to one side."""
    for method in METHODS.values():
        if method.exists_in(version) and (receiver is None or method.direction.reaches(receiver)):
            yield method


def method_not_found(name: str) -> McpError:
    """The error for an unknown method."""
    return McpError(
        ErrorCode.METHOD_NOT_FOUND, f"Method not found: {name if len(name) <= _SHOWN else name[:_SHOWN] + '…'}"
    )


_SHOWN = 200


def check_params(method: Method | str, params: dict[str, Any]) -> Any:
    """Convert params to their shape. Raises `McpError` (-32602) that names the wrong member.

    An optional member that is null is removed from `params`, so that readers need not handle null. About 0.5 µs for a tool call.
    """
    method = METHODS[method] if isinstance(method, str) else method
    try:
        shaped = msgspec.convert(params, method.params)
    except msgspec.ValidationError as error:
        raise McpError(
            ErrorCode.INVALID_PARAMS, f"Invalid params for {method.name}: {explain(error, method.params)}"
        ) from None
    if None in params.values():
        members = {member.encode_name for member in msgspec.structs.fields(method.params) if member.default is None}
        for name in [name for name, value in params.items() if value is None and name in members]:
            del params[name]
    return shaped


def check_progress(progress: object) -> None:
    """Refuse a function where a flag is expected: it would never be called. Raises `LocalProtocolError`."""
    if not isinstance(progress, bool):
        raise LocalProtocolError(
            f"progress must be True or False (whether to ask for it), not {progress!r}: follow it with `async for step in call.progress()` of the "
            "call that start_tool returns, or give the function to call_tool(…, on_progress=…)"
        )


def check_result(method: Method | str, result: dict[str, Any]) -> Any:
    """Convert a peer's result to its shape. Raises `BadAnswer` if it does not fit."""
    method = METHODS[method] if isinstance(method, str) else method
    shape = method.result or shapes.BaseResult
    try:
        return msgspec.convert(result, shape)
    except msgspec.ValidationError as error:
        raise BadAnswer(f"Invalid result of {method.name}: {explain(error, shape)}") from None


# --- What is wrong with a peer's params: msgspec's terse errors, restated in JSON's terms.

_AT = " - at `$"
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]+)`, got `(?P<got>[^`]+)`")
_INVALID = ("Invalid value ", "Invalid enum value ")

_WORDS = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


def explain(error: ValidationError, shape: type[Struct]) -> str:
    """Name the wrong member and what it must be. Never quotes the peer's value: it may be long, or a secret."""
    text, path = str(error), ""
    at = text.rfind(_AT) if text.endswith("`") else -1  # the last match: a quoted value before it may contain another
    if at >= 0:
        text, path = text[:at], text[at + len(_AT) : -1].removeprefix(".")
    if found := _MISSING.fullmatch(text):
        return f'"{path}.{found["name"]}" is missing' if path else f'"{found["name"]}" is missing'
    if found := _EXPECTED.fullmatch(text):
        *most, last = [_WORDS.get(word, word) for word in found["wanted"].split(" | ") if word != "null"]
        wanted = f"{', '.join(most)} or {last}" if most else last
        return f"{_json_path(path)} must be {wanted}, not {_WORDS.get(found['got'], found['got'])}"
    if text.startswith(_INVALID):
        return f"{_json_path(path)} must be {_choices(shape, path)}"
    return f"{_json_path(path)} is wrong: {text[:1].lower()}{text[1:]}"


def _json_path(path: str) -> str:
    return f'"{path}"' if path else "it"


def _choices(shape: type[Struct], path: str) -> str:
    """The allowed texts of a member with a few of them."""
    choices = _choices_at(types.type_info(shape), path.split("."))
    return f"one of {', '.join(choices)}" if choices else "another value"


def _choices_at(shape: Any, path: list[str]) -> list[str]:
    match shape:
        case types.UnionType():
            structs = [inner for inner in shape.types if isinstance(inner, types.StructType)]
            if path and structs and path[0] == structs[0].tag_field:
                return [str(inner.tag) for inner in structs]
            return [choice for inner in shape.types for choice in _choices_at(inner, path)]
        case types.StructType() if path:
            return [
                choice
                for member in shape.fields
                if member.encode_name == path[0]
                for choice in _choices_at(member.type, path[1:])
            ]
        case types.LiteralType():
            return [str(value) for value in shape.values]
        case _:
            return []


# --- The handshake: revision and capabilities.
# `read_initialize` checks an `initialize`, `ServerFeatures` becomes the capabilities that a server declares, `initialize_result` is the answer, and
# `missing_capability` names the capability that the peer did not declare for a request.


def unsupported_error(why: str) -> McpError:
    """The error for a request that the peer's revision or capabilities do not allow."""
    return McpError(ErrorCode.INVALID_REQUEST, why)


class InitializeRequest(NamedTuple):
    """A checked `initialize` request."""

    requested: str
    """The revision that the client asked for."""
    version: str
    """The revision that was negotiated."""
    capabilities: dict[str, Any]
    client_info: dict[str, Any]


def read_initialize(params: dict[str, Any]) -> InitializeRequest:
    """Check the params of an `initialize`. Raises `McpError` (-32602), which travels as HTTP 400."""
    check_params("initialize", params)
    requested = params["protocolVersion"]
    return InitializeRequest(requested, negotiate(requested), params["capabilities"], params["clientInfo"])


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFeatures:
    """The features of a server, from which its capabilities follow. A feature that is off is left out."""

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
        """The capabilities object, without what the revision does not know."""
        flags: dict[str, tuple[bool, dict[str, bool]]] = {
            "tools": (self.tools, {"listChanged": self.tools_list_changed}),
            "resources": (
                self.resources,
                {"subscribe": self.resources_subscribe, "listChanged": self.resources_list_changed},
            ),
            "prompts": (self.prompts, {"listChanged": self.prompts_list_changed}),
            "logging": (self.logging, {}),
            "completions": (self.completions and version >= V2025_03_26, {}),
        }
        wire: dict[str, Any] = {
            name: {part: True for part, on in parts.items() if on} for name, (there, parts) in flags.items() if there
        }
        if self.tasks is not None and version >= V2025_11_25:
            wire["tasks"] = dict(self.tasks)
        if self.experimental:
            wire["experimental"] = dict(self.experimental)
        return wire


def initialize_result(
    version: str, capabilities: Mapping[str, Any], server_info: Mapping[str, Any], instructions: str | None = None
) -> dict[str, Any]:
    """The result of an `initialize`. Raises `McpError` (-32603) if the server's name or version is no string."""
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


def is_declared(capabilities: Mapping[str, Any], path: str) -> bool:
    """Whether a capability was declared: an object (even empty) or `true` at the end of a dotted path.

    An `elicitation` without any mode means forms.
    """
    if path == "elicitation.form":
        modes = capabilities.get("elicitation")
        return is_object(modes) and ("form" in modes or "url" not in modes)
    here: Any = capabilities
    for name in path.split("."):
        here = here.get(name) if is_object(here) else None
    return here is True or is_object(here)


def missing_capability(
    method: str,
    params: Mapping[str, Any],
    capabilities: Mapping[str, Any],
    receiver: PeerSide,
    version: str = V2025_11_25,
) -> str | None:
    """The first undeclared capability that a request needs of the `receiver`; None if it may be sent."""
    return next(
        (
            path
            for path in required_capabilities(method, params, receiver, version)
            if not is_declared(capabilities, path)
        ),
        None,
    )


def required_capabilities(
    method: str, params: Mapping[str, Any], receiver: PeerSide, version: str = V2025_11_25
) -> list[str]:
    """All capabilities that the `receiver` must have declared: the method's, and those that the params need.

    Sub-capabilities came with the newest revision; before it, forms and context needed none.
    """
    line = (EXTENSION_METHODS.get(method) if version >= STATELESS else None) or METHODS.get(method)
    if line is None:
        return []
    paths = [line.capability] if line.capability and line.declarer(receiver) is receiver else []
    in_parts = version >= V2025_11_25
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
    if params.get("task") is not None and version < STATELESS:
        paths.append(f"tasks.requests.{method.replace('/', '.')}")
    return paths


# --- The states of a session: which messages are legal when. One table, and no special cases beside it.
# The table is the server's view of one peer. For every message in every state it says: take it, ignore it, or refuse it with an error, and which
# state follows. It is total, so a session needs no branch of its own. The reference page and its diagram are generated from it.
# States: `NEW` until an `initialize` was accepted; `INITIALIZING` until `notifications/initialized`; `READY`; `CLOSED`. A second `initialize` starts
# over in the same session.
# `UNGATED` is the same table without the gate: requests are accepted before `notifications/initialized`, and even before `initialize`, as some
# servers always did.


class SessionState(StrEnum):
    """The state of a session."""

    NEW = "new"
    INITIALIZING = "initializing"
    READY = "ready"
    CLOSED = "closed"


class SessionEvent(StrEnum):
    """An event that may change the state of a session."""

    INITIALIZE = "initialize"
    REJECTED = "initialize fails"
    """Raised by the server: an accepted `initialize` could not be granted."""
    INITIALIZED = "notifications/initialized"
    PING = "ping"
    REQUEST = "any other request"
    NOTIFICATION = "any other notification"
    ANSWER = "a response"
    END = "the end"
    """The session ended: the connection closed, a DELETE came, or the server stopped."""


class SessionAction(Enum):
    """The action for a message."""

    TAKE = "take"
    IGNORE = "ignore"
    REFUSE = "refuse"


class SessionTransition(NamedTuple):
    """A cell of the table: the action in one state for one event, and the next state."""

    action: SessionAction
    state: SessionState
    """The next state."""
    error_message: str = ""
    """The error message, if the message is refused."""

    @property
    def is_accepted(self) -> bool:
        """Whether the message is to be processed."""
        return self.action is SessionAction.TAKE

    def error(self) -> McpError:
        """The error for a refused request."""
        return McpError(ErrorCode.INVALID_REQUEST, self.error_message)


Table: TypeAlias = "Mapping[tuple[SessionState, SessionEvent], SessionTransition]"


_NEW, _INITIALIZING, _READY, _CLOSED = SessionState

_take, _ignore = partial(SessionTransition, SessionAction.TAKE), partial(SessionTransition, SessionAction.IGNORE)
_INITIALIZE_FIRST = SessionTransition(SessionAction.REFUSE, _NEW, 'Server not initialized: send "initialize" first')
_INITIALIZED_FIRST = SessionTransition(
    SessionAction.REFUSE, _INITIALIZING, 'Server not initialized: send "notifications/initialized" first'
)
_SESSION_ENDED = SessionTransition(SessionAction.REFUSE, _CLOSED, "The session has ended")

# The transitions from each state.
_TRANSITIONS: Final[
    Mapping[SessionEvent, tuple[SessionTransition, SessionTransition, SessionTransition, SessionTransition]]
] = {
    SessionEvent.INITIALIZE: (_take(_INITIALIZING), _take(_INITIALIZING), _take(_INITIALIZING), _SESSION_ENDED),
    SessionEvent.REJECTED: (_ignore(_NEW), _take(_NEW), _ignore(_READY), _ignore(_CLOSED)),
    SessionEvent.INITIALIZED: (_ignore(_NEW), _take(_READY), _ignore(_READY), _ignore(_CLOSED)),
    SessionEvent.PING: (_take(_NEW), _take(_INITIALIZING), _take(_READY), _SESSION_ENDED),
    SessionEvent.REQUEST: (_INITIALIZE_FIRST, _INITIALIZED_FIRST, _take(_READY), _SESSION_ENDED),
    SessionEvent.NOTIFICATION: (_ignore(_NEW), _take(_INITIALIZING), _take(_READY), _ignore(_CLOSED)),
    SessionEvent.ANSWER: (_ignore(_NEW), _take(_INITIALIZING), _take(_READY), _ignore(_CLOSED)),
    SessionEvent.END: (_take(_CLOSED), _take(_CLOSED), _take(_CLOSED), _ignore(_CLOSED)),
}

TABLE: Final[Table] = {
    (state, event): rules[place] for place, state in enumerate(SessionState) for event, rules in _TRANSITIONS.items()
}

UNGATED: Final[Table] = {
    **TABLE,
    (_NEW, SessionEvent.REQUEST): _take(_NEW),
    (_NEW, SessionEvent.NOTIFICATION): _take(_NEW),
    (_NEW, SessionEvent.ANSWER): _take(_NEW),
    (_INITIALIZING, SessionEvent.REQUEST): _take(_INITIALIZING),
}


def session_event(message: JsonRpcMessage) -> SessionEvent:
    """The event that a message is."""
    if isinstance(message, JsonRpcRequest):
        return _REQUESTS.get(message.method, SessionEvent.REQUEST)
    if isinstance(message, JsonRpcNotification):
        return _NOTIFICATIONS.get(ALIASES.get(message.method, message.method), SessionEvent.NOTIFICATION)
    return SessionEvent.ANSWER


_REQUESTS = {"initialize": SessionEvent.INITIALIZE, "ping": SessionEvent.PING}
_NOTIFICATIONS = {"notifications/initialized": SessionEvent.INITIALIZED}


def next_transition(
    state: SessionState, what: JsonRpcMessage | SessionEvent, *, gate: bool = True
) -> SessionTransition:
    """The transition for a message or event. Total; about 0.3 µs."""
    event = what if isinstance(what, SessionEvent) else session_event(what)
    return (TABLE if gate else UNGATED)[state, event]
