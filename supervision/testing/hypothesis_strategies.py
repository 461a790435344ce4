"""Orders of delivery and plans of faults as Hypothesis draws and shrinks them. It is imported when a strategy is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .delivery_seeds import MOST_SEED, Seed
from .fault_actions import kind_of
from .fault_plan import Fault, FaultPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import SearchStrategy


def seeds(*, each_choice: bool = False) -> SearchStrategy[Seed]:
    """A Hypothesis strategy of orders; the plain order is the simplest, so a failure for which the order is no reason shrinks to it.

    ``@given(seeds())`` on an async test runs each example's node in the order that was drawn. `each_choice` has
    Hypothesis make every single choice of the scheduler, and so shrink to the few that matter; that is for short
    tests, since it allows an example a few thousand choices.
    """
    from hypothesis import strategies  # noqa: PLC0415 - a test that asks for a strategy has it; no other needs it

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
    """A Hypothesis strategy of plans: at most so many faults of these kinds, with some of `whom`, within so many seconds.

    The plan without faults is the simplest. Times are quarters of a second: what happens at one moment is then often
    several things, and a shrunk plan is easily read.
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
