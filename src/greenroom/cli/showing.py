"""What commands say: JSON for programs, and lines for people that fit their terminal."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, Any

import msgspec

from greenroom.protocol.wire import is_array, is_object

from .door import echo, styled

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_WIDEST = 100


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


def arguments(schema: Mapping[str, Any]) -> str:
    """A tool's arguments in short: `city, days?`."""
    properties: Any = schema.get("properties")
    required: Any = schema.get("required")
    if not is_object(properties):
        return ""
    needed = set(required) if is_array(required) else set[str]()
    return ", ".join(name if name in needed else f"{name}?" for name in properties)


def first_line(text: object) -> str:
    """The first sentence or line of a description."""
    return str(text or "").strip().partition("\n")[0]
