"""The pure parts: which children a strategy restarts, and how many restarts are too many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.supervision.supervisors.child_spec import Strategy, affected_children
from greenroom.supervision.supervisors.supervisor_base import RestartWindow


@pytest.mark.parametrize(
    ("strategy", "fallen"), [("one_for_one", "c"), ("one_for_all", "abcde"), ("rest_for_one", "cde")]
)
def test_the_strategy_chooses_the_restarted_children(strategy: Strategy, fallen: str) -> None:
    assert affected_children(strategy, list("abcde"), "c") == list(fallen)


def admitted(window: RestartWindow, *times: float) -> list[bool]:
    return [window.admit(time) for time in times]


def test_intensity_zero_allows_nothing() -> None:
    assert admitted(RestartWindow(0, 5), 0, 100) == [False, False]


def test_more_than_intensity_restarts_within_the_period_are_too_many() -> None:
    assert admitted(RestartWindow(2, 5), 0, 1, 2) == [True, True, False]


def test_the_last_moment_of_the_period_counts() -> None:
    assert admitted(RestartWindow(1, 5), 10, 15) == [True, False]
    assert admitted(RestartWindow(1, 5), 10, 15.001) == [True, True]


def test_restarts_that_are_over_do_not_count() -> None:
    window = RestartWindow(2, 5)
    assert admitted(window, 0, 4, 6, 8, 8.5) == [True, True, True, False, False]
    assert len(window) == 2


def test_the_window_keeps_at_most_intensity_times() -> None:
    window = RestartWindow(3, 1000)
    assert sum(admitted(window, *range(100))) == 3
    assert len(window) == 3


@given(
    st.integers(0, 5),
    st.integers(1, 10),
    st.lists(st.integers(0, 8), max_size=60),
)
def test_the_window_counts_as_if_it_kept_all_restarts(intensity: int, period: int, steps: list[int]) -> None:
    window, now = RestartWindow(intensity, period), 0
    kept: list[int] = []
    for step in steps:
        now += step
        recent = [time for time in kept if time >= now - period]
        assert window.admit(now) == (len(recent) < intensity)
        if len(recent) < intensity:
            kept.append(now)
