"""From what a handler returned to the result on the wire: one normaliser for each kind of handler.

A handler may return plain Python, blocks, or one of the classes here when it wants to say more: `Structured` (data for
programs), `CallToolResult` (all of it by hand), `PromptResult`, `Completion`, and `WithMeta` around any of them. An error may
be returned as well as raised. What has no form on the wire raises `UnknownShape`, which is the handler's bug: the peer hears
nothing of it but that there was one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    Coroutine,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args

import msgspec

from greenroom.errors import GreenroomError

from .content import Audio, Contents, Embedded, Image, Text, blob_resource, is_block, mime_type_of
from .conversions import is_picture, picture_of
from .definitions import Meta  # noqa: TC001 - the fields of structs are read at run time
from .errors import BadAnswer, ErrorCode, LocalProtocolError, McpError, ToolError
from .problems import Problem
from .wire import Wire, base64_text, infinity_in, is_array, is_iterable, is_object, plain

if TYPE_CHECKING:
    from .returns import Returns

MOST_COMPLETIONS: Final = 100


class UnknownShape(GreenroomError):
    """A handler returned what has no form on the wire."""


class Infinite(UnknownShape):
    """A handler returned data with an infinity in it, which JSON has no number for. `problem` says where."""

    def __init__(self, problem: Problem) -> None:
        """Of the first of them."""
        super().__init__(f"a handler returned what has no form in JSON: {problem}")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Structured:
    """Data for programs (`structuredContent`), and what to show to a model; without content, the data's own JSON text."""

    data: Any
    content: Any = None
    meta: Meta | None = None


@dataclass(frozen=True, slots=True)
class WithMeta:
    """Any other result, with metadata for the response (`_meta`)."""

    result: Any
    meta: Meta


@dataclass(frozen=True, slots=True)
class CallToolResult:
    """The whole result of a tool, made by hand."""

    content: Sequence[Any] = ()
    structured_content: Mapping[str, Any] | None = None
    is_error: bool = False
    meta: Meta | None = None

    @classmethod
    def ok(cls, content: Any = None, *, structured_content: Any = None, meta: Meta | None = None) -> CallToolResult:
        """A success. Content is whatever a handler might return as content; by default the JSON text of the structured content."""
        if structured_content is None:
            return cls(blocks(content), None, meta=meta)
        return cls.of_data(in_json(structured_content), content, meta)

    @classmethod
    def of_data(cls, data: Any, content: Any = None, meta: Meta | None = None) -> CallToolResult:
        """A success that is data, which may be null."""
        shown = [{"type": "text", "text": _as_json(data)}] if content is None else blocks(content)
        return cls(shown, as_object(data), meta=meta)

    @classmethod
    def error(cls, content: Any, *, meta: Meta | None = None) -> CallToolResult:
        """A failure that the model is to hear of."""
        return cls(blocks(content), None, is_error=True, meta=meta)

    def to_wire(self) -> dict[str, Any]:
        """The result on the wire. A success says so: `isError` is always there."""
        wire: dict[str, Any] = {"content": blocks(self.content)}
        if self.structured_content is not None:
            data = wire["structuredContent"] = as_object(in_json(self.structured_content))
            _encoded(data)  # which raises what is wrong with it
        wire["isError"] = self.is_error
        return _with_meta(wire, self.meta)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt."""

    role: Literal["user", "assistant"]
    content: Any


@dataclass(frozen=True, slots=True)
class PromptResult:
    """The messages of a prompt, with a description of this very rendering."""

    messages: Sequence[Any]
    description: str | None = None
    meta: Meta | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """Suggestions, and how many there are altogether."""

    values: Sequence[str] = field(default_factory=tuple)
    total: int | None = None
    has_more: bool | None = None


def message(role: Literal["user", "assistant"], content: Any) -> Message:
    """A message of a prompt: text, or one block."""
    return Message(role, content)


def user_message(content: Any) -> Message:
    """What the user says."""
    return Message("user", content)


def assistant_message(content: Any) -> Message:
    """What the assistant says."""
    return Message("assistant", content)


def as_object(data: Any) -> dict[str, Any]:
    """Structured content is an object in the handshake revisions: what is none goes under `result`."""
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {"result": data}


def json_text(value: Any) -> str:
    """The value's JSON as text; what is a string in JSON stays itself, without quotes."""
    data = in_json(value)
    return data if isinstance(data, str) else _encoded(data)


