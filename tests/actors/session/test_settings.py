"""Invalid settings are refused where they are written."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.actors.settings import BadSetting, Settings

COUNTS = [
    "max_sessions",
    "max_sessions_per_principal",
    "max_in_flight",
    "buffer_events",
    "buffer_bytes",
    "channel_events",
    "page_size",
    "max_asks",
]
SPANS = ["session_idle", "session_lifetime", "call_timeout", "ask_timeout"]


@pytest.mark.row("SE-13")
@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "7"])
def test_a_limit_is_a_whole_number_of_at_least_one(name: str, value: Any) -> None:
    with pytest.raises(BadSetting, match=f"{name} must be a whole number, 1 or more"):
        Settings(**{name: value})


@pytest.mark.row("SE-13")
@pytest.mark.parametrize("name", SPANS)
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "7"])
def test_a_deadline_is_a_number_of_seconds(name: str, value: Any) -> None:
    with pytest.raises(BadSetting, match=f"{name} must be"):
        Settings(**{name: value})


@pytest.mark.row("SE-13")
def test_some_limits_may_be_none_and_some_may_not() -> None:
    assert (
        Settings(
            max_sessions=None,
            max_sessions_per_principal=None,
            session_idle=None,
            session_lifetime=None,
            call_timeout=None,
        ).max_sessions
        is None
    )
    with pytest.raises(BadSetting):
        Settings(buffer_events=None)  # type: ignore[arg-type] # that is what is tested


@pytest.mark.parametrize(
    ("name", "value"),
    [("name", ""), ("version", 1), ("gate", 1), ("log_level", "loud"), ("crashes", "no"), ("cancel_grace", -1)],
)
def test_the_rest_is_checked_as_well(name: str, value: Any) -> None:
    with pytest.raises(BadSetting, match=name):
        Settings(**{name: value})


def test_a_grace_of_nothing_is_one() -> None:
    assert Settings(cancel_grace=0).cancel_grace == 0
