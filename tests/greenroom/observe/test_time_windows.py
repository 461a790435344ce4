"""Counts, percentiles and logs of the last minutes: right within their windows, and bounded whatever comes."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.observe.time_windows import CountWindow, SharedLog, SpreadWindow

MOMENTS = st.lists(st.floats(0.0, 500.0), min_size=1, max_size=60).map(sorted)


@given(MOMENTS)
def test_a_curve_has_the_counts_of_each_step_that_is_over(moments: list[float]) -> None:
    window = CountWindow(5.0, 20)
    for moment in moments:
        window.add(moment)
    now = moments[-1] + 5.0
    counts: defaultdict[int, int] = defaultdict(int)
    for moment in moments:
        counts[int(moment // 5)] += 1
    newest, first = int(now // 5), int(moments[0] // 5)
    wanted = [None if step < first else counts[step] for step in range(newest - 19, newest)]
    assert window.values(now) == wanted


def test_a_curve_without_counts_is_as_long_as_one_with_them() -> None:
    window = CountWindow(5.0, 20)
    assert window.values(100.0) == [None] * 19
    window.add(100.0)
    assert len(window.values(100.0)) == 19


def test_a_rate_is_of_the_last_minute_and_of_the_time_since_the_first_count_where_that_is_shorter() -> None:
    window = CountWindow()
    assert window.per_second(0.0) == 0.0
    for moment in range(10):
        window.add(100.0 + moment)
    assert window.per_second(110.0) == pytest.approx(1.0)
    assert 0 < window.per_second(165.0) < 0.2
    assert window.per_second(1_000.0) == 0.0


def test_one_count_in_the_first_moment_is_no_high_rate() -> None:
    window = CountWindow()
    window.add(100.0)
    assert window.per_second(100.001) == 1.0


def test_a_moment_that_is_older_than_the_window_counts_now() -> None:
    window = CountWindow(1.0, 5)
    window.add(100.0)
    window.add(3.0)
    assert window.values(101.0)[-1] == 2


def test_the_highest_value_of_a_step_is_kept() -> None:
    window = CountWindow()
    for value in (0.1, 0.7, 0.3):
        window.raise_to(10.0, value)
    assert window.highest(12.0) == 0.7
    assert window.highest(10_000.0) == 0.0


@given(st.lists(st.floats(0.0, 1_000.0), min_size=1, max_size=200))
def test_a_percentile_is_at_most_a_bucket_above_the_true_one(durations: list[float]) -> None:
    window = SpreadWindow()
    for seconds in durations:
        window.add(100.0, seconds)
    spread = window.spread(101.0)
    ordered = sorted(durations)
    assert spread.count == len(durations)
    assert spread.longest == ordered[-1]
    for part, found in ((0.5, spread.p50), (0.95, spread.p95), (0.99, spread.p99)):
        true = ordered[max(0, -(-round(part * 100) * len(ordered) // 100) - 1)]
        assert found is not None
        assert found >= true or found == spread.longest
        assert found <= max(true * 1.27, 0.0001) or true > 300


def test_calls_of_more_than_a_minute_ago_have_left_the_percentiles() -> None:
    window = SpreadWindow()
    window.add(100.0, 9.0)
    window.add(170.0, 0.5)
    assert window.spread(170.0).longest == 0.5
    assert window.spread(300.0).count == 0
    assert window.spread(300.0).p95 is None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers()), max_size=200))
def test_a_log_keeps_the_newest_of_each_owner_within_its_bounds(added: list[tuple[str, int]]) -> None:
    log: SharedLog[int] = SharedLog(20, 5)
    for owner, entry in added:
        log.add(owner, entry)
    kept = list(log)
    assert len(kept) == len(log) <= 20
    assert len(kept) + log.dropped == len(added)
    for owner in "abcdef":
        own = [entry for each, entry in added if each == owner]
        of_owner = log.of(owner)
        assert len(of_owner) <= 5
        assert of_owner == own[::-1][: len(of_owner)]


def test_an_owner_that_floods_a_log_takes_no_place_of_the_others() -> None:
    log: SharedLog[str] = SharedLog(20, 10)
    log.add("quiet", "kept")
    for number in range(1_000):
        log.add("loud", str(number))
    assert log.of("quiet") == ["kept"]
    assert log.of("loud")[0] == "999"
