"""The differences between two servers for a client, part by part.

A schema's parts are put in place of their references, and the titles that libraries make of names are left out; so is what is empty, since to say
nothing and to say null are the same. All else has to be equal, or to be one of the differences that are meant (`meant.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.protocol.jsonrpc import is_object
from greenroom.protocol.serialization import is_array

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .looking import Seen

_SCHEMAS = ("inputSchema", "outputSchema", "schema")
_EMPTY: tuple[Any, ...] = (None, {}, [], "")


def plain_schema(schema: Mapping[str, Any]) -> Any:
    """A schema with its parts in place, and without made-up titles."""
    return _schema(schema, schema.get("$defs") or {}, ())


def _schema(schema: Any, parts: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    if is_array(schema):
        return [_schema(each, parts, within) for each in schema]
    if not is_object(schema):
        return schema
    reference: Any = schema.get("$ref")
    if isinstance(reference, str):
        name = reference.rpartition("/")[2]
        if name in within:
            return {"again": len(within) - within.index(name)}
        others = {key: value for key, value in schema.items() if key != "$ref"}
        return _schema({**parts.get(name, {}), **others}, parts, (*within, name))
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("$defs", "$schema", "title") and (key != "title" or isinstance(value, str)):
            continue
        if key == "properties":
            plain[key] = {name: _schema(each, parts, within) for name, each in value.items()}
        elif key == "required":
            plain[key] = sorted(value)
        elif key == "default":
            plain[key] = value
        elif not (key == "additionalProperties" and value is True):
            plain[key] = _schema(value, parts, within)
    for key in ("properties", "required"):
        if not plain.get(key, True):
            del plain[key]
    return plain


def plain_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of a list."""
    plain: dict[str, Any] = {}
    for key, value in entry.items():
        if key in _SCHEMAS and is_object(value):
            plain[key] = plain_schema(value)
        elif key == "arguments" and is_array(value):
            plain[key] = [{**_without_empty(each), "required": bool(each.get("required"))} for each in value]
        elif value not in _EMPTY:
            plain[key] = _without_empty(value)
    return plain


def _without_empty(value: Any) -> Any:
    if is_object(value):
        return {key: _without_empty(each) for key, each in value.items() if each not in _EMPTY}
    if is_array(value):
        return [_without_empty(each) for each in value]
    return value


def plain_answer(answer: Mapping[str, Any]) -> Any:
    """An answer, with what was said meanwhile."""
    return _without_empty({**answer, "told": [_told(each) for each in answer["told"]]})


def _told(told: Mapping[str, Any]) -> Any:
    return {**told, "schema": plain_schema(told["schema"])} if "schema" in told else told


def differences(theirs: Seen, mine: Seen) -> Iterator[tuple[str, Any, Any]]:
    """A difference: its place, their value, our value."""
    for kind in theirs.lists:
        left, right = ({_key(each): plain_entry(each) for each in seen.lists[kind]} for seen in (theirs, mine))
        for name in left.keys() | right.keys():
            yield from _apart(f"{kind} {name}", left.get(name), right.get(name))
    for number, (one, other) in enumerate(zip(theirs.answers, mine.answers, strict=True)):
        yield from _apart(f"answer {number}", plain_answer(one), plain_answer(other))


def _key(entry: Mapping[str, Any]) -> str:
    return str(entry.get("uri") or entry.get("uriTemplate") or entry["name"])


def _is_error(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """An error is compared as a whole: a part of it means nothing."""
    return "error" in left or "error" in right


def _apart(where: str, left: Any, right: Any) -> Iterator[tuple[str, Any, Any]]:
    """The smallest parts that differ."""
    if left == right:
        return
    if is_object(left) and is_object(right) and not _is_error(left, right):
        for key in sorted(left.keys() | right.keys()):
            yield from _apart(f"{where}.{key}", left.get(key), right.get(key))
    elif is_array(left) and is_array(right) and len(left) == len(right):
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _apart(f"{where}[{number}]", one, other)
    else:
        yield where, left, right
