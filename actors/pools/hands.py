"""A worker, as the foreman of its pool sees it: what it is at, what it was given ahead, and whether it counts."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from greenroom.supervision import Ref

    from .claims import Claims
    from .minder import Minder
    from .order import Order


class Hand:
    """A worker, as the foreman sees it."""

    __slots__ = (
        "claims",
        "idle_since",
        "is_brisk",
        "is_coming",
        "is_leaving",
        "is_worn",
        "number",
        "orders",
        "ref",
        "since",
        "why",
    )

    def __init__(self, ref: Ref[Minder]) -> None:
        """It was just told to come up."""
        self.ref = ref
        self.is_coming = True
        self.is_brisk = True
        """Whether it goes on: what it is at has not lasted for long."""
        self.is_worn = False
        """It was said that it had better be replaced."""
        self.is_leaving = False
        """It is about to end, or to be ended, and counts no more."""
        self.claims: Claims | None = None
        self.number = 0
        """How many calls it was given."""
        self.orders: deque[Order] = deque()
        """What it is at, and what it was given ahead."""
        self.since = 0.0
        """When it began with the first of these, as far as can be known here."""
        self.idle_since = 0.0
        self.why = ""
        """How it ended, as its minder knows it."""

    @property
    def goes_on(self) -> bool:
        """Whether calls may be given to it ahead."""
        return self.claims is not None and self.is_brisk and not self.is_leaving