def in_json(value: Any, pictures: list[Any] | None = None) -> Any:
    """The value in JSON's own types, without the pictures in it if a list for them is given. Raises `UnknownShape` when it has none."""
    if isinstance(value, Coroutine):
        value.close()
        raise UnknownShape("a handler returned a coroutine that was not awaited: write `return await …`")
    try:
        return plain(value, pictures)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UnknownShape(
            f"a handler returned {type(value).__qualname__}, which has no form in JSON: {error}"
        ) from error


def blocks(value: Any) -> list[dict[str, Any]]:
    """The content blocks, on the wire, of whatever a handler returned as content."""
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "text", "text": str(value)}]
    if is_block(value):
        return [in_json(value)]
    if isinstance(value, Contents):
        return [Embedded(value).to_wire()]
    if is_picture(value):
        return [Image(*picture_of(value)).to_wire()]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return [_block_of_bytes(bytes(cast("bytes", value)))]
    if is_array(value) and all(
        isinstance(item, (str, Contents)) or is_block(item) or is_picture(item) for item in value
    ):
        return [block for item in value for block in blocks(item)]
    pictures: list[Any] = []
    return _data_blocks(in_json(value, pictures), pictures)


def _data_blocks(data: Any, pictures: Sequence[Any]) -> list[dict[str, Any]]:
    """Data as a text, and the pictures that were in it."""
    return [{"type": "text", "text": json_text(data)}, *(block for one in pictures for block in blocks(one))]


def _block_of_bytes(data: bytes) -> dict[str, Any]:
    """A picture, a sound, or a resource that has no other name than what is in it."""
    mime_type = mime_type_of(data)
    if mime_type is None:
        name = f"urn:sha256:{sha256(data).hexdigest()}"
        return Embedded(blob_resource(name, data, mime_type="application/octet-stream")).to_wire()
    kind, _, _ = mime_type.partition("/")
    return {"type": kind, "data": base64_text(data), "mimeType": mime_type}


def tool_result(value: Any, returns: Returns | None = None) -> dict[str, Any]:
    """The `tools/call` result of whatever a handler returned; `returns` is what its hint promised, where it has an output schema.

    Raises a returned `McpError`, `Infinite` for infinities in data, `UnknownShape` for what has no form on the wire, and `Mismatch` for what pydantic does not take for what was promised.
    """
    if returns is None and isinstance(value, str):  # most of them
        return {"content": [{"type": "text", "text": str(value)}], "isError": False}
    match value:
        case CallToolResult():
            return value.to_wire()
        case Structured(data, content, meta):
            return CallToolResult.of_data(in_json(data), content, meta).to_wire()
        case WithMeta(result, meta):
            return _with_meta(tool_result(result, returns), meta)
        case ToolError():
            return CallToolResult.error(value.content, meta=value.meta).to_wire()
        case McpError():
            raise value
        case _ if returns is not None:
            pictures: list[Any] = []
            data = returns.data(value, pictures, in_json)
            try:
                content = _data_blocks(data, pictures)
            except Infinite as error:
                path, reason = error.problem
                raise Infinite(Problem(("result", *path) if returns.wrapped else path, reason)) from None
            return {
                "content": content,
                "structuredContent": {"result": data} if returns.wrapped else as_object(data),
                "isError": False,
            }
        case _:
            return {"content": blocks(value), "isError": False}


def resource_contents(value: Any, uri: str, mime: str | None = None) -> dict[str, Any]:
    """The `resources/read` result of whatever a handler returned: text, bytes, contents, a list of them, or data as JSON text.

    Nothing (None) means that there is no such resource. `uri` and `mime` are for what does not name its own.
    """
    value, meta = _unpacked(value)
    if value is None:
        raise McpError(ErrorCode.RESOURCE_NOT_FOUND, f"Resource not found: {uri}", {"uri": uri})
    several = is_array(value) and (value or not _says_json(mime)) and all(_is_contents(item) for item in value)
    items: Sequence[Any] = value if several else [value]
    return _with_meta({"contents": [_contents(item, uri, mime) for item in items]}, meta)


def _unpacked(value: Any) -> tuple[Any, Meta]:
    """What was returned, and the metadata that were around it. Raises an error that was returned."""
    match value:
        case WithMeta(result, meta):
            inner, within = _unpacked(result)
            return inner, {**within, **in_json(meta)}
        case McpError():
            raise value
        case ToolError():
            raise McpError(ErrorCode.INTERNAL_ERROR, _as_text(value.content))
        case _:
            return value, {}


def _says_json(mime: str | None) -> bool:
    """Whether a list without anything in it is data, as it would be with something in it."""
    return mime is not None and (mime == "application/json" or mime.endswith("+json"))


