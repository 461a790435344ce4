"""A tool that asks its user and notes what it does in a file: a module that any worker can import."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from greenroom import Context


def note(path: str, text: str) -> None:
    """Add a line, which other processes cannot cut."""
    with Path(path).open("a", encoding="ascii") as file:
        file.write(f"{text}\n")


async def book(ctx: Context, call: int, path: str) -> str:
    note(path, f"{call} begun {os.getpid()}")
    answer = await ctx.elicit("Who?", str, key="who")
    note(path, f"{call} {answer.action}")
    return f"booked {call}"
