"""Delivery orders by number, which can be drawn and replayed.

A `Node` with a seed schedules its processes in a pseudo-random order that could occur on a busy system. The same seed gives the same order. Hypothesis draws
seeds too: see `hypothesis_strategies`.
"""

from __future__ import annotations

import random
from typing import Final

MOST_SEED: Final = 999_999_999  # short enough to be read out and typed


class _FirstInFirstOut(random.Random):
    """Chooses the first candidate every time: first in, first out."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:  # noqa: ARG002 - the signature of `Random`
        return 0 if stop is None else start


class Seed:
    """A delivery order. Number 0 is first in, first out."""

    __slots__ = ("_choices", "number")

    def __init__(self, number: int, choices: random.Random | None = None) -> None:
        """`choices` makes the decisions instead of the number."""
        self.number = number
        self._choices = choices

    @classmethod
    def draw(cls) -> Seed:
        """A random seed, independent of `random.seed`, so that each run of a test suite tries others."""
        return cls(random.SystemRandom().randint(1, MOST_SEED))

    def source(self) -> random.Random:
        """The value for `Node(seed=…)`; each call starts the same order anew."""
        if self._choices is not None:
            return self._choices
        return random.Random(self.number) if self.number else _FirstInFirstOut(0)  # noqa: S311 - not for secrets

    def __repr__(self) -> str:
        return f"Seed({self.number if self._choices is None else self._choices!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seed) and (self.number, self._choices) == (other.number, other._choices)

    def __hash__(self) -> int:
        return hash(self.number)
