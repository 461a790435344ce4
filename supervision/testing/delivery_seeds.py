"""Orders of delivery, by number: drawn and replayed.

A `Node` with a seed runs its processes in a pseudo-random order, one that a busy system could have run them in. The
same seed runs the same order again. Hypothesis draws them too: see `strategies`.
"""

from __future__ import annotations

import random
from typing import Final

MOST_SEED: Final = 999_999_999  # a number that can be read out and typed in


class _FirstInFirstOut(random.Random):
    """The simplest order: first come, first served."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:  # noqa: ARG002 - as in `Random`
        return 0 if stop is None else start


class Seed:
    """One order of delivery. Number 0 is the plain one: first come, first served."""

    __slots__ = ("_choices", "number")

    def __init__(self, number: int, choices: random.Random | None = None) -> None:
        """`choices` makes each decision itself, instead of the number."""
        self.number = number
        self._choices = choices

    @classmethod
    def draw(cls) -> Seed:
        """Some order. `random.seed` has no say in it, so that each run of a test suite tries others."""
        return cls(random.SystemRandom().randint(1, MOST_SEED))

    def source(self) -> random.Random:
        """What a `Node` takes as its seed; each call begins the same order anew."""
        if self._choices is not None:
            return self._choices
        return random.Random(self.number) if self.number else _FirstInFirstOut(0)  # noqa: S311 - order, not secrets

    def __repr__(self) -> str:
        return f"Seed({self.number if self._choices is None else self._choices!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seed) and (self.number, self._choices) == (other.number, other._choices)

    def __hash__(self) -> int:
        return hash(self.number)
