"""Results of handlers: what a handler returned, normalized to the result on the wire.

A handler may return plain Python values, blocks, or one of these classes to say more: `Structured` (data for programs), `CallToolResult` (the
whole result), `PromptResult`, `Completion`, and `WithMeta` around any of them. An error may be returned or raised. A value that cannot be
expressed on the wire raises `UnserializableResult`, which is the handler's bug: the peer only gets an internal error.
"""

from __future__ import annotations

import math
import types
from collections import abc
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Union, cast, get_args, get_origin

import msgspec

from greenroom.errors import GreenroomError

from .content import Contents, Embedded, Image, blob_resource, is_block, mime_type_of
from .conversions import MAPPINGS, is_model, is_pydantic_hint, loaded_pydantic
from .errors import ErrorCode, McpError, ToolError
from .function_parameters import MISSING, BadHint, refined, return_hint_of
from .hash_collisions import types_inside
from .input_required import InputRequired
from .jsonrpc import decode_checked
from .serialization import (
    UnderResult,
    WireObject,
    base64_text,
    infinity_in,
    is_array,
    is_iterable,
    is_object,
    is_picture,
    is_picture_class,
    library_schema,
    picture_of,
    to_jsonable,
)
from .type_schemas import TypedSchema, schema_of
from .validation_errors import Mismatch, ProblemReason, ValidationProblem

if TYPE_CHECKING:
    from collections.abc import Callable

    from .definitions import Meta
    from .validation_errors import Path, StepMeter

MOST_COMPLETIONS: Final = 100


class UnserializableResult(GreenroomError):
    """A handler returned a value that cannot be sent."""


class InfiniteNumber(UnserializableResult):
    """A handler returned data with an infinity, which JSON cannot express. `problem` says where."""

    def __init__(self, problem: ValidationProblem) -> None:
        """`problem` is the first one."""
        super().__init__(f"a handler returned a value that JSON cannot express: {problem}")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Structured:
    """Data for programs (`structuredContent`), and content for a model; the default content is the data as JSON text."""

    data: Any
    content: Any = None
    meta: Meta | None = None


@dataclass(frozen=True, slots=True)
class WithMeta:
    """A result with metadata for the response (`_meta`)."""

    result: Any
    meta: Meta


@dataclass(frozen=True, slots=True)
class CallToolResult:
    """The whole result of a tool."""

    content: Sequence[Any] = ()
    structured_content: Mapping[str, Any] | None = None
    is_error: bool = False
    meta: Meta | None = None

    @classmethod
    def ok(cls, content: Any = None, *, structured_content: Any = None, meta: Meta | None = None) -> CallToolResult:
        """A success. `content` is any content that a handler may return; by default the structured content as JSON text."""
        if structured_content is None:
            return cls(blocks(content), None, meta=meta)
        return cls.of_data(in_json(structured_content), content, meta)

    @classmethod
    def of_data(cls, data: Any, content: Any = None, meta: Meta | None = None) -> CallToolResult:
        """A success with data, which may be null."""
        shown = [{"type": "text", "text": _as_json(data)}] if content is None else blocks(content)
        return cls(shown, as_object(data), meta=meta)

    @classmethod
    def error(cls, content: Any, *, meta: Meta | None = None) -> CallToolResult:
        """A failure that the model sees."""
        return cls(blocks(content), None, is_error=True, meta=meta)

    def to_wire(self) -> dict[str, Any]:
        """The result on the wire. `isError` is always present, also for a success."""
        wire: dict[str, Any] = {"content": blocks(self.content)}
        if self.structured_content is not None:
            given = self.structured_content
            data = wire["structuredContent"] = given if type(given) is UnderResult else as_object(in_json(given))
            _encoded(data)  # which raises the error
        wire["isError"] = self.is_error
        return _with_meta(wire, self.meta)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a prompt."""

    role: Literal["user", "assistant"]
    content: Any


@dataclass(frozen=True, slots=True)
class PromptResult:
    """The messages of a prompt, with a description of this rendering."""

    messages: Sequence[Any]
    description: str | None = None
    meta: Meta | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """Completion suggestions, and their total number."""

    values: Sequence[str] = field(default_factory=tuple)
    total: int | None = None
    has_more: bool | None = None


def message(role: Literal["user", "assistant"], content: Any) -> Message:
    """Build a message of a prompt: text, or one block."""
    return Message(role, content)


def user_message(content: Any) -> Message:
    """Build a user's message."""
    return Message("user", content)


def assistant_message(content: Any) -> Message:
    """Build an assistant's message."""
    return Message("assistant", content)


def as_object(data: Any) -> dict[str, Any]:
    """The data as an object, as structured content must be in the handshake revisions: other values are put under `result`."""
    return cast("dict[str, Any]", data) if isinstance(data, dict) else UnderResult(result=data)


