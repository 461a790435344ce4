"""How often it is tried to have a worker, when those that were started do not come up, or die with nothing to do: more and more seldom."""

from __future__ import annotations

from typing import Final

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 30.0


class Attempts:
    """Of one pool."""

    def __init__(self) -> None:
        """None has failed yet."""
        self._failures = 0
        self._again_at = 0.0
        self.why = ""
        """Why the last one has."""

    def succeeded(self) -> None:
        """A worker has done what it is for; to have come up is not enough."""
        self._failures = 0

    def failed(self, why: str, now: float) -> float | None:
        """One more has: how long to wait for the next; None when the next need not wait."""
        self._failures += 1
        self.why = why
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
