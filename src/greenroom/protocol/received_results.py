"""A server's results, read as values: the classes with which servers are written, each with the original in `raw`.

Reading is lenient: a content block of an unknown type, or a malformed one, stays a mapping; a malformed entry of a list is left out and named in
`Page.problems`. A value that is no such result at all raises `BadAnswer`.

A `ToolReply` and a `PromptReply` may also be returned by a handler of a server of ours: returning one passes it on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from .content import Audio, Contents, Embedded, Image, ResourceLink, Text, ToolResult, ToolUse
from .definitions import Prompt, Resource, ResourceTemplate, Tool
from .errors import BadAnswer, PeerError
from .handler_results import CallToolResult, Completion, Message, PromptResult
from .serialization import WireObject, is_array, is_object, to_jsonable
from .wire_shapes import LOG_LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

W = TypeVar("W", bound=WireObject)
T = TypeVar("T")

ReadBlock: TypeAlias = "Text | Image | Audio | ResourceLink | Embedded | ToolUse | ToolResult | Mapping[str, Any]"

_BLOCKS: Final[Mapping[str, type[WireObject]]] = {
    "text": Text, "image": Image, "audio": Audio, "resource_link": ResourceLink, "resource": Embedded, "tool_use": ToolUse,
    "tool_result": ToolResult,
}  # fmt: skip

TERMINAL_STATES: Final = frozenset({"completed", "failed", "cancelled"})
"""The states in which a task has ended."""
LONGEST_TASK_ID: Final = 1024
"""The longest id of a task that is followed, in characters."""
_STATES: Final = TERMINAL_STATES | {"working", "input_required"}


# --- tools


@dataclass(frozen=True, slots=True)
class RemoteTask:
    """The state of a server's task at the last poll or notification. Times are in seconds."""

    id: str
    status: str
    """`"working"`, `"input_required"`, `"completed"`, `"failed"` or `"cancelled"`."""
    status_message: str | None = None
    created_at: str = ""
    last_updated_at: str = ""
    ttl: float | None = None
    """How long the server keeps the task after its creation; None for ever."""
    poll_interval: float | None = None
    """The poll interval that the server asks for."""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    input_requests: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """The open questions by key, each with a `method` and `params`. This and the next two are of the stateless era."""
    result: Mapping[str, Any] | None = field(default=None, repr=False)
    """The result of a completed task, as it came."""
    error: PeerError | None = None
    """The error of a failed task."""

    @property
    def over(self) -> bool:
        """Whether the task has ended, in any way."""
        return self.status in TERMINAL_STATES


@dataclass(frozen=True, slots=True)
class ToolReply(CallToolResult):
    """The result of a tool call as the server sent it: `is_error` is not raised."""

    task: RemoteTask | None = None
    """The task that was created, if any."""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def text(self) -> str:
        """All text in the content, joined by line breaks."""
        return text_of(self.content)

    @property
    def is_structured(self) -> bool:
        """Whether there is structured content. In the stateless era it may be None; before, a server that wrote null had none."""
        return self.structured_content is not None or ("structuredContent" in self.raw and "resultType" in self.raw)

    @property
    def data(self) -> Any:
        """The structured content, or else the text."""
        return self.text if self.structured_content is None else self.structured_content

    def to_wire(self) -> dict[str, Any]:
        """The result on the wire, including blocks of unknown types."""
        wire: dict[str, Any] = {"content": [to_jsonable(block) for block in self.content]}
        if self.is_structured:
            wire["structuredContent"] = self.structured_content
        wire["isError"] = self.is_error
        return wire | ({"_meta": dict(self.meta)} if self.meta else {})


def read_tool_reply(result: Mapping[str, Any]) -> ToolReply:
    """Read a `tools/call` or `tasks/result` result, or the task that was created instead, with or without its envelope."""
    structured: Any = result.get("structuredContent")
    content: Any = result.get("content")
    task = _task_in(result)
    if content is None and (structured is not None or task is not None):
        content = ()
    if not is_array(content):
        raise BadAnswer(f"Invalid result of tools/call: its content is {_type_text(content)}, and no list of blocks")
    return ToolReply(
        [read_block(one) for one in content], structured, result.get("isError") is True, _meta(result), task, result
    )


def _task_in(result: Mapping[str, Any]) -> RemoteTask | None:
    inner: Any = result.get("task")
    if is_object(inner) and isinstance(inner.get("taskId"), str):
        return read_task(inner)
    return read_task(result) if isinstance(result.get("taskId"), str) and "status" in result else None


