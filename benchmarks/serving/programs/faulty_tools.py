"""The faulty tools, the same for every server: plain functions that use no library."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Leak(BaseException):
    """A `BaseException`, which `except Exception` does not catch."""


async def quick() -> str:
    """Answer at once, in the loop."""
    return "quick"


def quick_def() -> str:
    """Answer at once, in a thread."""
    return "quick"


async def wait(seconds: float) -> str:
    """Answer after a while."""
    await asyncio.sleep(seconds)
    return "waited"


async def leave() -> str:
    """Exit the program."""
    sys.exit(0)


def leave_def() -> str:
    """Exit the program from a plain function."""
    sys.exit(0)


async def leave_gathered() -> str:
    """Exit the program in one of two tasks."""

    async def leaving() -> None:
        await asyncio.sleep(0)
        sys.exit(0)

    await asyncio.gather(leaving(), asyncio.sleep(60))
    return "never"


async def leave_in_thread() -> str:
    """Exit the program in a thread."""
    leaving: Callable[[int], None] = sys.exit
    await asyncio.to_thread(leaving, 0)
    return "never"


async def interrupt() -> str:
    """Raise `KeyboardInterrupt`."""
    raise KeyboardInterrupt


def interrupt_def() -> str:
    """Raise `KeyboardInterrupt` in a plain function."""
    raise KeyboardInterrupt


async def leak() -> str:
    """Raise a `BaseException`."""
    raise Leak


def leak_def() -> str:
    """Raise a `BaseException` in a plain function."""
    raise Leak


async def leak_gathered() -> str:
    """Raise a `BaseException` in one of two tasks."""

    async def leaking() -> None:
        await asyncio.sleep(0)
        raise Leak

    await asyncio.gather(leaking(), asyncio.sleep(60))
    return "never"


async def never() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return "never"


def slow_def(seconds: float) -> str:
    """Block a thread."""
    time.sleep(seconds)
    return "slept"


async def block(seconds: float) -> str:
    """Block the loop."""
    time.sleep(seconds)  # noqa: ASYNC251 - its purpose
    return "slept"


TOOLS = (
    quick,
    quick_def,
    wait,
    leave,
    leave_def,
    leave_gathered,
    leave_in_thread,
    interrupt,
    interrupt_def,
    leak,
    leak_def,
    leak_gathered,
    never,
    slow_def,
    block,
)
