"""The main property: in a random tree with random faults, exactly the processes that OTP's rules predict exit and restart.

`example_plan` defines an example, `model_supervisors` predicts it, `engine_supervisors` and `engine_run` run it, and `run_comparison` compares. A failure prints the
plan, the seed of the delivery order, and the command that replays both.

"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.supervision.testing import FaultPlan, Seed, seeds

from .example_plan import Call, Plan, SupervisorBlueprint, WorkerBlueprint, fault
from .model_trial import run_trial
from .strategies import plans

if TYPE_CHECKING:
    from pathlib import Path

# Under coverage on a slow machine, the first trees take longer to draw than Hypothesis allows.
SLOW_START = [HealthCheck.too_slow]


def verify(plan: Plan, seed: Seed | None) -> None:
    """Check one example."""
    verdict = run_trial(plan, seed)
    assume(verdict is not None)
    assert verdict is not None
    if verdict.wrong:
        raise AssertionError(str(verdict))


@settings(max_examples=examples(1_000), suppress_health_check=SLOW_START)
@given(plans(), st.none() | seeds())
def test_all_dies_and_restarts_as_predicted(plan: Plan, seed: Seed | None) -> None:
    verify(plan, seed)


@pytest.mark.soak
@settings(max_examples=20_000, suppress_health_check=SLOW_START)
@given(plans(), st.none() | seeds())
def test_all_dies_and_restarts_as_predicted_for_long(plan: Plan, seed: Seed | None) -> None:
    verify(plan, seed)


BUSY = Plan(
    tree=SupervisorBlueprint(
        strategy="rest_for_one",
        intensity=3,
        children=(
            WorkerBlueprint(traps=True, terminate=0.5),
            SupervisorBlueprint(
                strategy="one_for_all",
                intensity=3,
                children=(
                    WorkerBlueprint(failures={2: "raise"}),
                    WorkerBlueprint(stubborn=True),
                    WorkerBlueprint(kind="machine", traps=True),
                    WorkerBlueprint(kind="task", traps=True),
                ),
                restart="transient",
            ),
            SupervisorBlueprint(
                strategy="dynamic", template=True, children=(WorkerBlueprint(traps=True, terminate=0.25),)
            ),
        ),
    ),
    faults=FaultPlan.of(
        fault(0.25, "root.2.0", "start_child"),
        fault(0.375, "root.2.1", "start_child"),
        fault(0.5, "root.1.1", "hang"),
        fault(0.75, "root.1.0", "raise"),
        fault(4.0, "root.1", "kill"),
        fault(6.125, "root.0", "raise"),
    ),
    calls=(
        Call(0.4375, "root.2.1", "work", 0.5),
        Call(0.5625, "root.1.2", "work", 3.0),
        Call(0.625, "root.1.1", "echo"),
        Call(0.6875, "root.1.2", "echo"),
        Call(4.0625, "root.2.1", "later", 1.0),
    ),
    stop_at=9.0,
)


@pytest.mark.parametrize("seed", [None, Seed(0), Seed(7)], ids=str)
def test_the_same_seed_replays_the_same_history(root: Path, seed: Seed | None) -> None:
    first, second = run_trial(BUSY, seed), run_trial(BUSY, seed)
    assert first is not None
    assert second is not None
    assert not first.wrong, str(first)
    assert first.run.dump() == second.run.dump()
    shell = first.command().split(maxsplit=3)
    done = subprocess.run(
        [sys.executable, *shell[:3], BUSY.dump()], cwd=root, capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == first.run.dump() + "\n"


def test_another_seed_is_another_order() -> None:
    runs = [run_trial(BUSY, Seed(number)) for number in range(1, 9)]
    assert len({verdict.run.dump() for verdict in runs if verdict is not None}) > 1


@given(plans())
@settings(max_examples=examples(50))
def test_a_plan_is_the_same_after_json(plan: Plan) -> None:
    assert Plan.load(plan.dump()) == plan
