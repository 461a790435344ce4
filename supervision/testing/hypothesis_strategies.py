"""Hypothesis strategies for delivery orders and fault plans. Hypothesis is imported when one is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .delivery_seeds import MOST_SEED, Seed
from .fault_actions import kind_of
from .fault_plan import Fault, FaultPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import SearchStrategy


def seeds(*, each_choice: bool = False) -> SearchStrategy[Seed]:
    """A strategy of delivery orders. First in, first out is the simplest, so failures that do not depend on the order shrink to it.

    ``@given(seeds())`` on an async test runs each example's node in the drawn order. With `each_choice`, Hypothesis makes every choice of the scheduler and
    shrinks to the few that matter; that is for short tests, since an example has room for a few thousand choices.

    """
    from hypothesis import strategies  # noqa: PLC0415 - an optional dependency

    if each_choice:
        return strategies.randoms(use_true_random=False).map(lambda choices: Seed(0, choices))
    return strategies.integers(0, MOST_SEED).map(Seed)


def fault_plans(
    target: Sequence[str],
    kinds: Sequence[str] = ("kill", "raise", "exit", "stop", "task_exit", "hang"),
    *,
    most: int = 8,
    within: float = 10.0,
) -> SearchStrategy[FaultPlan]:
    """A strategy of fault plans: up to `most` faults of these kinds, on these targets, within so many seconds.

    The empty plan is the simplest. Times are multiples of a quarter of a second, so that several faults often coincide, and shrunk plans are easy to read.

    """
    from hypothesis import strategies  # noqa: PLC0415 - as above

    for kind in kinds:
        kind_of(kind)
    one = strategies.builds(
        Fault,
        at=strategies.integers(0, int(within * 4)).map(lambda quarters: quarters / 4),
        what=strategies.sampled_from(kinds),
        target=strategies.sampled_from(target),
        which=strategies.sampled_from((0, -1, 1)),
        seconds=strategies.none(),
        count=strategies.none(),
        reason=strategies.none(),
    )
    return strategies.lists(one, max_size=most).map(lambda faults: FaultPlan(tuple(faults)))