def json_text(value: Any) -> str:
    """The value as JSON text; a string stays as it is, without quotes."""
    data = in_json(value)
    return data if isinstance(data, str) else _encoded(data)


def in_json(value: Any, pictures: list[Any] | None = None) -> Any:
    """The value as JSON types; pictures are moved to `pictures` if given. Raises `UnserializableResult`."""
    if isinstance(value, Coroutine):
        value.close()
        raise UnserializableResult("a handler returned a coroutine that was not awaited: write `return await …`")
    try:
        return to_jsonable(value, pictures)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UnserializableResult(
            f"a handler returned {type(value).__qualname__}, which JSON cannot express: {error}"
        ) from error


def blocks(value: Any) -> list[dict[str, Any]]:
    """The content blocks, on the wire, of any content that a handler returned."""
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
    """Data as a text block, and its pictures as image blocks."""
    return [{"type": "text", "text": json_text(data)}, *(block for one in pictures for block in blocks(one))]


def _block_of_bytes(data: bytes) -> dict[str, Any]:
    """An image, a sound, or a resource named by a digest of its bytes."""
    mime_type = mime_type_of(data)
    if mime_type is None:
        name = f"urn:sha256:{sha256(data).hexdigest()}"
        return Embedded(blob_resource(name, data, mime_type="application/octet-stream")).to_wire()
    kind, _, _ = mime_type.partition("/")
    return {"type": kind, "data": base64_text(data), "mimeType": mime_type}


def tool_result(value: Any, returns: ReturnSchema | None = None) -> dict[str, Any]:
    """The `tools/call` result of a handler's return value; `returns` is the output schema of its hint, if there is one.

    Raises a returned `McpError` or `InputRequired`, `InfiniteNumber` for infinities in data, `UnserializableResult` for values that cannot be sent, and `Mismatch` for
    values that pydantic refuses for the return hint.
    """
    if returns is None and isinstance(value, str):  # the most common case
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
        case McpError() | InputRequired():
            raise value
        case _ if returns is not None:
            pictures: list[Any] = []
            data = returns.data(value, pictures)
            try:
                content = _data_blocks(data, pictures)
            except InfiniteNumber as error:
                path, reason = error.problem
                raise InfiniteNumber(
                    ValidationProblem(("result", *path) if returns.wrapped else path, reason)
                ) from None
            return {
                "content": content,
                "structuredContent": UnderResult(result=data) if returns.wrapped else as_object(data),
                "isError": False,
            }
        case _:
            return {"content": blocks(value), "isError": False}


def resource_contents(value: Any, uri: str, mime: str | None = None) -> dict[str, Any]:
    """The `resources/read` result of a handler's return value: text, bytes, contents, a list of them, or data as JSON text.

    None means that the resource does not exist. `uri` and `mime` are defaults for contents without their own.
    """
    value, meta = _unpacked(value)
    if value is None:
        raise McpError(ErrorCode.RESOURCE_NOT_FOUND, f"Resource not found: {uri}", {"uri": uri})
    several = is_array(value) and (value or not _is_json_type(mime)) and all(_is_contents(item) for item in value)
    items: Sequence[Any] = value if several else [value]
    return _with_meta({"contents": [_contents(item, uri, mime) for item in items]}, meta)


def _unpacked(value: Any) -> tuple[Any, Meta]:
    """The return value without its `WithMeta`, and the metadata. Raises a returned error."""
    match value:
        case WithMeta(result, meta):
            inner, within = _unpacked(result)
            return inner, {**within, **in_json(meta)}
        case McpError() | InputRequired():
            raise value
        case ToolError():
            raise McpError(ErrorCode.INTERNAL_ERROR, _as_text(value.content))
        case _:
            return value, {}


def _is_json_type(mime: str | None) -> bool:
    """Whether the MIME type is JSON, so that an empty list is data."""
    return mime is not None and (mime == "application/json" or mime.endswith("+json"))


def _is_contents(value: Any) -> bool:
    """Whether the value is contents, or text or bytes."""
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
    except ValueError as error:  # a lone surrogate, which cannot be encoded
        raise UnserializableResult(f"a handler returned a text that cannot be written: {error}") from error
    if b"null" in text and (place := infinity_in(data)) is not None:
        raise InfiniteNumber(place)
    return text.decode()


def _as_text(content: Any) -> str:
    """An error's content as text, for places that have room for text only."""
    return "\n".join(block["text"] for block in blocks(content) if block["type"] == "text") or "it failed"


