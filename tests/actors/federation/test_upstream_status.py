"""The status of an upstream: its state, the reason, the seconds until the next attempt, and the calls in progress."""

from __future__ import annotations

import asyncio

import pytest
from tests.actors.client.fake_server import SILENCE

from greenroom.actors.client.errors import Parked
from greenroom.actors.client.settings import ClientSettings
from greenroom.actors.federation.upstream_spec import UpstreamState, UpstreamStatus
from greenroom.supervision import kill
from greenroom.transports.client.errors import ConnectFailed

from .fake_upstreams import STEADY, Upstairs, all_ready, federated, reaches, spec


async def test_a_server_that_is_not_there_says_why_and_when_it_is_tried_again() -> None:
    stage = Upstairs()
    stage.failures = [ConnectFailed("connection refused")] * 3
    async with federated({"git": spec(stage)}) as federation:
        await reaches(federation, "git", UpstreamState.DEGRADED)
        standing = federation.status("git")
        assert (standing.reason, standing.next_attempt, standing.in_progress) == ("connection refused", 1.0, 0)
        await asyncio.sleep(0.75)
        assert federation.status("git").next_attempt == 0.25
        await reaches(federation, "git", UpstreamState.READY)
        ready = federation.status("git")
        assert (ready.reason, ready.next_attempt) == ("", None)


async def test_a_server_that_is_parked_says_when_it_is_tried_again() -> None:
    async with federated({"git": spec(Upstairs(), intensity=0)}) as federation:
        await all_ready(federation)
        kill(federation.whereis("git"))
        await reaches(federation, "git", UpstreamState.PARKED)
        assert federation.status("git").next_attempt == 30.0


async def test_a_connection_that_has_given_up_says_when_it_is_tried_again() -> None:
    stage = Upstairs()
    stage.failures = [ConnectFailed("connection refused")] * 3
    settings = ClientSettings(backoff=STEADY, park_after=2)
    async with federated({"git": spec(stage, settings=settings)}) as federation:
        await reaches(federation, "git", UpstreamState.PARKED)
        await asyncio.sleep(0.5)
        assert federation.status("git").next_attempt == 29.5


async def test_calls_in_progress_are_counted_and_those_that_wait_for_their_turn() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = SILENCE
    async with federated({"git": spec(stage, concurrent=2)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        calls = [line.begin("tools/call", {"name": "echo", "arguments": {}}) for _ in range(5)]
        await asyncio.sleep(0)
        assert federation.status("git").in_progress == 5
        for each in calls:
            each.cancel()
        await asyncio.sleep(0)
        assert federation.status("git").in_progress == 0


def test_a_standing_is_three_things_to_a_loop_and_two_that_do_not_make_it_another() -> None:
    cause = ValueError()
    standing = UpstreamStatus("git", UpstreamState.OPEN, cause, 2.0, 7)
    id, state, why = standing
    assert (id, state, why) == ("git", UpstreamState.OPEN, cause)
    assert standing == UpstreamStatus("git", UpstreamState.OPEN, cause)
    assert standing.reason == "ValueError"


async def test_the_error_of_a_call_says_when_a_parked_server_is_tried_again() -> None:
    async with federated({"git": spec(Upstairs(), intensity=0)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        kill(federation.whereis("git"))
        await reaches(federation, "git", UpstreamState.PARKED)
        with pytest.raises(Parked) as refused:
            await line.request("ping")
        assert refused.value.retry_in == 30.0
        assert "the next attempt is in 30.0 s" in str(refused.value)
