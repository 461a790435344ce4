"""Output of commands: JSON for programs, and lines that fit the terminal for people."""

from __future__ import annotations

import json as json_library
import shutil
import textwrap
from typing import TYPE_CHECKING, Any

import msgspec

from greenroom.protocol.serialization import is_array, is_object
from greenroom.supervision import visible_text

from .click_app import echo, styled
from .exit_codes import visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_WIDEST = 100
_FEW = 6


def print_json(value: Any) -> None:
    """Print a value as indented JSON; invisible characters are escaped."""
    echo(visible_text.escaped_in_json(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def print_heading(text: str) -> None:
    """Print a heading; its text is escaped."""
    echo(styled(visible(text), "name"))


def print_entry(name: str, about: str = "", notes: Iterable[str] = (), *, style: str = "dim") -> None:
    """Print an entry of a list: its name, a text beside it, and notes on indented lines below. All texts are escaped."""
    beside = f"  {styled(visible(about), style)}" if about else ""
    echo(f"  {styled(visible(name), 'name')}{beside}")
    width = min(shutil.get_terminal_size((80, 24)).columns, _WIDEST)
    for note in notes:
        for line in textwrap.wrap(visible(note), width - 6) or [""]:
            echo(f"      {line}")


def arguments_text(schema: Any) -> str:
    """A tool's arguments in short: `city: string, days?: integer`; empty if the value is no schema."""
    if not is_object(schema):
        return ""
    properties: Any = schema.get("properties")
    required: Any = schema.get("required")
    if not is_object(properties):
        return ""
    needed = {each for each in required if isinstance(each, str)} if is_array(required) else set[str]()
    return ", ".join(
        f"{name}{'' if name in needed else '?'}{f': {kind}' if (kind := _kind(each)) else ''}"
        for name, each in properties.items()
    )


def _kind(schema: Any) -> str:
    """A schema's type in a few words; empty if any value fits or the type is too complex for a few words."""
    return "|".join(dict.fromkeys(_kinds(schema, 3)))


def _kinds(schema: Any, depth: int) -> list[str]:
    if not is_object(schema) or not depth:
        return []
    types: Any = schema.get("type")
    enum: Any = schema.get("enum")
    if is_array(enum) and 0 < len(enum) <= _FEW:
        return [json_library.dumps(each) if isinstance(each, str) else str(each) for each in enum]
    kinds = [each for each in (types if is_array(types) else [types]) if isinstance(each, str)]
    if kinds:
        inner = "|".join(dict.fromkeys(_kinds(schema.get("items"), depth - 1)))
        listed = "array" if not inner else f"({inner})[]" if "|" in inner else f"{inner}[]"
        return [listed if each == "array" else each for each in kinds]
    for word in ("anyOf", "oneOf"):
        parts: Any = schema.get(word)
        if is_array(parts) and 0 < len(parts) <= _FEW:
            found = [_kinds(each, depth - 1) for each in parts]
            return [each for some in found for each in some] if all(found) else []
    return []


def unlisted_text(what: str, name: str, there: Collection[str]) -> str:
    """The error text for a name that the server does not list: the nearest listed name, or all names."""
    from difflib import get_close_matches  # noqa: PLC0415 - only after a mistyped word

    near = get_close_matches(name, there, 1)
    instead = f": did you mean {visible(near[0])}?" if near else f"; it has {', '.join(map(visible, there)) or 'none'}"
    return f"the server has no {what} {name!r}{instead}"


def first_line(text: object) -> str:
    """The first line of a description."""
    return str(text or "").strip().partition("\n")[0]
