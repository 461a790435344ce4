"""How many restarts are too many: the arithmetic of `intensity` and `period`, and nothing else.

Each attempt to restart counts once, whatever the number of children that it restarts. More than `intensity` attempts
within `period` seconds are too many: the supervisor gives up, and its own supervisor decides.

One difference to OTP, which counts in whole seconds of the clock, so that a restart may count for up to a second
longer than `period`. Here time is a float, and a restart counts for exactly `period` seconds, the last moment included.
"""

from __future__ import annotations

from collections import deque


class RestartWindow:
    """The restarts of one supervisor that still count."""

    __slots__ = ("_times", "intensity", "period")

    def __init__(self, intensity: int, period: float) -> None:
        """Both as the supervisor's flags say."""
        self.intensity = intensity
        self.period = period
        self._times: deque[float] = deque()

    def __len__(self) -> int:
        """How many restarts counted when it was last looked."""
        return len(self._times)

    def admit(self, now: float) -> bool:
        """Count one more restart at this moment; False, and nothing counted, when that is one too many."""
        times = self._times
        while times and now - times[0] > self.period:
            times.popleft()
        if len(times) >= self.intensity:
            return False
        times.append(now)
        return True
