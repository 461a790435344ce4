"""The one table of methods: which side may send what, in which shape, since which revision, and what has to be declared for it.

Everything that asks about a method asks here: the session's router, the capability checks, the params checks, the client later on,
and the reference page, which is drawn from it. Another revision is another value in the last columns.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import msgspec.inspect as types

from . import shapes
from .errors import BadAnswer, ErrorCode, McpError
from .versions import OLDEST, V2025_06_18, V2025_11_25

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from msgspec import Struct, ValidationError


class Side(Enum):
    """The two ends."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> Side:
        """The one opposite."""
        return Side.SERVER if self is Side.CLIENT else Side.CLIENT


class Direction(Enum):
    """Which side says it to which."""

    TO_SERVER = "client → server"
    TO_CLIENT = "server → client"
    BOTH = "both ways"

    def reaches(self, side: Side) -> bool:
        """Whether that end may hear it."""
        return self is Direction.BOTH or (self is Direction.TO_SERVER) == (side is Side.SERVER)


class Kind(Enum):
    """Whether it is answered."""

    REQUEST = "request"
    NOTIFICATION = "notification"


class Method(NamedTuple):
    """A line of the table."""

    name: str
    direction: Direction
    kind: Kind
    params: type[shapes.Params] = shapes.Params
    result: type[msgspec.Struct] | None = None
    """None for a notification."""
    capability: str | None = None
    """What must be declared for it, as a path. By which side: see `declarer`."""
    since: str = OLDEST
    until: str | None = V2025_11_25
    """The last revision that has it; None for those that the stateless revision kept."""

    def exists_in(self, version: str) -> bool:
        """Whether that revision has it."""
        return self.since <= version and (self.until is None or version <= self.until)

    def declarer(self, hearer: Side) -> Side:
        """The side that has to have declared the capability, when `hearer` is told: the one that answers a request, or sends a notification.

        The word that a url elicitation is over is an exception: it is for clients that can do those.
        """
        if self.kind is Kind.REQUEST or self.name == "notifications/elicitation/complete":
            return hearer
        return hearer.other


_TO_SERVER, _TO_CLIENT, _BOTH = Direction.TO_SERVER, Direction.TO_CLIENT, Direction.BOTH
_REQUEST, _NOTIFICATION = Kind.REQUEST, Kind.NOTIFICATION

METHODS: Final[Mapping[str, Method]] = {
    method.name: method
    for method in (
        Method("initialize", _TO_SERVER, _REQUEST, shapes.Initialize, shapes.Welcome),
        Method("ping", _BOTH, _REQUEST, shapes.Params, shapes.Result),
        Method("tools/list", _TO_SERVER, _REQUEST, shapes.Page, shapes.Tools, "tools", until=None),
        Method("tools/call", _TO_SERVER, _REQUEST, shapes.CallTool, shapes.ToolResult, "tools", until=None),
        Method("resources/list", _TO_SERVER, _REQUEST, shapes.Page, shapes.Resources, "resources", until=None),
        Method(
            "resources/templates/list",
            *(_TO_SERVER, _REQUEST, shapes.Page, shapes.ResourceTemplates, "resources"),
            until=None,
        ),
        Method("resources/read", _TO_SERVER, _REQUEST, shapes.Uri, shapes.Contents, "resources", until=None),
        Method("resources/subscribe", _TO_SERVER, _REQUEST, shapes.Uri, shapes.Result, "resources.subscribe"),
        Method("resources/unsubscribe", _TO_SERVER, _REQUEST, shapes.Uri, shapes.Result, "resources.subscribe"),
        Method("prompts/list", _TO_SERVER, _REQUEST, shapes.Page, shapes.Prompts, "prompts", until=None),
        Method("prompts/get", _TO_SERVER, _REQUEST, shapes.GetPrompt, shapes.PromptMessages, "prompts", until=None),
        # Before 2025-03-26 no server could declare completions; one that has them says so all the same.
        Method(
            "completion/complete", _TO_SERVER, _REQUEST, shapes.Complete, shapes.Completion, "completions", until=None
        ),
        Method("logging/setLevel", _TO_SERVER, _REQUEST, shapes.SetLevel, shapes.Result, "logging"),
        Method("tasks/list", _BOTH, _REQUEST, shapes.Page, shapes.Tasks, "tasks.list", V2025_11_25),
        Method("tasks/get", _BOTH, _REQUEST, shapes.TaskId, shapes.TaskResult, "tasks", V2025_11_25),
        Method("tasks/result", _BOTH, _REQUEST, shapes.TaskId, shapes.Result, "tasks", V2025_11_25),
        Method("tasks/cancel", _BOTH, _REQUEST, shapes.TaskId, shapes.TaskResult, "tasks.cancel", V2025_11_25),
        Method("roots/list", _TO_CLIENT, _REQUEST, shapes.Params, shapes.Roots, "roots"),
        Method("sampling/createMessage", _TO_CLIENT, _REQUEST, shapes.CreateMessage, shapes.Sampled, "sampling"),
        Method("elicitation/create", _TO_CLIENT, _REQUEST, shapes.Elicit, shapes.Answered, "elicitation", V2025_06_18),
        Method("notifications/initialized", _TO_SERVER, _NOTIFICATION),
        Method("notifications/cancelled", _BOTH, _NOTIFICATION, shapes.Cancelled, until=None),
        Method("notifications/progress", _BOTH, _NOTIFICATION, shapes.Progress, until=None),
        Method("notifications/roots/list_changed", _TO_SERVER, _NOTIFICATION, capability="roots.listChanged"),
        Method("notifications/message", _TO_CLIENT, _NOTIFICATION, shapes.LogMessage, None, "logging", until=None),
        Method(
            "notifications/tools/list_changed", _TO_CLIENT, _NOTIFICATION, capability="tools.listChanged", until=None
        ),
        Method(
            "notifications/resources/list_changed",
            *(_TO_CLIENT, _NOTIFICATION),
            capability="resources.listChanged",
            until=None,
        ),
        Method(
            "notifications/resources/updated",
            *(_TO_CLIENT, _NOTIFICATION, shapes.Uri, None, "resources.subscribe"),
            until=None,
        ),
        Method(
            "notifications/prompts/list_changed",
            *(_TO_CLIENT, _NOTIFICATION),
            capability="prompts.listChanged",
            until=None,
        ),
        Method(
            "notifications/elicitation/complete",
            *(_TO_CLIENT, _NOTIFICATION, shapes.Elicited, None, "elicitation.url", V2025_11_25),
        ),
        Method("notifications/tasks/status", _BOTH, _NOTIFICATION, shapes.TaskState, None, "tasks", V2025_11_25),
        # Ours alone, and no revision's: some of what you missed is no longer kept.
        Method("notifications/replay_truncated", _TO_CLIENT, _NOTIFICATION),
    )
}

