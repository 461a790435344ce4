"""How often it is tried to have a worker, when those that were started do not come up, or die with nothing to do: more and more seldom."""

from __future__ import annotations

import math
from typing import Final

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 30.0


class Attempts:
    """Of one pool."""

    def __init__(self) -> None:
        """None has failed yet."""
        self._failures = 0
        self._failed_at = -math.inf
        self._again_at = 0.0
        self.why = ""
        """Why the last one has."""

    def succeeded(self) -> None:
        """A worker has done what it is for; to have come up is not enough."""
        self._failures = 0

    def failed(self, why: str, now: float, began: float) -> float | None:
        """One more has, that began then: how long to wait for the next; None when that is known already, or need not wait.

        Those that are lost together, as all are with whoever had started them, are one failure: none of them was an attempt after another.
        """
        self.why = why
        if began < self._failed_at:
            return None
        self._failures += 1
        self._failed_at = now
        if self._failures == 1:
            return None
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (self._failures - 2))
        self._again_at = now + pause
        return pause

    def may_be_made(self, now: float) -> bool:
        """Whether it is time for the next one."""
        return self._failures <= 1 or now >= self._again_at

    def renew(self) -> None:
        """It is."""
        self._again_at = 0.0
