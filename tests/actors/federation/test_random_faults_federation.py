"""Random faults for fifteen of twenty servers: every call is settled once, all come back, and the other five never notice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.supervision.testing import run

from .fault_trial import plan, trial


@given(st.integers(0, 2**32), st.sampled_from([0.02, 0.2, 1.0]), st.none() | st.integers(0, 2**32))
@settings(max_examples=examples(8))
def test_any_plan(seed: int, every: float, order: int | None) -> None:
    faults = plan(seed, 40, every)
    outcome = run(lambda: trial(faults), seed=order)
    assert outcome.injected + outcome.missed == 40
    assert outcome.calls["answers"]


@pytest.mark.greenroom(seeds=2)
async def test_in_another_order() -> None:
    await trial(plan(7, 60, 0.1))
