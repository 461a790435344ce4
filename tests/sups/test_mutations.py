"""The property can fail: whatever of `mutations` is done to the engine, a few hundred examples find it.

A test that watches a faultless engine proves nothing of itself; these prove that it looks where it should.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from greenroom.supervision.testing import Seed, seeds

from .mutations import MUTATIONS
from .strategies import plans
from .trial import attempt

if TYPE_CHECKING:
    from .mutations import Mutation
    from .plan import Plan


class Caught(Exception):
    """A difference was found."""


def is_caught(examples: int) -> bool:
    """Whether so many examples, the same each time, see that something is wrong."""

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
        verdict = attempt(plan, seed)
        if verdict is not None and verdict.wrong:
            raise Caught

    try:
        look()
    except Caught:
        return True
    return False


@pytest.mark.parametrize("wrong", MUTATIONS, ids=lambda function: function.__name__)
def test_is_caught(wrong: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        wrong(patch)
        assert is_caught(4_000)


def test_nothing_is_caught_where_nothing_is_wrong() -> None:
    assert not is_caught(50)
