"""The tools of the stage, the same for every server: plain functions that know no library."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Leak(BaseException):
    """What `except Exception` does not see."""


async def quick() -> str:
    """Answer at once, in the loop."""
    return "quick"


def quick_def() -> str:
    """Answer at once, in a thread."""
    return "quick"


async def wait(seconds: float) -> str:
    """Answer later."""
    await asyncio.sleep(seconds)
    return "waited"


async def leave() -> str:
    """Exit the program."""
    sys.exit(0)


def leave_def() -> str:
    """Exit the program, where a plain function runs."""
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
    """Do as Ctrl-C does."""
    raise KeyboardInterrupt


def interrupt_def() -> str:
    """Do as Ctrl-C does, where a plain function runs."""
    raise KeyboardInterrupt


async def leak() -> str:
    """Raise what is no Exception."""
    raise Leak


def leak_def() -> str:
    """Raise what is no Exception, where a plain function runs."""
    raise Leak


async def leak_gathered() -> str:
    """Raise what is no Exception in one of two tasks."""

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
    """Hold a thread."""
    time.sleep(seconds)
    return "slept"


async def block(seconds: float) -> str:
    """Hold the loop."""
    time.sleep(seconds)  # noqa: ASYNC251 - that is what it is for
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
