"""What a handler promises to return, as an output schema; and whether what it returned is that."""

from __future__ import annotations

import math
import types
from collections import abc
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin

import msgspec

from .collisions import inner_kinds
from .conversions import MAPPINGS, is_adapted, is_model, is_picture_class, library_schema, pydantic_door
from .errors import McpError, ToolError
from .hints import MISSING, BadHint, refined, return_hint_of
from .json import read
from .problems import Mismatch, Problem, Reason
from .results import CallToolResult, Structured, WithMeta
from .schemas import Kind, schema_of
from .wire import Wire, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .meter import Meter
    from .problems import Path


class Returns:
    """A promise: the output schema, and whether the data goes under `result`, since structured content must be an object."""

    def __init__(self, hint: Any) -> None:
        """Raises `BadHint` for a type that has no schema."""
        if get_origin(hint) is abc.Iterable:
            raise BadHint(
                "its return hint: an Iterable may never end, and a result does: return a list, and say list[…]"
            )
        try:
            kind = _by_pydantic(hint, refined(hint, "serialization"))
            schema = schema_of(kind, "serialization")
        except BadHint as error:
            raise BadHint(f"its return hint: {error}") from error
        self._kind = Kind(kind, schema, ours=True)
        self._adapter = kind.adapter if is_adapted(kind) else None
        # What pydantic has written is held against what was announced, not against what the model takes; and so is what a library's type becomes.
        self._by_schema = any(is_model(one) or library_schema(one) is not None for one in inner_kinds(kind))
        self.wrapped = schema.get("type") != "object"
        self.schema: dict[str, Any] = _under_result(schema) if self.wrapped else schema

    def data(self, value: Any, pictures: list[Any], in_json: Callable[..., Any]) -> Any:
        """What was returned in JSON's own types, as the schema has it: a dict under a model's hint is validated and written by the model.

        Raises `Mismatch`, or what `in_json` raises.
        """
        if self._adapter is None or isinstance(value, Coroutine):
            return in_json(value, pictures)
        from .pydantic_models import written  # noqa: PLC0415 - a program with an adapter has loaded it

        try:
            return in_json(written(self._adapter, value, lambda: in_json(value, pictures)))
        except ValueError as error:
            raise Mismatch(
                [Problem(("result",) if self.wrapped else (), Reason(str(error), "type_mismatch"))]
            ) from None

    def errors(self, data: Any, meter: Meter | None = None) -> list[Problem]:
        """What is wrong with structured content that is about to be sent. It is looked at as peers will see it: NaN is null there.

        With a meter, raises `TooMuch` when that is used up.
        """
        sent, data = data, read(msgspec.json.encode(data))
        if self.wrapped:
            if not is_object(data) or set(data) != {"result"}:
                return [Problem((), Reason("expected an object with `result` and nothing else", "type_mismatch"))]
            data = data["result"]
        try:
            self._kind.hold(data, meter) if self._by_schema else self._kind.make(data, meter)
        except Mismatch as error:
            errors = error.errors
            if self.wrapped:
                errors = [Problem(("result", *path), reason) for path, reason in errors]
            return told_of_nan(errors, sent)
        return []


def _at(path: Path, data: Any) -> Any:
    """What is at that place; None where there is nothing."""
    for step in path:
        try:
            data = data[step]
        except (LookupError, TypeError):
            return None
    return data


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def told_of_nan(problems: Sequence[Problem], data: Any) -> list[Problem]:
    """The problems of data that was looked at as peers will see it, with null for NaN, in words of what was returned."""
    return [_of_nan(each) if _is_nan(_at(each.path, data)) else each for each in problems]


def _of_nan(problem: Problem) -> Problem:
    text = (
        f"{problem.reason.removesuffix('null')}NaN: JSON has null for it, which the hint has to take (`float | None`)"
    )
    return Problem(problem.path, Reason(text, problem.reason.kind))


def _by_pydantic(hint: Any, kind: Any) -> Any:
    """What stands for a hint with a model anywhere in it: pydantic writes all of it, where it can, so that one schema holds for all."""
    door = pydantic_door()
    if door is None or is_adapted(kind) or not any(map(is_model, inner_kinds(kind))):
        return kind
    try:
        return door.adapted(hint)
    except door.Refused:
        return kind


def returns_of(function: Callable[..., Any], names: Mapping[str, Any] | None = None) -> Returns | None:
    """The promise in a function's return hint; None where there is nothing for programs in it: text, bytes, blocks, Any, nothing.

    A hint that only type checkers can see promises nothing. Raises `BadHint` for a type that has no schema.
    """
    data = _data_of(return_hint_of(function, names))
    return None if data is MISSING else Returns(data)


_NOT_DATA: Final = {MISSING, Any, object, None, type(None), str, bytes, bytearray, memoryview, list, tuple, dict}
_OURS: Final = (Wire, CallToolResult, Structured, WithMeta)
_LISTS: Final = {list, tuple, abc.Sequence, abc.Iterable, abc.Collection}


def _data_of(hint: Any) -> Any:
    """What of a hint is data for programs; `MISSING` when it is not, or not always."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return MISSING if _data_of(parts[0]) is MISSING else hint
    if origin in (Union, types.UnionType):
        kept = [part for part in parts if not _is(part, (ToolError, McpError))]
        whole = not kept or any(_data_of(part) is MISSING and part is not type(None) for part in kept)
        return MISSING if whole or set(kept) == {type(None)} else Union[tuple(kept)]  # noqa: UP007 - made of what is there
    if origin in MAPPINGS:
        return MISSING if parts[1:] in {(Any,), (object,)} else hint
    if origin in _LISTS:
        blocks = all(
            _is(part, (Wire,)) or is_picture_class(part) or part in (Any, object, ...) or _is_blocks(part)
            for part in parts
        )
        return MISSING if blocks else hint
    nothing = origin is None and _is_hashable(hint) and hint in _NOT_DATA
    return MISSING if nothing or is_picture_class(hint) or _is(hint, (*_OURS, ToolError, McpError)) else hint


def _is_blocks(part: Any) -> bool:
    """Whether it is a union of blocks, perhaps with text among them."""
    members = get_args(part) if get_origin(part) in (Union, types.UnionType) else ()
    return any(_is(member, (Wire,)) or is_picture_class(member) for member in members)


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
