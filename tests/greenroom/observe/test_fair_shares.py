"""Fair shares: bounded over all, and no owner can take the part of another, whatever the order."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.observe.fair_shares import FairShares


def taken(shares: FairShares, owner: str, count: int) -> int:
    """How many of so many entries it may add."""
    return sum(shares.take(owner) for _ in range(count))


@pytest.mark.parametrize("most", [64, 128, 2_000, 6_000])
def test_one_that_wants_all_gets_a_quarter_and_each_later_one_its_part(most: int) -> None:
    shares = FairShares(most)
    kept = most // 64
    assert taken(shares, "first", most) == kept + most // 4
    for number in range(31):
        assert taken(shares, f"{number}", most) >= kept
    assert not shares.take("first")


def test_owners_without_kept_places_share_what_is_left() -> None:
    shares = FairShares(640)
    for number in range(32):
        assert shares.take(f"{number}")
    assert taken(shares, "late", 640) == 160
    assert taken(shares, "later", 640) == 0
    assert taken(shares, "31", 640) >= 9


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 300)), max_size=100))
def test_the_sum_is_bounded_and_the_first_owners_have_their_places(asked: list[tuple[int, int]]) -> None:
    shares, granted, wanted = FairShares(320), Counter[str](), Counter[str]()
    for owner, count in asked:
        granted[f"{owner}"] += taken(shares, f"{owner}", count)
        wanted[f"{owner}"] += count
    assert granted.total() <= 320
    first = list(dict.fromkeys(f"{owner}" for owner, count in asked if count))[:32]
    assert all(granted[owner] >= min(5, wanted[owner]) for owner in first)
