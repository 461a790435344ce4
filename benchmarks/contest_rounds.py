"""What contests of several rounds have in common: how thorough they are, what takes part, and how a value of all rounds is told."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Effort:
    """How thoroughly."""

    rounds: int = 5
    seconds: float = 1.5
    """Of each load; a third of it is spent on warming up before."""

    @classmethod
    def quick(cls, rounds: int = 3) -> Effort:
        """Enough to see whether something is badly off."""
        return cls(rounds=rounds, seconds=0.4)


@dataclass(frozen=True)
class Program:
    """A contestant, and how it is started."""

    name: str
    command: tuple[str, ...]

    @property
    def here(self) -> bool:
        """Whether what it runs in is installed."""
        return Path(self.command[0]).exists()


def span(values: Sequence[float]) -> str:
    """The median, with the slowest and the fastest round."""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def left_out(missing: Mapping[str, str]) -> list[str]:
    """A line for each contestant that could not take part."""
    return [f"{name}: left out, {why}" for name, why in missing.items()]
