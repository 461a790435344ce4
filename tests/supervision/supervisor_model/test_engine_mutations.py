"""The main property can fail: a few hundred examples find each defect of `engine_mutations`.

A test that watches a correct engine proves nothing of itself; these prove that it checks the right things.

"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from greenroom.supervision.testing import FaultPlan, Seed, seeds

from . import engine_mutations
from .engine_mutations import MUTATIONS
from .example_plan import Call, Plan, SupervisorBlueprint, WorkerBlueprint, fault
from .model_trial import run_trial
from .strategies import plans

if TYPE_CHECKING:
    from .engine_mutations import Mutation


class Caught(Exception):
    """A difference was found."""


def is_caught(examples: int) -> bool:
    """Whether so many examples, the same each time, find the defect."""

    @settings(
        max_examples=examples,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=False,
    )
    @given(plans(), st.none() | seeds())
    def look(plan: Plan, seed: Seed | None) -> None:
        verdict = run_trial(plan, seed)
        if verdict is not None and verdict.wrong:
            raise Caught

    try:
        look()
    except Caught:
        return True
    return False


# A working machine postpones messages: an answer to give, and a crash after it.
POSTPONING = Plan(
    SupervisorBlueprint(intensity=5, children=(WorkerBlueprint(kind="machine"),)),
    FaultPlan.of(),
    (Call(1.0, "root.0", "work", 2.0), Call(1.5, "root.0", "echo"), Call(2.0, "root.0", "crash")),
    90.0,
)
SEEN_BY: dict[Mutation, Plan] = {
    # A child that an operator stops while its restart fails stays stopped, even if a retry is pending.
    engine_mutations.old_retries_are_still_good: Plan(
        SupervisorBlueprint(intensity=5, children=(WorkerBlueprint(init=1.0, failures={2: "raise"}),)),
        FaultPlan.of(fault(4.0, "root.0", "kill"), fault(4.5, "root.0", "terminate_child")),
        (),
        90.0,
    ),
    # The exit of a child that has unlinked does not reach its supervisor.
    engine_mutations.unlinking_does_nothing: Plan(
        SupervisorBlueprint(intensity=5, children=(WorkerBlueprint(),)),
        FaultPlan.of(fault(1.0, "root.0", "unlink"), fault(2.0, "root.0", "kill")),
        (),
        90.0,
    ),
    engine_mutations.what_was_postponed_is_forgotten: POSTPONING,
    engine_mutations.what_was_postponed_comes_back_in_reverse: POSTPONING,
}
"""The defects that take more luck to find than a test should need."""


@pytest.mark.deep
@pytest.mark.parametrize("wrong", MUTATIONS, ids=lambda function: function.__name__)
def test_is_caught(wrong: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        wrong(patch)
        if plan := SEEN_BY.get(wrong):
            verdict = run_trial(plan, None)
            assert verdict is not None
            assert verdict.wrong
        else:
            assert is_caught(1_000)


@pytest.mark.parametrize("plan", SEEN_BY.values(), ids=[function.__name__ for function in SEEN_BY])
def test_the_examples_that_find_a_mutation_pass_on_the_unchanged_engine(plan: Plan) -> None:
    verdict = run_trial(plan, None)
    assert verdict is not None
    assert not verdict.wrong, str(verdict)


def test_nothing_is_caught_where_nothing_is_wrong() -> None:
    assert not is_caught(50)
