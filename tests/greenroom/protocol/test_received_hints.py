"""Cache hints that another side has sent: whatever it sends, a list is never kept for longer, or for more callers, than it says."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.cache_hints import Cache, merged_cache, received_cache

HINTS = st.builds(Cache, st.floats(0, 1e6), public=st.booleans())


@pytest.mark.row("26-C4")
@pytest.mark.parametrize("ttl", [0, -1, -1e300, None, "60000", True, [60_000], {"ms": 60_000}])
def test_a_hint_without_a_valid_time_is_stale_at_once(ttl: Any) -> None:
    assert received_cache({"ttlMs": ttl}) == Cache(0.0)
    assert received_cache({"ttlMs": ttl, "cacheScope": "public"}) == Cache(0.0, public=True)


def test_a_valid_hint_is_read_in_seconds_and_a_scope_is_public_by_that_word_alone() -> None:
    assert received_cache({"ttlMs": 1500, "cacheScope": "public"}) == Cache(1.5, public=True)
    for scope in ("private", "Public", "shared", None, 1, ["public"]):
        assert received_cache({"ttlMs": 1500, "cacheScope": scope}) == Cache(1.5)
    assert received_cache({}) == Cache(0.0)


@given(
    st.dictionaries(
        st.sampled_from(["ttlMs", "cacheScope"]),
        st.recursive(st.none() | st.integers() | st.floats() | st.text(), st.lists),
    )
)
def test_any_hint_is_read(sent: dict[str, Any]) -> None:
    read = received_cache(sent)
    assert 0 <= read.seconds < math.inf
    assert read.public is (sent.get("cacheScope") == "public")


@pytest.mark.parametrize("huge", [10**400, math.inf, 1e300])
def test_a_time_beyond_all_reason_is_cut(huge: float) -> None:
    assert received_cache({"ttlMs": huge}).seconds == 366 * 86_400.0


@given(st.lists(HINTS))
def test_a_merged_hint_promises_no_more_than_any_of_its_parts(parts: list[Cache]) -> None:
    merged = merged_cache(iter(parts))
    assert all(merged.seconds <= each.seconds for each in parts)
    assert merged.seconds in ([each.seconds for each in parts] or [0.0])
    assert merged.public is (bool(parts) and all(each.public for each in parts))
