"""Restarting later rather than at once: opt-in, for children that need a world which is not always there.

OTP has no such thing: its only delay is what a start takes. Without one, a child whose server is down for a minute
burns through any intensity in a moment. Every attempt still counts for `intensity`, when it is decided on and not when
it is made; so give the period room for the waiting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from .errors import BadSpec

if TYPE_CHECKING:
    import random


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before the next attempt.

    The first attempt waits `first` seconds, each further one `factor` times as long as the one before it, up to
    `longest`. Up to the part `jitter` of that is taken off at random, so that children that fell together do not come
    back together. A child that ran for `quiet` seconds starts from `first` again.
    """

    first: float = 0.1
    factor: float = 2.0
    longest: float = 30.0
    jitter: float = 0.5
    quiet: float = 60.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value: object = getattr(self, field.name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
                raise BadSpec(f"backoff.{field.name}", value, "a number, 0 or more")
        if self.factor < 1:
            raise BadSpec("backoff.factor", self.factor, "1 or more")
        if self.jitter > 1:
            raise BadSpec("backoff.jitter", self.jitter, "a part between 0 and 1")
        if self.longest < self.first:
            raise BadSpec("backoff.longest", self.longest, f"no less than backoff.first ({self.first:g})")

    def delay(self, tries: int, source: random.Random) -> float:
        """Seconds to wait after so many attempts in a row, the coming one not counted."""
        try:
            wait = min(self.longest, self.first * self.factor**tries)
        except OverflowError:
            wait = self.longest
        return wait * (1 - self.jitter * source.random())
