"""What a server answered, as values: the same ones that a server is written with, each with `raw` for what they have no word for.

It is read leniently, since it has come already: a content block of a type that is not known here stays the mapping that it was, and so does
a broken one; an entry of a list that is none is left out and named in `Page.problems`. What is no such result at all raises `BadAnswer`.

A `ToolReply` and a `PromptReply` are also what a handler of our own server may return: to pass something on is to return it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from .content import Audio, Contents, Embedded, Image, ResourceLink, Text, ToolResult, ToolUse
from .definitions import Prompt, Resource, ResourceTemplate, Tool
from .errors import BadAnswer
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
"""How a task may have ended."""


# --- tools


@dataclass(frozen=True, slots=True)
class RemoteTask:
    """How a task of a server's stood when it was asked, or said so. Times are in seconds."""

    id: str
    status: str
    """`"working"`, `"input_required"`, `"completed"`, `"failed"` or `"cancelled"`."""
    status_message: str | None = None
    created_at: str = ""
    last_updated_at: str = ""
    ttl: float | None = None
    """How long it is kept after it was made; None for ever."""
    poll_interval: float | None = None
    """How often the server would like to be asked."""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def over(self) -> bool:
        """Whether it has ended, however it did."""
        return self.status in TERMINAL_STATES


@dataclass(frozen=True, slots=True)
class ToolReply(CallToolResult):
    """What came of a call of a tool, as the server told it: `is_error` is not raised here."""

    task: RemoteTask | None = None
    """The task that was begun instead, or besides."""
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def text(self) -> str:
        """All that is text in it, a line break between two."""
        return text_of(self.content)

    @property
    def data(self) -> Any:
        """The structured content; without any, the text."""
        return self.text if self.structured_content is None else self.structured_content

    def to_wire(self) -> dict[str, Any]:
        """The result on the wire, blocks that are not known here among it."""
        wire: dict[str, Any] = {"content": [to_jsonable(block) for block in self.content]}
        if self.structured_content is not None:
            wire["structuredContent"] = self.structured_content
        wire["isError"] = self.is_error
        return wire | ({"_meta": dict(self.meta)} if self.meta else {})


def read_tool_reply(result: Mapping[str, Any]) -> ToolReply:
    """A `tools/call` or `tasks/result` result, or the task that was made instead: in its envelope, or without one, as some send it."""
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
    """A task's state; `what` was asked, for the complaint."""
    if not is_object(value) or not isinstance(value.get("taskId"), str) or not isinstance(value.get("status"), str):
        raise BadAnswer(f"Invalid result of {what}: a task has a taskId and a status")
    return RemoteTask(
        value["taskId"],
        value["status"],
        _text(value.get("statusMessage")),
        _text(value.get("createdAt")) or "",
        _text(value.get("lastUpdatedAt")) or "",
        _seconds(value.get("ttl")),
        _seconds(value.get("pollInterval")),
        value,
    )


def _seconds(milliseconds: Any) -> float | None:
    number = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    return milliseconds / 1000 if number else None


# --- blocks


def read_block(value: Any) -> ReadBlock:
    """A block as the value that it is; one that is unknown or broken stays what it was. Raises `BadAnswer` for what is no object."""
    if not is_object(value):
        raise BadAnswer(f"Invalid content: {_type_text(value)} where a block was expected")
    kind = value.get("type")
    shape = _BLOCKS.get(kind) if isinstance(kind, str) else None
    found: Any = value if shape is None else _read_struct(shape, value)
    return value if isinstance(found, str) else found


def _read_struct(shape: type[W], value: Mapping[str, Any]) -> W | str:
    """The value, or why it is none. A member that may be missing may also be null."""
    try:
        return shape.from_wire(value)
    except msgspec.ValidationError as error:
        if None in value.values():
            return _read_struct(shape, {name: one for name, one in value.items() if one is not None})
        return str(error).replace("`", "")


