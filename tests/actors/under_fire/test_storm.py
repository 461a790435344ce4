"""Ten thousand faults on a host of twenty real servers in memory, and on the ways to them: only the chosen processes die, nothing is done twice.

`make soak` has them all; a twentieth of them comes with the other tests.
"""

from __future__ import annotations

import pytest

from greenroom.supervision.testing import run

from .storm import storm, troubles

FAULTS = 10_000


@pytest.mark.deep
@pytest.mark.row("FE-01", "CL-10")
@pytest.mark.parametrize("order", [None, 5])
def test_two_hundred_and_fifty_troubles(order: int | None) -> None:
    outcome = run(lambda: storm(troubles(1, FAULTS // 40, 0.1)), seed=order)
    assert outcome.injected > FAULTS // 40 * 3 // 4
    assert {"answers", "RequestLost", "RequestTimeout", "BadAnswer"} <= set(outcome.ends)


@pytest.mark.soak
@pytest.mark.parametrize("every", [0.05, 0.2, 1.0])
def test_ten_thousand_troubles(every: float) -> None:
    done = seed = 0
    while done < FAULTS:
        seed += 1
        assert seed <= 40, "most of them find no process"
        outcome = run(lambda seed=seed: storm(troubles(seed, FAULTS // 20, every)), seed=None if seed % 2 else seed)  # type: ignore[misc]
        done += outcome.injected
