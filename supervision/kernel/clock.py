"""The one file that reads a clock.

Time is a parameter: everything asks the event loop, so a loop on virtual time (`greenroom.supervision.testing`)
moves deadlines, timers, restart windows and whatever user code sleeps on, all together.
"""

from __future__ import annotations

import threading
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


_lock = threading.Lock()
_last = 0


def incarnation() -> int:
    """A number that differs each time a node starts, in whatever thread, also within one tick of the clock."""
    global _last  # noqa: PLW0603 - what is unique in a process is kept once in a process
    with _lock:
        _last = max(_last + 1, time.time_ns())
        return _last


def check_seconds(seconds: object) -> None:
    """Refuse what is no span of time, before anything is done that would wait for it."""
    if seconds is not None and not (isinstance(seconds, int | float) and seconds >= 0):
        raise ValueError(f"give 0 or more seconds, or None for no limit, not {seconds!r}")
