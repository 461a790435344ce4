"""What commands say: JSON for programs, and lines for people that fit their terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
import unicodedata
from typing import TYPE_CHECKING, Any, Final

import msgspec

from greenroom.protocol.wire import is_array, is_object

from .door import echo, styled

if TYPE_CHECKING:
    from collections.abc import Iterable

_WIDEST = 100
_UNSEEN: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))


def as_json(value: Any) -> None:
    """One JSON value, indented."""
    echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def width() -> int:
    """How wide the terminal is."""
    return min(shutil.get_terminal_size((80, 24)).columns, _WIDEST)


def heading(text: str) -> None:
    """What follows."""
    echo(styled(text, "name"))


def entry(name: str, about: str = "", notes: Iterable[str] = ()) -> None:
    """One thing of a list: its name, what stands beside it, and what is said of it, in lines below."""
    beside = f"  {styled(about, 'dim')}" if about else ""
    echo(f"  {styled(name, 'name')}{beside}")
    for note in notes:
        for line in textwrap.wrap(" ".join(note.split()), width() - 6) or [""]:
            echo(f"      {line}")


def arguments(schema: Any) -> str:
    """A tool's arguments in short: `city, days?`. Of what is no schema, none."""
    if not is_object(schema):
        return ""
    properties: Any = schema.get("properties")
    required: Any = schema.get("required")
    if not is_object(properties):
        return ""
    needed = {each for each in required if isinstance(each, str)} if is_array(required) else set[str]()
    return ", ".join(name if name in needed else f"{name}?" for name in properties)


def first_line(text: object) -> str:
    """The first sentence or line of a description."""
    return str(text or "").strip().partition("\n")[0]


def harmless(text: str) -> str:
    """What a server has answered, as it may be written to a terminal: nothing in it moves the cursor or colours. Programs get it as it is."""
    if not sys.stdout.isatty():
        return text
    return "".join(
        each if each in "\n\t" or unicodedata.category(each) != "Cc" else f"\\u{ord(each):04x}" for each in text
    )


def visible(text: str, longest: int | None = None, *, lines: bool = False) -> str:
    """What somebody else wrote, as it can be shown: what moves a cursor, colours or hides is spelt out. One line, unless it may have several."""
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]}…"
    text = text.replace("\r\n", "\n").replace("\t", " ") if lines else " ".join(text.split())
    return "".join(
        each if each == "\n" or unicodedata.category(each) not in _UNSEEN else f"\\u{ord(each):04x}" for each in text
    )
