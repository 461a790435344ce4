"""Shared parts of contests in rounds: the effort, the programs, and the text of a value."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Effort:
    """The rounds, and the duration of each load."""

    rounds: int = 5
    seconds: float = 1.5
    """The seconds of each load; a third of that is added for warming up."""

    @classmethod
    def quick(cls, rounds: int = 3) -> Effort:
        """The minimal effort, for a rough check."""
        return cls(rounds=rounds, seconds=0.4)


@dataclass(frozen=True)
class Program:
    """A contestant and its command."""

    name: str
    command: tuple[str, ...]

    @property
    def here(self) -> bool:
        """Whether its environment is installed."""
        return Path(self.command[0]).exists()


def span(values: Sequence[float]) -> str:
    """The median, with the slowest and fastest round, as text."""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def left_out(missing: Mapping[str, str]) -> list[str]:
    """A line for each contestant that was left out."""
    return [f"{name}: left out, {why}" for name, why in missing.items()]
