"""Ten thousand faults on a federation of twenty, and none of its calls without an outcome, none of the spared servers disturbed.

`make soak` runs them all; a twentieth of them runs with the other tests.
"""

from __future__ import annotations

import pytest
from tests.actors.federation.fault_trial import plan, trial

from greenroom.supervision.testing import run

FAULTS = 10_000


def test_five_hundred_faults() -> None:
    outcome = run(lambda: trial(plan(1, FAULTS // 20, 0.1)))
    assert outcome.injected > FAULTS // 20 * 3 // 4


@pytest.mark.soak
@pytest.mark.parametrize("every", [0.05, 0.2, 1.0])
def test_ten_thousand_faults(every: float) -> None:
    most = 4 * FAULTS if every < 0.1 else 2 * FAULTS  # some find no process: it is parked or is just being started
    done = seed = 0
    while done < FAULTS:
        seed += 1
        assert seed * (FAULTS // 5) <= most
        outcome = run(lambda seed=seed: trial(plan(seed, FAULTS // 5, every)), seed=None if seed % 2 else seed)  # type: ignore[misc]
        done += outcome.injected