def read_task(value: Any, what: str = "tasks/get") -> RemoteTask:
    """Read a task's state as either era writes it; `what` names the method in errors."""
    if not is_object(value) or not isinstance(value.get("taskId"), str) or not isinstance(value.get("status"), str):
        raise BadAnswer(f"Invalid result of {what}: a task has a taskId and a status")
    return RemoteTask(
        value["taskId"],
        value["status"],
        _text(value.get("statusMessage")),
        _text(value.get("createdAt")) or "",
        _text(value.get("lastUpdatedAt")) or "",
        _seconds(value.get("ttlMs" if "ttlMs" in value else "ttl")),
        _seconds(value.get("pollIntervalMs" if "pollIntervalMs" in value else "pollInterval")),
        value,
        questions if is_object(questions := value.get("inputRequests")) else {},
        result if is_object(result := value.get("result")) else None,
        PeerError.from_wire(error) if is_object(error := value.get("error")) else None,
    )


def read_created_task(result: Mapping[str, Any]) -> RemoteTask:
    """Read the task that a server of the stateless era made of a call. Raises `BadAnswer`."""
    task = read_task(result, "tools/call")
    if not 0 < len(task.id) <= LONGEST_TASK_ID:
        raise BadAnswer(f"Invalid result of tools/call: the id of a task has 1 to {LONGEST_TASK_ID} characters")
    return task


def read_detailed_task(value: Any, id: str, what: str = "tasks/get") -> RemoteTask:
    """Read the state of the task `id` as the stateless era writes it, with what belongs to the state. Raises `BadAnswer`.

    The questions of `input_requests` are not checked.
    """
    task = read_task(value, what)
    if task.id != id:
        raise BadAnswer(f"Invalid result of {what}: it is about another task than {_shown(id)}")
    if task.status not in _STATES:
        raise BadAnswer(f"Invalid result of {what}: {_shown(task.status)} is no status of a task")
    match task.status:
        case "completed" if task.result is None:
            missing = "result"
        case "failed" if task.error is None:
            missing = "error"
        case "input_required" if not is_object(task.raw.get("inputRequests")):
            missing = "inputRequests"
        case _:
            return task
    raise BadAnswer(f"Invalid result of {what}: a task that is {task.status} has an object as its {missing}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")


_LONGEST_SHOWN: Final = 64


def _seconds(milliseconds: Any) -> float | None:
    if not isinstance(milliseconds, int | float) or isinstance(milliseconds, bool):
        return None
    try:
        seconds = milliseconds / 1000
    except OverflowError:  # an integer beyond the largest float
        return math.inf if milliseconds > 0 else -math.inf
    return None if math.isnan(seconds) else seconds


# --- blocks


def read_block(value: Any) -> ReadBlock:
    """Read a block; a block of an unknown type, or a malformed one, stays a mapping. Raises `BadAnswer` if it is no object."""
    if not is_object(value):
        raise BadAnswer(f"Invalid content: {_type_text(value)} where a block was expected")
    kind = value.get("type")
    shape = _BLOCKS.get(kind) if isinstance(kind, str) else None
    found: Any = value if shape is None else _read_struct(shape, value)
    return value if isinstance(found, str) else found


def _read_struct(shape: type[W], value: Mapping[str, Any]) -> W | str:
    """The value, or the reason why it cannot be read. An optional member may be null."""
    try:
        return shape.from_wire(value)
    except msgspec.ValidationError as error:
        if None in value.values():
            return _read_struct(shape, {name: one for name, one in value.items() if one is not None})
        return str(error).replace("`", "")


def text_of(blocks: Sequence[Any]) -> str:
    """All text in blocks, including embedded resources."""
    return "\n".join(text for block in blocks if (text := _block_text(block)) is not None)


def _block_text(block: Any) -> str | None:
    match block:
        case Text(text) | Embedded(Contents(text=str() as text)):
            return text
        case _:
            return None


# --- resources


@dataclass(frozen=True, slots=True)
class ResourceReply:
    """The contents of a resource; iterates over them."""

    contents: Sequence[Contents]
    meta: Mapping[str, Any] | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def __iter__(self) -> Iterator[Contents]:
        return iter(self.contents)

    def __len__(self) -> int:
        return len(self.contents)

    @property
    def text(self) -> str:
        """All text of the contents, joined."""
        return "\n".join(one.text for one in self.contents if one.text is not None)

    @property
    def blob(self) -> bytes:
        """All bytes of the contents, joined."""
        return b"".join(one.blob for one in self.contents if one.blob is not None)


def read_contents(result: Mapping[str, Any]) -> ResourceReply:
    """Read a `resources/read` result."""
    return ResourceReply(_items("resources/read", "contents", Contents, result), _meta(result), result)


