"""What is wrong with a peer's params, in words that its author understands: msgspec's terse errors, said in JSON's terms."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec.inspect as types

if TYPE_CHECKING:
    from msgspec import Struct, ValidationError

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
