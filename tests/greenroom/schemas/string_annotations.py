"""Functions with string hints, whose names partly exist only for type checkers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers


def tree(root: Leaf, ctx: OnlyForCheckers) -> list[Leaf]:
    """Uses a class that is defined below."""
    return [root]


def unresolvable(amount: OnlyForCheckers) -> None:
    """Its hint does not exist at run time."""


def unresolvable_result() -> OnlyForCheckers:
    """Its return hint does not exist at run time."""
    raise NotImplementedError


@dataclass
class Leaf:
    """A recursive class."""

    name: str
    inner: list[Leaf] | None = None
