"""What a handler promises to return, as an output schema; and whether what it returned is that."""

from __future__ import annotations

import types
from collections import abc
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin

import msgspec

from .errors import McpError, ToolError
from .hints import MISSING, BadHint, refined, return_hint_of
from .problems import Mismatch, Problem, Reason
from .results import CallToolResult, Structured, WithMeta
from .schemas import Kind, schema_of
from .wire import Wire, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Returns:
    """A promise: the output schema, and whether the data goes under `result`, since structured content must be an object."""

    def __init__(self, hint: Any) -> None:
        """Raises `BadHint` for a type that has no schema."""
        if get_origin(hint) is abc.Iterable:
            raise BadHint(
                "its return hint: an Iterable may never end, and a result does: return a list, and say list[…]"
            )
        try:
            schema = schema_of(hint, "serialization")
        except BadHint as error:
            raise BadHint(f"its return hint: {error}") from error
        self._kind = Kind(refined(hint), schema)
        self.wrapped = schema.get("type") != "object"
        self.schema: dict[str, Any] = _under_result(schema) if self.wrapped else schema

    def errors(self, data: Any) -> list[Problem]:
        """What is wrong with structured content that is about to be sent. It is looked at as peers will see it: NaN is null there."""
        data = msgspec.json.decode(msgspec.json.encode(data))
        if self.wrapped:
            if not is_object(data) or set(data) != {"result"}:
                return [Problem((), Reason("expected an object with `result` and nothing else", "type_mismatch"))]
            data = data["result"]
        try:
            self._kind.make(data)
        except Mismatch as error:
            return (
                [Problem(("result", *path), reason) for path, reason in error.errors] if self.wrapped else error.errors
            )
        return []


def returns_of(function: Callable[..., Any], names: Mapping[str, Any] | None = None) -> Returns | None:
    """The promise in a function's return hint; None where there is nothing for programs in it: text, bytes, blocks, Any, nothing.

    A hint that only type checkers can see promises nothing. Raises `BadHint` for a type that has no schema.
    """
    data = _data_of(return_hint_of(function, names))
    return None if data is MISSING else Returns(data)


_NOT_DATA: Final = {MISSING, Any, object, None, type(None), str, bytes, bytearray, memoryview, list, tuple, dict}
_OURS: Final = (Wire, CallToolResult, Structured, WithMeta)
_LISTS: Final = {list, tuple, abc.Sequence, abc.Iterable, abc.Collection}
_MAPPINGS: Final = {dict, abc.Mapping, abc.MutableMapping}


def _data_of(hint: Any) -> Any:
    """What of a hint is data for programs; `MISSING` when it is not, or not always."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return MISSING if _data_of(parts[0]) is MISSING else hint
    if origin in (Union, types.UnionType):
        kept = [part for part in parts if not _is(part, (ToolError, McpError))]
        whole = not kept or any(_data_of(part) is MISSING and part is not type(None) for part in kept)
        return MISSING if whole or set(kept) == {type(None)} else Union[tuple(kept)]  # noqa: UP007 - made of what is there
    if origin in _MAPPINGS:
        return MISSING if parts[1:] in {(Any,), (object,)} else hint
    if origin in _LISTS:
        blocks = all(_is(part, (Wire,)) or part in (Any, object, ...) or _is_blocks(part) for part in parts)
        return MISSING if blocks else hint
    nothing = origin is None and _is_hashable(hint) and hint in _NOT_DATA
    return MISSING if nothing or _is(hint, (*_OURS, ToolError, McpError)) else hint


def _is_blocks(part: Any) -> bool:
    """Whether it is a union of blocks, perhaps with text among them."""
    members = get_args(part) if get_origin(part) in (Union, types.UnionType) else ()
    return any(_is(member, (Wire,)) for member in members)


def _is(kind: Any, classes: tuple[type, ...]) -> bool:
    return isinstance(kind, type) and issubclass(kind, classes)


def _is_hashable(hint: Any) -> bool:
    return isinstance(hint, abc.Hashable)


def _under_result(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object that has nothing but the value; definitions stay at the root, where references look for them."""
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    wrapped: dict[str, Any] = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    if "$defs" in schema:
        wrapped["$defs"] = schema["$defs"]
    return wrapped
