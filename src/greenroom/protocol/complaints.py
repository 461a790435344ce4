"""What is wrong with a peer's params, in words that its author understands: msgspec's terse errors, said in JSON's terms."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec.inspect as types

if TYPE_CHECKING:
    from msgspec import Struct, ValidationError

_AT = r"(?: - at `\$\.?(?P<path>.*)`)?"
_MISSING = re.compile(r"Object missing required field `(?P<name>.*?)`" + _AT, re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]+)`, got `(?P<got>[^`]+)`" + _AT, re.DOTALL)
_OTHER = re.compile(r"(?P<what>.*?)" + _AT, re.DOTALL)
_INVALID = re.compile(r"Invalid (?:enum )?value .*?" + _AT, re.DOTALL)

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
    text = str(error)
    if found := _MISSING.fullmatch(text):
        path = found["path"]
        return f'"{path}.{found["name"]}" is missing' if path else f'"{found["name"]}" is missing'
    if found := _EXPECTED.fullmatch(text):
        *most, last = [_WORDS.get(word, word) for word in found["wanted"].split(" | ") if word != "null"]
        wanted = f"{', '.join(most)} or {last}" if most else last
        return f"{_place(found['path'])} must be {wanted}, not {_WORDS.get(found['got'], found['got'])}"
    if found := _INVALID.fullmatch(text):
        return f"{_place(found['path'])} must be {_choices(shape, found['path'])}"
    found = _OTHER.fullmatch(text)
    assert found is not None, text
    return f"{_place(found['path'])} is wrong: {found['what'][:1].lower()}{found['what'][1:]}"


def _place(path: str | None) -> str:
    return f'"{path}"' if path else "it"


def _choices(shape: type[Struct], path: str | None) -> str:
    """What a member may be that can be one of a few texts."""
    choices = _follow(types.type_info(shape), (path or "").split("."))
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
