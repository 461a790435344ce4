"""What commands say: JSON for programs, and lines for people that fit their terminal."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, Any

import msgspec

from greenroom.protocol.wire import is_array, is_object

from .door import echo, styled
from .spelling import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

_WIDEST = 100


def as_json(value: Any) -> None:
    """One JSON value, indented."""
    echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def width() -> int:
    """How wide the terminal is."""
    return min(shutil.get_terminal_size((80, 24)).columns, _WIDEST)


def heading(text: str) -> None:
    """What follows, whoever has called it so."""
    echo(styled(visible(text), "name"))


def entry(name: str, about: str = "", notes: Iterable[str] = (), *, style: str = "dim") -> None:
    """One thing of a list, whoever says what it is: its name, what stands beside it, and what is said of it, in lines below."""
    beside = f"  {styled(visible(about), style)}" if about else ""
    echo(f"  {styled(visible(name), 'name')}{beside}")
    for note in notes:
        for line in textwrap.wrap(visible(note), width() - 6) or [""]:
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
