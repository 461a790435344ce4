"""The one file that reads a clock.

Time is a parameter: everything asks the event loop, so a loop on virtual time (`greenroom.supervision.testing`)
moves deadlines, timers, restart windows and whatever user code sleeps on, all together.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


def now(loop: AbstractEventLoop) -> float:
    """Seconds on the loop's clock: monotonic, with an origin of its own."""
    return loop.time()


def real() -> float:
    """Seconds that really passed, for the watchdog: a loop that is stuck cannot tell its own time."""
    return time.monotonic()


def incarnation() -> int:
    """A number that differs each time a node starts, in this process or another, also within one clock tick."""
    return time.time_ns()


def check_seconds(seconds: object) -> None:
    """Refuse what is no span of time, before anything is done that would wait for it."""
    if seconds is not None and not (isinstance(seconds, int | float) and seconds >= 0):
        raise ValueError(f"give 0 or more seconds, or None for no limit, not {seconds!r}")