# --- prompts and completions


@dataclass(frozen=True, slots=True)
class PromptReply(PromptResult):
    """A rendered prompt. The `content` of a message is a block."""

    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def text(self) -> str:
        """All text of the messages, joined."""
        return text_of(
            [block for one in self.messages for block in (one.content if is_array(one.content) else [one.content])]
        )


def read_prompt(result: Mapping[str, Any]) -> PromptReply:
    """Read a `prompts/get` result."""
    messages = _list("prompts/get", "messages", result)
    return PromptReply([read_message(one) for one in messages], _text(result.get("description")), _meta(result), result)


def read_message(value: Any) -> Message:
    """Read a message: a role, and one or several blocks."""
    value = value if is_object(value) else {}
    role: Any = value.get("role")
    if role not in ("user", "assistant"):
        raise BadAnswer(f"Invalid message: its role is {role!r}, not user or assistant")
    content: Any = value.get("content")
    return Message(role, [read_block(one) for one in content] if is_array(content) else read_block(content))


def read_completion(result: Mapping[str, Any]) -> Completion:
    """Read a `completion/complete` result."""
    found: Any = result.get("completion")
    values: Any = found.get("values") if is_object(found) else None
    if not is_array(values) or not all(isinstance(one, str) for one in values):
        raise BadAnswer("Invalid result of completion/complete: its values are no list of texts")
    total, more = found.get("total"), found.get("hasMore")
    return Completion(list(values), total if type(total) is int else None, more if isinstance(more, bool) else None)


# --- lists


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list. `next_cursor` asks for the next one; None when this is the last."""

    items: Sequence[T]
    next_cursor: str | None = None
    problems: Sequence[str] = ()
    """The entries that were left out since they could not be read, with reasons."""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


_LISTS: Final[Mapping[type[WireObject], tuple[str, str]]] = {
    Tool: ("tools/list", "tools"),
    Resource: ("resources/list", "resources"),
    ResourceTemplate: ("resources/templates/list", "resourceTemplates"),
    Prompt: ("prompts/list", "prompts"),
}


def read_page(kind: type[W], result: Mapping[str, Any]) -> Page[W]:
    """Read a page of a list of `kind`."""
    method, member = _LISTS[kind]
    problems: list[str] = []
    items = _items(method, member, kind, result, problems)
    return Page(items, next_cursor(result), problems, result)


def read_tasks(result: Mapping[str, Any]) -> Page[RemoteTask]:
    """Read a page of `tasks/list`."""
    return Page(
        [read_task(one, "tasks/list") for one in _list("tasks/list", "tasks", result)], next_cursor(result), (), result
    )


def next_cursor(result: Mapping[str, Any]) -> str | None:
    """The cursor of the next page, which may be an empty string."""
    return _text(result.get("nextCursor"))


def _list(method: str, member: str, result: Mapping[str, Any]) -> Sequence[Any]:
    values: Any = result.get(member)
    if not is_array(values):
        raise BadAnswer(f"Invalid result of {method}: its {member} are {_type_text(values)}, not a list")
    return values


def _items(
    method: str, member: str, kind: type[W], result: Mapping[str, Any], problems: list[str] | None = None
) -> list[W]:
    """The entries of a result's list. A malformed entry is added to `problems`; without `problems` it raises."""
    found: list[W] = []
    for place, value in enumerate(_list(method, member, result)):
        read: W | str = _read_struct(kind, value) if is_object(value) else f"it is {_type_text(value)}"
        if not isinstance(read, str):
            found.append(read)
            continue
        name: Any = value.get("name") if is_object(value) else None
        why = f"{member}[{place}]{f' ({name[:64]})' if isinstance(name, str) else ''}: {read}"
        if problems is None:
            raise BadAnswer(f"Invalid result of {method}: {why}")
        problems.append(why)
    return found


# --- notifications


@dataclass(frozen=True, slots=True)
class LogMessage:
    """A log message from the server."""

    level: str
    data: Any
    logger: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def __str__(self) -> str:
        return self.data if isinstance(self.data, str) else msgspec.json.encode(self.data).decode()


def read_log(params: Mapping[str, Any]) -> LogMessage:
    """Read the params of `notifications/message`. An unknown level becomes `"info"`."""
    level: Any = params.get("level")
    known = level if level in LOG_LEVELS else "info"
    return LogMessage(known, params.get("data"), _text(params.get("logger")), params)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _meta(result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    meta: Any = result.get("_meta")
    return meta if is_object(meta) else None


def _type_text(value: Any) -> str:
    return "missing" if value is None else f"of the type {type(value).__name__}"