ALIASES: Final[Mapping[str, str]] = {"initialized": "notifications/initialized"}
"""What old clients call things."""


def find(name: str, version: str | None = None, hearer: Side | None = None) -> Method | None:
    """The method of that name, if that revision has it, and if that end may be told it."""
    method = METHODS.get(ALIASES.get(name, name))
    if method is None or (version is not None and not method.exists_in(version)):
        return None
    return method if hearer is None or method.direction.reaches(hearer) else None


def methods(version: str, hearer: Side | None = None) -> Iterator[Method]:
    """All that a revision has, or all that one end may be told in it."""
    for method in METHODS.values():
        if method.exists_in(version) and (hearer is None or method.direction.reaches(hearer)):
            yield method


def not_found(name: str) -> McpError:
    """What to answer to a request that is not known here."""
    return McpError(
        ErrorCode.METHOD_NOT_FOUND, f"Method not found: {name if len(name) <= _SHOWN else name[:_SHOWN] + '…'}"
    )


_SHOWN = 200


def check_params(method: Method | str, params: dict[str, Any]) -> Any:
    """The params in their shape. Raises `McpError` (-32602) that says which member is wrong, and how.

    A member that may be missing and is null is taken out of `params`, so that later readers meet it nowhere.
    About 0.5 µs for a tool call.
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


def check_result(method: Method | str, result: dict[str, Any]) -> Any:
    """The peer's result in its shape. Raises `BadAnswer` when it is not what the method answers with."""
    method = METHODS[method] if isinstance(method, str) else method
    shape = method.result or shapes.Result
    try:
        return msgspec.convert(result, shape)
    except msgspec.ValidationError as error:
        raise BadAnswer(f"Invalid result of {method.name}: {explain(error, shape)}") from None


# --- What is wrong with a peer's params, in words that its author understands: msgspec's terse errors, said in JSON's terms.

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
    """Which member is wrong, and what it must be. Quotes nothing of the peer's: it may be long, or a secret."""
    text, path = str(error), ""
    at = (
        text.rfind(_AT) if text.endswith("`") else -1
    )  # the last: a value that is quoted before may have one of its own
    if at >= 0:
        text, path = text[:at], text[at + len(_AT) : -1].removeprefix(".")
    if found := _MISSING.fullmatch(text):
        return f'"{path}.{found["name"]}" is missing' if path else f'"{found["name"]}" is missing'
    if found := _EXPECTED.fullmatch(text):
        *most, last = [_WORDS.get(word, word) for word in found["wanted"].split(" | ") if word != "null"]
        wanted = f"{', '.join(most)} or {last}" if most else last
        return f"{_place(path)} must be {wanted}, not {_WORDS.get(found['got'], found['got'])}"
    if text.startswith(_INVALID):
        return f"{_place(path)} must be {_choices(shape, path)}"
    return f"{_place(path)} is wrong: {text[:1].lower()}{text[1:]}"


def _place(path: str) -> str:
    return f'"{path}"' if path else "it"


def _choices(shape: type[Struct], path: str) -> str:
    """What a member may be that can be one of a few texts."""
    choices = _follow(types.type_info(shape), path.split("."))
    return f"one of {', '.join(choices)}" if choices else "another value"


def _follow(shape: Any, path: list[str]) -> list[str]:
    match shape:
        case types.UnionType():
            structs = [inner for inner in shape.types if isinstance(inner, types.StructType)]
            if path and structs and path[0] == structs[0].tag_field:
                return [str(inner.tag) for inner in structs]
            return [choice for inner in shape.types for choice in _follow(inner, path)]
        case types.StructType() if path:
            return [
                choice
                for member in shape.fields
                if member.encode_name == path[0]
                for choice in _follow(member.type, path[1:])
            ]
        case types.LiteralType():
            return [str(value) for value in shape.values]
        case _:
            return []