def _is_contents(value: Any) -> bool:
    """Whether it says by itself that it is contents, or is text or bytes."""
    if is_object(value):
        return isinstance(value.get("text"), str) or isinstance(value.get("blob"), (str, bytes, bytearray))
    return isinstance(value, (str, bytes, bytearray, Contents, Embedded)) or is_picture(value)


def _contents(value: Any, uri: str, mime: str | None) -> dict[str, Any]:
    match value:
        case str():
            return {"uri": uri, "mimeType": mime or "text/plain", "text": str(value)}
        case bytes() | bytearray() | memoryview():
            data = bytes(cast("bytes", value))
            mime = mime or mime_type_of(data) or "application/octet-stream"
            return {"uri": uri, "mimeType": mime, "blob": base64_text(data)}
        case Contents():
            return value.to_wire()
        case _ if is_picture(value):
            picture = picture_of(value)
            return {"uri": uri, "mimeType": picture.mime_type, "blob": base64_text(picture.data)}
        case Embedded():
            return value.resource.to_wire()
        case _ if is_object(value) and _is_contents(value):
            wire: dict[str, Any] = in_json(value)
            kind = "text/plain" if "text" in wire else "application/octet-stream"
            given: Any = wire.pop("mimeType", None) or wire.pop("mime_type", None)
            return {"uri": wire.pop("uri", None) or uri, "mimeType": given or mime or kind, **wire}
        case _:
            return {"uri": uri, "mimeType": mime or "application/json", "text": _as_json(value)}


def _as_json(value: Any) -> str:
    return _encoded(in_json(value))


def _encoded(data: Any) -> str:
    try:
        text = msgspec.json.encode(data)
    except ValueError as error:  # half a character, which no encoding has
        raise UnknownShape(f"a handler returned a text that cannot be written: {error}") from error
    if b"null" in text and (place := infinity_in(data)) is not None:
        raise Infinite(place)
    return text.decode()


def _as_text(content: Any) -> str:
    """What an error's content says, for where there is only room for words."""
    return "\n".join(block["text"] for block in blocks(content) if block["type"] == "text") or "it failed"


def prompt_result(value: Any, description: str | None = None) -> dict[str, Any]:
    """The `prompts/get` result of whatever a handler returned: text (which the user says), a message, or a list of messages.

    A mapping with `messages` is the whole result. `description` is for what does not describe itself.
    """
    value, meta = _unpacked(value)
    match value:
        case PromptResult(messages, own, own_meta):
            result = _with_meta(prompt_result(list(messages), own or description), own_meta)
        case (list(), str() as own):
            result = prompt_result(value[0], own)
        case _ if is_object(value) and "messages" in value:
            result = prompt_result(value["messages"], value.get("description") or description)
            result = _with_meta(result, value.get("_meta"))
        case _:
            said = [said for item in (value if is_array(value) else (value,)) for said in _messages(item)]
            result = {"description": description, "messages": said} if description else {"messages": said}
    return _with_meta(result, meta)


# Only these two may speak in a prompt; instructions for the model are the user's.
_ROLES: Final = {"user": "user", "assistant": "assistant", "system": "user"}


def _messages(value: Any) -> list[dict[str, Any]]:
    """One message for each block, since a message has room for one."""
    match value:
        case Message(role, content):
            pass
        case _ if is_object(value) and "role" in value and "content" in value:
            role, content = value["role"], value["content"]
        case str() | Contents() | bytes():
            role, content = "user", value
        case _ if is_block(value) or is_picture(value):
            role, content = "user", value
        case _:
            raise UnknownShape(f"a prompt returned {type(value).__qualname__} where a message was expected")
    if role not in _ROLES:
        raise UnknownShape(f"a prompt's message has the role {role!r}; there are user and assistant")
    return [{"role": _ROLES[role], "content": block} for block in blocks(content)]


def completion_result(value: Any) -> dict[str, Any]:
    """The `completion/complete` result of whatever a handler returned: strings, `Completion`, or a mapping like it.

    At most 100 values travel, and `hasMore` says when there were more. Nothing (None) is no suggestions.
    """
    value, meta = _unpacked(value)
    values, total, more = _suggested(value)
    if isinstance(values, (str, bytes)) or is_object(values) or not is_iterable(values):
        raise UnknownShape(f"a completion returned {type(value).__qualname__} where strings were expected")
    found = list(islice(values, MOST_COMPLETIONS + 1))  # it may never end
    if not all(isinstance(item, str) for item in found):
        raise UnknownShape("a completion returned values that are not strings")
    if total is None and not more and is_array(values):
        total = len(values)
    completion: dict[str, Any] = {"values": [str(item) for item in found[:MOST_COMPLETIONS]]}
    if total is not None:
        completion["total"] = total
    completion["hasMore"] = bool(more) or len(found) > MOST_COMPLETIONS or (total or 0) > len(found)
    return _with_meta({"completion": completion}, meta)