def prompt_result(value: Any, description: str | None = None) -> dict[str, Any]:
    """The `prompts/get` result of a handler's return value: text (as the user's message), a message, or a list of messages.

    A mapping with `messages` is the whole result. `description` is the default description.
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
            messages = [one for item in (value if is_array(value) else (value,)) for one in _messages(item)]
            result = {"description": description, "messages": messages} if description else {"messages": messages}
    return _with_meta(result, meta)


# A prompt has only these two roles; instructions for the model belong to the user.
_ROLES: Final = {"user": "user", "assistant": "assistant", "system": "user"}


def _messages(value: Any) -> list[dict[str, Any]]:
    """The messages, one for each block, since a message has room for one."""
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
            raise UnserializableResult(f"a prompt returned {type(value).__qualname__} where a message was expected")
    if role not in _ROLES:
        raise UnserializableResult(f"a prompt's message has the role {role!r}; it must be user or assistant")
    return [{"role": _ROLES[role], "content": block} for block in blocks(content)]


def completion_result(value: Any) -> dict[str, Any]:
    """The `completion/complete` result of a handler's return value: strings, `Completion`, or a mapping like it.

    At most 100 values are sent; `hasMore` says whether there were more. None means no suggestions.
    """
    value, meta = _unpacked(value)
    values, total, more = _completion_values(value)
    if isinstance(values, (str, bytes)) or is_object(values) or not is_iterable(values):
        raise UnserializableResult(f"a completion returned {type(value).__qualname__} where strings were expected")
    found = list(islice(values, MOST_COMPLETIONS + 1))  # the iterable may be infinite
    if not all(isinstance(item, str) for item in found):
        raise UnserializableResult("a completion returned values that are not strings")
    if total is None and not more and is_array(values):
        total = len(values)
    completion: dict[str, Any] = {"values": [str(item) for item in found[:MOST_COMPLETIONS]]}
    if total is not None:
        completion["total"] = total
    completion["hasMore"] = bool(more) or len(found) > MOST_COMPLETIONS or (total or 0) > len(found)
    return _with_meta({"completion": completion}, meta)


def _completion_values(value: Any) -> tuple[Any, int | None, bool | None]:
    """The values, the total and whether there are more."""
    counts: Any = value
    if isinstance(value, Completion):
        return value.values, value.total, value.has_more
    if is_array(value) and len(value) == 2 and is_array(value[0]) and is_object(value[1]):  # noqa: PLR2004 - values and more
        value, counts = value
    elif is_object(value):
        value = value.get("values")
    if not is_object(counts):
        return () if value is None else value, None, None
    total, more = counts.get("total"), counts.get("hasMore", counts.get("has_more"))
    if not (total is None or type(total) is int) or not (more is None or isinstance(more, bool)):
        raise UnserializableResult("a completion returned a total that is no integer, or a has_more that is no boolean")
    return () if value is None else value, total, more


def _with_meta(wire: dict[str, Any], meta: Meta | None) -> dict[str, Any]:
    """The result with merged `_meta`; an empty one is left out."""
    if meta:
        wire["_meta"] = {**wire.get("_meta", {}), **in_json(meta)}
    return wire


# --- Return hints as output schemas, and the check of what was returned.


class ReturnSchema:
    """A return hint as an output schema, and whether data goes under `result`, since structured content must be an object."""

    def __init__(self, hint: Any) -> None:
        """Raises `BadHint` for a type without a schema."""
        if get_origin(hint) is abc.Iterable:
            raise BadHint(
                "its return hint: an Iterable may be infinite, a result is not: return a list, and write list[…]"
            )
        try:
            kind = _by_pydantic(hint, refined(hint, "serialization"))
            schema = schema_of(kind, "serialization")
        except BadHint as error:
            raise BadHint(f"its return hint: {error}") from error
        self._kind = TypedSchema(kind, schema, ours=True)
        self._adapter = kind.adapter if is_pydantic_hint(kind) else None
        # The output of pydantic is checked against the output schema, not the input schema; so are converted library types.
        self._by_schema = any(is_model(one) or library_schema(one) is not None for one in types_inside(kind))
        self.wrapped = schema.get("type") != "object"
        self.bare_schema: dict[str, Any] = schema
        """The schema of the value itself."""
        self.schema: dict[str, Any] = schema_under_result(schema) if self.wrapped else schema

    def data(self, value: Any, pictures: list[Any]) -> Any:
        """The return value as JSON types in the schema's form: under a model's hint, a dict is validated and serialized by the model.

        Raises `Mismatch`, or `UnserializableResult`.
        """
        if self._adapter is None or isinstance(value, Coroutine):
            return in_json(value, pictures)
        from .pydantic_models import validate_and_serialize  # noqa: PLC0415 - already loaded by the adapter

        try:
            return in_json(validate_and_serialize(self._adapter, value, lambda: in_json(value, pictures)))
        except ValueError as error:
            raise Mismatch(
                [ValidationProblem(("result",) if self.wrapped else (), ProblemReason(str(error), "type_mismatch"))]
            ) from None

    def errors(self, data: Any, meter: StepMeter | None = None) -> list[ValidationProblem]:
        """The problems of structured content as peers will see it, with null for NaN.

        With a meter, raises `StepsExceeded` when it is used up.
        """
        sent, data = data, decode_checked(msgspec.json.encode(data))
        if self.wrapped:
            if not is_object(data) or set(data) != {"result"}:
                return [
                    ValidationProblem(
                        (), ProblemReason("expected an object with `result` and nothing else", "type_mismatch")
                    )
                ]
            data = data["result"]
        try:
            self._kind.validate(data, meter) if self._by_schema else self._kind.convert(data, meter)
        except Mismatch as error:
            errors = error.errors
            if self.wrapped:
                errors = [ValidationProblem(("result", *path), reason) for path, reason in errors]
            return reword_nan_problems(errors, sent)
        return []


def _value_at(path: Path, data: Any) -> Any:
    """The value at a path; None if there is none."""
    for step in path:
        try:
            data = data[step]
        except (LookupError, TypeError):
            return None
    return data


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def reword_nan_problems(problems: Sequence[ValidationProblem], data: Any) -> list[ValidationProblem]:
    """The problems of data that was checked with null for NaN, reworded for the NaN that was returned."""
    return [_nan_problem(each) if _is_nan(_value_at(each.path, data)) else each for each in problems]


def _nan_problem(problem: ValidationProblem) -> ValidationProblem:
    text = f"{problem.reason.removesuffix('null')}NaN is null in JSON, which the hint must allow (`float | None`)"
    return ValidationProblem(problem.path, ProblemReason(text, problem.reason.kind))


def _by_pydantic(hint: Any, kind: Any) -> Any:
    """A `PydanticHint` for a hint that contains a model: pydantic serializes the whole value, if it can, so that one schema fits all of it."""
    pydantic_models = loaded_pydantic()
    if pydantic_models is None or is_pydantic_hint(kind) or not any(map(is_model, types_inside(kind))):
        return kind
    try:
        return pydantic_models.pydantic_hint(hint)
    except pydantic_models.UnusableField:
        return kind


def return_schema_of(function: Callable[..., Any], names: Mapping[str, Any] | None = None) -> ReturnSchema | None:
    """The output schema of a function's return hint; None if the hint has no data for programs: text, bytes, blocks, Any, None.

    A hint that only type checkers can resolve gives none. Raises `BadHint` for a type without a schema.
    """
    data = _data_of(return_hint_of(function, names))
    return None if data is MISSING else ReturnSchema(data)


_NOT_DATA: Final = {MISSING, Any, object, None, type(None), str, bytes, bytearray, memoryview, list, tuple, dict}
_OURS: Final = (WireObject, CallToolResult, Structured, WithMeta)
_ENDINGS: Final = (ToolError, McpError, InputRequired)
"""What a handler may return instead of its data."""
_LISTS: Final = {list, tuple, abc.Sequence, abc.Iterable, abc.Collection}


def _data_of(hint: Any) -> Any:
    """The part of a hint that is data for programs; `MISSING` if none is, or not always."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return MISSING if _data_of(parts[0]) is MISSING else hint
    if origin in (Union, types.UnionType):
        kept = [part for part in parts if not _is_any_of(part, _ENDINGS)]
        whole = not kept or any(_data_of(part) is MISSING and part is not type(None) for part in kept)
        return MISSING if whole or set(kept) == {type(None)} else Union[tuple(kept)]  # noqa: UP007 - made at run time
    if origin in MAPPINGS:
        return MISSING if parts[1:] in {(Any,), (object,)} else hint
    if origin in _LISTS:
        blocks = all(
            _is_any_of(part, (WireObject,)) or is_picture_class(part) or part in (Any, object, ...) or _is_blocks(part)
            for part in parts
        )
        return MISSING if blocks else hint
    nothing = origin is None and _is_hashable(hint) and hint in _NOT_DATA
    return MISSING if nothing or is_picture_class(hint) or _is_any_of(hint, (*_OURS, *_ENDINGS)) else hint


def _is_blocks(part: Any) -> bool:
    """Whether a hint is a union of blocks, perhaps with text."""
    members = get_args(part) if get_origin(part) in (Union, types.UnionType) else ()
    return any(_is_any_of(member, (WireObject,)) or is_picture_class(member) for member in members)


def _is_any_of(kind: Any, classes: tuple[type, ...]) -> bool:
    return isinstance(kind, type) and issubclass(kind, classes)


def _is_hashable(hint: Any) -> bool:
    return isinstance(hint, abc.Hashable)


def schema_under_result(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object with only the value under `result`; definitions stay at the root, where references point."""
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    wrapped: dict[str, Any] = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    if "$defs" in schema:
        wrapped["$defs"] = schema["$defs"]
    return wrapped
