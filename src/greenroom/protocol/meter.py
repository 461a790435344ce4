"""How much one check may cost, in steps: everything that is done for a peer's schema or value is charged before it is done.

A step stands for at most about a microsecond, and most take a quarter of one. A check on the event loop may take `AT_ONCE` of them, which is
far below the 50 ms for which no peer may hold the loop. What takes more raises `TooMuch`, and may be begun again in a thread, where
`PacedMeter` allows `IN_ALL` and lets go of the interpreter every few hundred microseconds.
"""

from __future__ import annotations

import time
from typing import Final

AT_ONCE: Final = 50_000
"""Steps on the event loop."""
IN_ALL: Final = 5_000_000
"""Steps of one check in a thread: some seconds, at most."""

_SLICE: Final = 2_000
_PAUSE: Final = 0.000_05


class TooMuch(Exception):
    """All steps are used up."""


class Meter:
    """How many steps are left. Hot loops write `meter.left -= n` themselves, and call `exceeded` when it is negative."""

    __slots__ = ("left",)

    def __init__(self, steps: int = AT_ONCE) -> None:
        """So many may be taken."""
        self.left = steps

    def spend(self, steps: int) -> None:
        """Take these. Raises `TooMuch` when there are not as many."""
        self.left -= steps
        if self.left < 0:
            self.exceeded()

    def exceeded(self) -> None:
        """`left` has become negative. Raises `TooMuch`, unless there are more."""
        raise TooMuch


class PacedMeter(Meter):
    """For a check in a thread of its own.

    The interpreter takes its lock from a busy thread only after 5 ms, each time that the event loop comes back from waiting. So the
    thread sleeps for a moment after each slice of its steps, which hands the lock over at once; that costs a tenth of its time.
    """

    __slots__ = ("rest", "stopped")

    def __init__(self, steps: int = IN_ALL) -> None:
        """So many may be taken in all."""
        super().__init__(min(_SLICE, steps))
        self.rest = steps - self.left
        self.stopped = False
        """Set by another thread when the result is not wanted any more."""

    def exceeded(self) -> None:
        """Begin the next slice. Raises `TooMuch` when there is none, or when the check was stopped."""
        self.rest += self.left  # which have been taken already
        if self.stopped or self.rest < 0:
            raise TooMuch
        self.left = min(_SLICE, self.rest)
        self.rest -= self.left
        time.sleep(_PAUSE)