def _suggested(value: Any) -> tuple[Any, int | None, bool | None]:
    """The values, and what was said of how many there are."""
    said: Any = value
    if isinstance(value, Completion):
        return value.values, value.total, value.has_more
    if is_array(value) and len(value) == 2 and is_array(value[0]) and is_object(value[1]):  # noqa: PLR2004 - values, and the rest
        value, said = value
    elif is_object(value):
        value = value.get("values")
    if not is_object(said):
        return () if value is None else value, None, None
    total, more = said.get("total"), said.get("hasMore", said.get("has_more"))
    if not (total is None or type(total) is int) or not (more is None or isinstance(more, bool)):
        raise UnknownShape("a completion returned a total that is no integer, or a has_more that is no boolean")
    return () if value is None else value, total, more


def _with_meta(wire: dict[str, Any], meta: Meta | None) -> dict[str, Any]:
    """The result with `_meta`, merged with what it has; an empty one is left out."""
    if meta:
        wire["_meta"] = {**wire.get("_meta", {}), **in_json(meta)}
    return wire


# --- Conversations with a client's model: what may be said in one, how tools are used in it, and whether an answer is one.
# The rules are those of the model's own interfaces. A client refuses what breaks them, some time later and in words of its own; so they
# are held here before anything is sent, and the error says which message it was.

ToolChoice: TypeAlias = Literal["auto", "required", "none"]
IncludeContext: TypeAlias = Literal["none", "thisServer", "allServers"]

_SHOWN: Final = 5


class ToolUse(Wire, frozen=True, tag_field="type", tag="tool_use"):
    """The model wants a tool to be called."""

    id: str
    name: str
    input: Mapping[str, Any]
    meta: Meta | None = None


class ToolResult(Wire, frozen=True, tag_field="type", tag="tool_result"):
    """What came of a tool that the model wanted. `ToolResult.of` makes one of whatever a tool may return."""

    tool_use_id: str
    content: Sequence[Any]
    structured_content: Mapping[str, Any] | None = None
    is_error: bool = False
    meta: Meta | None = None

    @classmethod
    def of(cls, use: ToolUse | str, value: Any) -> ToolResult:
        """The answer to a use, or to its id: text, blocks, `Structured`, data as JSON text; a `ToolError` is a failure."""
        result = tool_result(value)
        id = use if isinstance(use, str) else use.id
        return cls(id, result["content"], result.get("structuredContent"), result["isError"], result.get("_meta"))


SaidBlock: TypeAlias = Text | Image | Audio | ToolUse
_KINDS: Final[Mapping[str, type[SaidBlock]]] = {"text": Text, "image": Image, "audio": Audio, "tool_use": ToolUse}


# --- before it is asked


def check_sampling(params: Mapping[str, Any]) -> None:
    """Whether a client's model can go on with it. Raises `LocalProtocolError` that says which message is wrong, and how."""
    owed: list[str] = []
    for place, message in enumerate(params.get("messages", ())):
        owed = _follow(f"messages[{place}]", message, owed)
    if owed:
        raise _wrong(
            f"the messages end before {_some(owed)} got an answer: add a user message with a tool_result for each"
        )
    names = _tool_names(params.get("tools") or ())
    choice: Any = params.get("toolChoice")
    mode = choice.get("mode", "auto") if is_object(choice) else "auto"
    if mode not in get_args(ToolChoice):
        raise _wrong(f"tool_choice is one of {', '.join(get_args(ToolChoice))}, not {mode!r}")
    if mode == "required" and not names:
        raise _wrong("tool_choice is required, and there are no tools")
    if params.get("includeContext") not in (None, *get_args(IncludeContext)):
        raise _wrong(f"include_context is one of {', '.join(get_args(IncludeContext))}")
    if not params.get("maxTokens", 1) > 0:
        raise _wrong("max_tokens is 1 or more")