def text_of(blocks: Sequence[Any]) -> str:
    """All that is text in some blocks; embedded text is text."""
    return "\n".join(said for block in blocks if (said := _block_text(block)) is not None)


def _block_text(block: Any) -> str | None:
    match block:
        case Text(text) | Embedded(Contents(text=str() as text)):
            return text
        case _:
            return None


# --- resources


@dataclass(frozen=True, slots=True)
class ResourceReply:
    """What was read of a resource: one or several contents, over which one may go."""

    contents: Sequence[Contents]
    meta: Mapping[str, Any] | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def __iter__(self) -> Iterator[Contents]:
        return iter(self.contents)

    def __len__(self) -> int:
        return len(self.contents)

    @property
    def text(self) -> str:
        """All that is text in it."""
        return "\n".join(one.text for one in self.contents if one.text is not None)

    @property
    def blob(self) -> bytes:
        """All that is bytes in it."""
        return b"".join(one.blob for one in self.contents if one.blob is not None)


def read_contents(result: Mapping[str, Any]) -> ResourceReply:
    """A `resources/read` result."""
    return ResourceReply(_items("resources/read", "contents", Contents, result), _meta(result), result)


# --- prompts and completions


@dataclass(frozen=True, slots=True)
class PromptReply(PromptResult):
    """A prompt as the server rendered it. `content` of a message is a block."""

    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    @property
    def text(self) -> str:
        """All that is text in its messages."""
        return text_of(
            [block for one in self.messages for block in (one.content if is_array(one.content) else [one.content])]
        )


def read_prompt(result: Mapping[str, Any]) -> PromptReply:
    """A `prompts/get` result."""
    said = _list("prompts/get", "messages", result)
    return PromptReply([read_message(one) for one in said], _text(result.get("description")), _meta(result), result)


def read_message(value: Any) -> Message:
    """One message: a role, and a block or several."""
    value = value if is_object(value) else {}
    role: Any = value.get("role")
    if role not in ("user", "assistant"):
        raise BadAnswer(f"Invalid message: its role is {role!r}, and neither user nor assistant")
    content: Any = value.get("content")
    return Message(role, [read_block(one) for one in content] if is_array(content) else read_block(content))


def read_completion(result: Mapping[str, Any]) -> Completion:
    """A `completion/complete` result."""
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
    """What was left out since it could not be read, and why."""
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
    """A page of a list of these."""
    method, member = _LISTS[kind]
    problems: list[str] = []
    items = _items(method, member, kind, result, problems)
    return Page(items, next_cursor(result), problems, result)


def read_tasks(result: Mapping[str, Any]) -> Page[RemoteTask]:
    """A page of `tasks/list`."""
    return Page(
        [read_task(one, "tasks/list") for one in _list("tasks/list", "tasks", result)], next_cursor(result), (), result
    )


def next_cursor(result: Mapping[str, Any]) -> str | None:
    """Where the list goes on, an empty text among the possible places."""
    return _text(result.get("nextCursor"))


def _list(method: str, member: str, result: Mapping[str, Any]) -> Sequence[Any]:
    values: Any = result.get(member)
    if not is_array(values):
        raise BadAnswer(f"Invalid result of {method}: its {member} are {_type_text(values)}, and no list")
    return values


def _items(
    method: str, member: str, kind: type[W], result: Mapping[str, Any], problems: list[str] | None = None
) -> list[W]:
    """The entries of a result's list. One that is none goes to `problems`; without those it is an error."""
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


# --- what is told


@dataclass(frozen=True, slots=True)
class LogMessage:
    """Something that a server logs for its client."""

    level: str
    data: Any
    logger: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def __str__(self) -> str:
        return self.data if isinstance(self.data, str) else msgspec.json.encode(self.data).decode()


def read_log(params: Mapping[str, Any]) -> LogMessage:
    """The params of a `notifications/message`. A level that there is not is `"info"`."""
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
