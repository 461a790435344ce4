"""Content blocks of results and messages, their builders, and sampling conversations made of them.

A block is an object of these classes or a mapping with the same members; `is_block` recognizes both. Binary data is bytes here and base64 on
the wire, in both directions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from .definitions import Meta, ResourceFields, SomeAnnotations, SomeIcon
from .errors import BadAnswer, LocalProtocolError
from .serialization import WireObject, base64_text, is_array, is_object


class Text(WireObject, frozen=True, tag_field="type", tag="text"):
    """A text block."""

    text: str
    annotations: SomeAnnotations | None = None
    meta: Meta | None = None


class _Media(WireObject, frozen=True):
    data: bytes
    mime_type: str
    annotations: SomeAnnotations | None = None
    meta: Meta | None = None


class Image(_Media, frozen=True, tag_field="type", tag="image"):
    """An image block."""


class Audio(_Media, frozen=True, tag_field="type", tag="audio"):
    """An audio block."""


class ResourceLink(ResourceFields, frozen=True, tag_field="type", tag="resource_link"):
    """A link to a resource. The server need not list the resource."""


class Contents(WireObject, frozen=True):
    """The contents of a resource: text, or bytes (`blob`)."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: bytes | None = None
    annotations: SomeAnnotations | None = None
    meta: Meta | None = None

    def to_wire(self) -> dict[str, Any]:
        """The contents with either `text` or `blob`, which may be empty."""
        wire = super().to_wire()
        if self.blob is not None:
            wire["blob"] = base64_text(self.blob)
        else:
            wire["text"] = self.text or ""
        return wire


class Embedded(WireObject, frozen=True, tag_field="type", tag="resource"):
    """A resource's contents embedded as a block."""

    resource: Contents
    annotations: SomeAnnotations | None = None
    meta: Meta | None = None


Block: TypeAlias = Text | Image | Audio | ResourceLink | Embedded
BLOCKS: Final = (Text, Image, Audio, ResourceLink, Embedded)


def text(value: str, *, annotations: SomeAnnotations | None = None, meta: Meta | None = None) -> Text:
    """Build a text block."""
    return Text(value, annotations, meta)


def image(
    data: bytes, mime_type: str, *, annotations: SomeAnnotations | None = None, meta: Meta | None = None
) -> Image:
    """Build an image block."""
    return Image(data, mime_type, annotations, meta)


def audio(
    data: bytes, mime_type: str, *, annotations: SomeAnnotations | None = None, meta: Meta | None = None
) -> Audio:
    """Build an audio block."""
    return Audio(data, mime_type, annotations, meta)


def resource_link(  # noqa: PLR0913 - the members of the block
    uri: str,
    name: str,
    *,
    title: str | None = None,
    description: str | None = None,
    mime_type: str | None = None,
    size: int | None = None,
    annotations: SomeAnnotations | None = None,
    icons: Sequence[SomeIcon] = (),
    meta: Meta | None = None,
) -> ResourceLink:
    """Build a link to a resource."""
    return ResourceLink(uri, name, title, description, mime_type, size, annotations, icons, meta)


def text_resource(
    uri: str,
    value: str,
    *,
    mime_type: str | None = None,
    annotations: SomeAnnotations | None = None,
    meta: Meta | None = None,
) -> Contents:
    """Build the contents of a text resource."""
    return Contents(uri, mime_type, value, None, annotations, meta)


def blob_resource(
    uri: str,
    data: bytes,
    *,
    mime_type: str | None = None,
    annotations: SomeAnnotations | None = None,
    meta: Meta | None = None,
) -> Contents:
    """Build the contents of a binary resource."""
    return Contents(uri, mime_type, None, data, annotations, meta)


def embedded(resource: Contents, *, annotations: SomeAnnotations | None = None, meta: Meta | None = None) -> Embedded:
    """Build a block with embedded contents."""
    return Embedded(resource, annotations, meta)


# type -> its required members, and their types
_MEMBERS: Final[Mapping[str, Mapping[str, type | tuple[type, ...]]]] = {
    "text": {"text": str},
    "image": {"data": (str, bytes), "mimeType": str},
    "audio": {"data": (str, bytes), "mimeType": str},
    "resource_link": {"uri": str, "name": str},
    "resource": {"resource": (Mapping, Contents)},
}


