"""Revisions and their negotiation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol import jsonrpc, versions


@pytest.mark.row("WC-01")
def test_four_revisions_newest_first() -> None:
    assert versions.SUPPORTED == ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
    assert list(versions.SUPPORTED) == sorted(versions.SUPPORTED, reverse=True)


@pytest.mark.row("WC-31")
def test_the_helpers_know_the_constants() -> None:
    assert versions.LATEST == versions.SUPPORTED[0] == "2025-11-25"
    assert versions.SUPPORTED[-1] == versions.OLDEST
    assert versions.DEFAULT_NEGOTIATED == "2025-03-26"
    assert jsonrpc.JSONRPC == "2.0"
    assert all(map(versions.is_supported, versions.SUPPORTED))
    for stranger in ("2026-07-28", "2025-11-26", "", "latest", None, 20251125, ["2025-11-25"]):
        assert not versions.is_supported(stranger)


@pytest.mark.row("WC-02")
@pytest.mark.parametrize("version", versions.SUPPORTED)
def test_a_known_revision_is_echoed(version: str) -> None:
    assert versions.negotiate(version) == version


@pytest.mark.row("WC-02")
@given(st.text() | st.none() | st.integers() | st.lists(st.text()) | st.just(versions.STATELESS))
def test_an_unknown_revision_is_answered_with_the_latest(requested: Any) -> None:
    if not versions.is_supported(requested):
        assert versions.negotiate(requested) == versions.LATEST


def test_newer_revisions_compare_greater() -> None:
    assert sorted(versions.SUPPORTED) == list(versions.SUPPORTED[::-1])
    assert min(versions.SUPPORTED) == versions.OLDEST
    assert max(versions.SUPPORTED) == versions.LATEST < versions.STATELESS
