"""Every way that a server's call can go, and every ending: one `CallStarted`, and exactly one `CallEnded` with the right outcome."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, get_args

import pytest
from tests.heard_events import hearing

from greenroom.event_types import Outcome

from .call_stage import ENDINGS, call_stage

if TYPE_CHECKING:
    from .call_stage import Driver

WAYS = ("session", "exchange", "listen", "task", "local", "pool")
WAY_OF = {"listen": "exchange", "pool": "session"}
ISOLATION = {"pool": "process", "listen": ""}
SETTLED = 20.0
"""Seconds of virtual time in which everything that was begun has ended."""


def test_the_table_has_each_way_and_each_ending() -> None:
    assert set(ENDINGS) == set(itertools.product(WAYS, get_args(Outcome)))


CASES = [(way, outcome, drive) for (way, outcome), drive in ENDINGS.items() if not isinstance(drive, str)]


@pytest.mark.parametrize(("way", "outcome", "drive"), CASES, ids=[f"{way}-{outcome}" for way, outcome, _ in CASES])
async def test_a_call_of_a_server_ends_once_as_it_ended(way: str, outcome: str, drive: Driver) -> None:
    async with call_stage() as stage:
        with hearing() as heard:
            await drive(stage)
            await asyncio.sleep(SETTLED)
    method = "subscriptions/listen" if way == "listen" else "tools/call"
    ended = [each for each in heard.ended(method, WAY_OF.get(way, way)) if each.side == "server"]
    assert [each.outcome for each in ended].count(outcome) == 1, ended  # type: ignore[arg-type]
    (call,) = (each for each in ended if each.outcome == outcome)
    assert (call.program, call.is_known, call.is_method_known) == ("stage", True, True)
    assert heard.unbalanced() == []
    has_code = outcome == "error" or (outcome == "refused" and way in ("session", "exchange", "listen"))
    assert (call.code is not None) >= has_code
    assert "swordfish" not in str(ended)
    if outcome in ("result", "tool_error", "error", "deadline", "worker_crashed", "process_ended", "cancelled"):
        thread = "thread" if way != "pool" and outcome == "tool_error" else "loop"
        assert call.isolation == ISOLATION.get(way, thread)
    assert 0 <= call.queued <= call.seconds