def is_block(value: Any) -> bool:
    """Whether a value is a block: one of these classes, or a mapping of a known `type` with that type's required members.

    A mapping that only happens to have a member `type` is data.
    """
    if isinstance(value, BLOCKS):
        return True
    if not is_object(value):
        return False
    kind = value.get("type")
    members = _MEMBERS.get(kind) if isinstance(kind, str) else None
    return members is not None and all(isinstance(value.get(name), kinds) for name, kinds in members.items())


# Magic bytes of the common media types of tools that return bytes.
_SIGNATURES: Final[tuple[tuple[bytes, int, bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", 0, b"", "image/png"),
    (b"\xff\xd8\xff", 0, b"", "image/jpeg"),
    (b"GIF8", 0, b"", "image/gif"),
    (b"RIFF", 8, b"WEBP", "image/webp"),
    (b"RIFF", 8, b"WAVE", "audio/wav"),
    (b"ID3", 0, b"", "audio/mpeg"),
    (b"OggS", 0, b"", "audio/ogg"),
    (b"fLaC", 0, b"", "audio/flac"),
)


def mime_type_of(data: bytes) -> str | None:
    """The MIME type of image or audio bytes, if it is a common one."""
    for head, place, mark, mime_type in _SIGNATURES:
        if data.startswith(head) and data.startswith(mark, place):
            return mime_type
    return None


# --- Sampling conversations: their allowed form, the use of tools in them, and the check of the client's result.
# The rules are those of the models' own APIs. A client would refuse a conversation that breaks them, later and with its own error; so they are
# checked before anything is sent, and the error names the message.

ToolChoice: TypeAlias = Literal["auto", "required", "none"]
IncludeContext: TypeAlias = Literal["none", "thisServer", "allServers"]

_SHOWN_TYPES: Final = 5


class ToolUse(WireObject, frozen=True, tag_field="type", tag="tool_use"):
    """A tool use: the model asks for a tool call."""

    id: str
    name: str
    input: Mapping[str, Any]
    meta: Meta | None = None


class ToolResult(WireObject, frozen=True, tag_field="type", tag="tool_result"):
    """The result of a tool use. `ToolResult.of` makes one of any value that a tool may return."""

    tool_use_id: str
    content: Sequence[Any]
    structured_content: Mapping[str, Any] | None = None
    is_error: bool = False
    meta: Meta | None = None

    @classmethod
    def of(cls, use: ToolUse | str, value: Any) -> ToolResult:
        """The result of a use, or of its id: text, blocks, `Structured`, data as JSON text; a `ToolError` is a failure."""
        from .handler_results import tool_result  # noqa: PLC0415 - handler_results imports this module

        result = tool_result(value)
        id = use if isinstance(use, str) else use.id
        return cls(id, result["content"], result.get("structuredContent"), result["isError"], result.get("_meta"))


SampledBlock: TypeAlias = Text | Image | Audio | ToolUse
_KINDS: Final[Mapping[str, type[SampledBlock]]] = {"text": Text, "image": Image, "audio": Audio, "tool_use": ToolUse}


# --- the request


def check_sampling(params: Mapping[str, Any]) -> None:
    """Refuse a conversation that a client's model could not continue. Raises `LocalProtocolError` naming the message."""
    owed: list[str] = []
    for place, message in enumerate(params.get("messages", ())):
        owed = _check_order(f"messages[{place}]", message, owed)
    if owed:
        raise _wrong(
            f"the messages end before {_joined_ids(owed)} got its result: add a user message with a tool_result for each"
        )
    names = _tool_names(params.get("tools") or ())
    choice: Any = params.get("toolChoice")
    mode = choice.get("mode", "auto") if is_object(choice) else "auto"
    if mode not in get_args(ToolChoice):
        raise _wrong(f"tool_choice must be one of {', '.join(get_args(ToolChoice))}, not {mode!r}")
    if mode == "required" and not names:
        raise _wrong("tool_choice is required, but there are no tools")
    if params.get("includeContext") not in (None, *get_args(IncludeContext)):
        raise _wrong(f"include_context must be one of {', '.join(get_args(IncludeContext))}")
    if not params.get("maxTokens", 1) > 0:
        raise _wrong("max_tokens must be 1 or more")


def _check_order(where: str, message: Any, owed: list[str]) -> list[str]:
    """Check one message against the tool uses that wait for results; returns the uses that wait after it."""
    role = message.get("role") if is_object(message) else None
    if role not in ("user", "assistant"):
        raise _wrong(f"{where}: a message's role is user or assistant, not {role!r}")
    blocks = _blocks(where, message.get("content"))
    results = [str(block["toolUseId"]) for block in blocks if block["type"] == "tool_result"]
    uses = [str(block["id"]) for block in blocks if block["type"] == "tool_use"]
    if results and role != "user":
        raise _wrong(f"{where}: tool results belong to the user, not to the assistant")
    if uses and role != "assistant":
        raise _wrong(f"{where}: only the assistant uses tools")
    if results and len(results) != len(blocks):
        others = sorted({str(block["type"]) for block in blocks} - {"tool_result"})
        raise _wrong(
            f"{where}: a message with tool results has nothing else in it, but this one has {', '.join(others)} as well"
        )
    for ids, what in ((results, "answered"), (uses, "used")):
        if twice := [id for id, times in Counter(ids).items() if times > 1]:
            raise _wrong(f"{where}: {_joined_ids(twice)} is {what} twice")
    answered, waiting = set(results), set(owed)
    if missing := [id for id in owed if id not in answered]:
        raise _wrong(f"{where}: {_joined_ids(missing)} needs its tool_result here, before any other message")
    if strange := [id for id in results if id not in waiting]:
        raise _wrong(f"{where}: there is a result for {_joined_ids(strange)}, which the previous message did not use")
    return uses


def _blocks(where: str, content: Any) -> Sequence[Mapping[str, Any]]:
    blocks: Sequence[Any] = content if is_array(content) else [content]
    if not blocks:
        raise _wrong(f"{where}: it is empty")
    for block in blocks:
        if not _is_sampling_block(block):
            kind = block.get("type") if is_object(block) else type(block).__name__
            raise _wrong(f"{where}: {kind!r} is no complete block of text, image, audio, tool_use or tool_result")
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
            raise _wrong(f"tools[{place}]: a tool needs a name")
        schema = tool.get("inputSchema")
        if not is_object(schema) or schema.get("type") != "object":
            raise _wrong(f'tools[{place}]: the inputSchema of {name} is of {{"type": "object"}}')
        if name in names:
            raise _wrong(f"tools[{place}]: there are two tools called {name}")
        names.add(name)
    return names


def uses_tools(params: Mapping[str, Any]) -> bool:
    """Whether a conversation needs a client whose model can use tools."""
    if params.get("tools") is not None or params.get("toolChoice") is not None:
        return True
    messages: Any = params.get("messages")
    contents = [one.get("content") for one in messages if is_object(one)] if is_array(messages) else []
    blocks = [block for content in contents for block in (content if is_array(content) else [content])]
    return any(is_object(block) and block.get("type") in ("tool_use", "tool_result") for block in blocks)


def _joined_ids(ids: Sequence[str]) -> str:
    shown = ", ".join(repr(id) for id in dict.fromkeys(ids[:_SHOWN_TYPES]))
    return f"tool use {shown}" + (" …" if len(ids) > _SHOWN_TYPES else "")


def _wrong(why: str) -> LocalProtocolError:
    return LocalProtocolError(f"sampling: {why}")


# --- the result


def sampled_blocks(content: Any) -> list[SampledBlock | Mapping[str, Any]]:
    """The blocks of a model's message. Blocks of unknown types stay mappings. Raises `BadAnswer`."""
    found: list[SampledBlock | Mapping[str, Any]] = []
    for block in content if is_array(content) else [content]:
        if not is_object(block):
            raise BadAnswer("the client's model returned content that is no block")
        kind: Any = block.get("type")
        shape = _KINDS.get(kind) if isinstance(kind, str) else None
        try:
            found.append(block if shape is None else shape.from_wire(block))
        except msgspec.ValidationError as error:
            raise BadAnswer(f"the client's model returned a broken {kind} block: {error}") from None
    uses = [block.id for block in found if isinstance(block, ToolUse)]
    if len(set(uses)) != len(uses):
        raise BadAnswer("the client's model used one id for two tool uses")
    return found
