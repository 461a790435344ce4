"""Functions whose hints are strings, and whose names are partly there for type checkers only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers


def tree(root: Leaf, ctx: OnlyForCheckers) -> list[Leaf]:
    """Uses a class that comes further down."""
    return [root]


def unresolvable(amount: OnlyForCheckers) -> None:
    """Needs at run time what is not there."""


def unresolvable_result() -> OnlyForCheckers:
    """Promises what is not there at run time."""
    raise NotImplementedError


@dataclass
class Leaf:
    """A leaf of leaves."""

    name: str
    inner: list[Leaf] | None = None
