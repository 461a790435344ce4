"""Who is affected when a child dies, and in which order: the strategies, as functions of a list.

Children are always given, and returned, in the order in which they were started; they are stopped in reverse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]


def affected(strategy: Strategy, children: Sequence[T], dead: T) -> list[T]:
    """The children that are started anew when `dead` died, itself included, in start order.

    What runs of them is stopped first, the last one first.
    """
    match strategy:
        case "one_for_one":
            return [dead]
        case "one_for_all":
            return list(children)
        case "rest_for_one":
            return list(children[children.index(dead) :])