def _follow(where: str, message: Any, owed: list[str]) -> list[str]:
    """The next message, when these uses of tools wait for their results; those that wait then."""
    role = message.get("role") if is_object(message) else None
    if role not in ("user", "assistant"):
        raise _wrong(f"{where}: a message is the user's or the assistant's; its role is {role!r}")
    blocks = _blocks(where, message.get("content"))
    results = [str(block["toolUseId"]) for block in blocks if block["type"] == "tool_result"]
    uses = [str(block["id"]) for block in blocks if block["type"] == "tool_use"]
    if results and role != "user":
        raise _wrong(f"{where}: tool results are the user's to say, not the assistant's")
    if uses and role != "assistant":
        raise _wrong(f"{where}: only the assistant uses tools")
    if results and len(results) != len(blocks):
        others = sorted({str(block["type"]) for block in blocks} - {"tool_result"})
        raise _wrong(
            f"{where}: a message with tool results has nothing else in it, and this has {', '.join(others)} as well"
        )
    for ids, what in ((results, "answered"), (uses, "used")):
        if twice := [id for id, times in Counter(ids).items() if times > 1]:
            raise _wrong(f"{where}: {_some(twice)} is {what} twice")
    answered, waiting = set(results), set(owed)
    if missing := [id for id in owed if id not in answered]:
        raise _wrong(f"{where}: {_some(missing)} needs its tool_result here, before anything else is said")
    if strange := [id for id in results if id not in waiting]:
        raise _wrong(f"{where}: there is a result for {_some(strange)}, which the message before did not use")
    return uses


def _blocks(where: str, content: Any) -> Sequence[Mapping[str, Any]]:
    blocks: Sequence[Any] = content if is_array(content) else [content]
    if not blocks:
        raise _wrong(f"{where}: there is nothing in it")
    for block in blocks:
        if not _is_sampling_block(block):
            kind = block.get("type") if is_object(block) else type(block).__name__
            raise _wrong(f"{where}: {kind!r} is no whole block of text, image, audio, tool_use or tool_result")
    return blocks


def _is_sampling_block(block: Any) -> bool:
    if not is_object(block):
        return False
    match block.get("type"):
        case "text" | "image" | "audio":
            return is_block(block)
        case "tool_use":
            return all(isinstance(block.get(name), str) for name in ("id", "name")) and is_object(block.get("input"))
        case "tool_result":
            content = block.get("content")
            return isinstance(block.get("toolUseId"), str) and is_array(content) and all(map(is_block, content))
        case _:
            return False


def _tool_names(tools: Sequence[Any]) -> set[str]:
    names: set[str] = set()
    for place, tool in enumerate(tools):
        name = tool.get("name") if is_object(tool) else None
        if not isinstance(name, str) or not name:
            raise _wrong(f"tools[{place}]: a tool has a name")
        schema = tool.get("inputSchema")
        if not is_object(schema) or schema.get("type") != "object":
            raise _wrong(f'tools[{place}]: the inputSchema of {name} is of {{"type": "object"}}')
        if name in names:
            raise _wrong(f"tools[{place}]: there are two tools called {name}")
        names.add(name)
    return names


def uses_tools(params: Mapping[str, Any]) -> bool:
    """Whether only a client whose model can use tools understands it."""
    if params.get("tools") is not None or params.get("toolChoice") is not None:
        return True
    messages: Any = params.get("messages")
    said = [one.get("content") for one in messages if is_object(one)] if is_array(messages) else []
    blocks = [block for content in said for block in (content if is_array(content) else [content])]
    return any(is_object(block) and block.get("type") in ("tool_use", "tool_result") for block in blocks)


def _some(ids: Sequence[str]) -> str:
    shown = ", ".join(repr(id) for id in dict.fromkeys(ids[:_SHOWN]))
    return f"tool use {shown}" + (" …" if len(ids) > _SHOWN else "")


def _wrong(why: str) -> LocalProtocolError:
    return LocalProtocolError(f"sampling: {why}")


# --- when it was answered


def said_blocks(content: Any) -> list[SaidBlock | Mapping[str, Any]]:
    """What a model said, one block or several; of a type that is not known here, as it came. Raises `BadAnswer`."""
    found: list[SaidBlock | Mapping[str, Any]] = []
    for block in content if is_array(content) else [content]:
        if not is_object(block):
            raise BadAnswer("the client's model said what is no content block")
        kind: Any = block.get("type")
        shape = _KINDS.get(kind) if isinstance(kind, str) else None
        try:
            found.append(block if shape is None else shape.from_wire(block))
        except msgspec.ValidationError as error:
            raise BadAnswer(f"the client's model said a broken {kind} block: {error}") from None
    uses = [block.id for block in found if isinstance(block, ToolUse)]
    if len(set(uses)) != len(uses):
        raise BadAnswer("the client's model used two tools under one id")
    return found
