"""The events of upstreams: their states and breakers, and each call through a federation, whether it is sent, queued or refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.client.fake_server import SILENCE, After
from tests.heard_events import HeardEvents, call_in, hearing, tracing

from greenroom.actors.federation.upstream_spec import UpstreamState
from greenroom.event_types import BreakerChanged, CallStarted, CallStep, RequestRefused, UpstreamChanged
from greenroom.protocol.errors import PeerError
from greenroom.supervision import kill
from greenroom.supervision.testing import run
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost

from .era_upstreams import EraUpstream
from .fake_upstreams import Upstairs, all_ready, federated, none_leaving, reaches, spec
from .fault_trial import plan, trial

if TYPE_CHECKING:
    from greenroom.actors.federation.federation import Federation
    from greenroom.actors.federation.upstream_requests import UpstreamRequest

ECHO: dict[str, Any] = {"name": "echo", "arguments": {}}
ERAS = pytest.mark.parametrize("stateless", [False, True], ids=["handshake", "stateless"])


def begin(federation: Federation, **options: Any) -> UpstreamRequest:
    """Call the tool of the one upstream."""
    line = federation.line("git")
    assert line is not None
    return line.begin("tools/call", ECHO, **options)


async def over(*requests: UpstreamRequest) -> None:
    """Wait until they have their outcomes."""
    await asyncio.gather(*(each.result() for each in requests), return_exceptions=True)


def states(heard: HeardEvents) -> list[tuple[str, str]]:
    """From which state to which the upstream went."""
    return [(each.before, each.state) for each in heard.of(UpstreamChanged)]


def outcomes(heard: HeardEvents) -> list[str]:
    """How the calls of the tool ended."""
    assert heard.unbalanced() == []
    calls = heard.ended("tools/call")
    assert {(each.way, each.host, each.program) for each in calls} <= {("upstream", "federation", "git")}
    assert {each.host for each in heard.of(CallStarted)} <= {"federation"}
    return [each.outcome for each in calls]


# --- states


async def test_each_change_of_an_upstream_is_told_once() -> None:
    stage = Upstairs()
    stage.failures = [ConnectFailed("connection refused\nwith details")]
    with hearing() as heard:
        async with federated({"git": spec(stage)}) as federation:
            await all_ready(federation)
            await stage.wire.break_off(ConnectionLost("gone"))
            await reaches(federation, "git", UpstreamState.DEGRADED)
            await all_ready(federation)
    assert states(heard)[:5] == [
        ("", "starting"),
        ("starting", "degraded"),
        ("degraded", "ready"),
        ("ready", "degraded"),
        ("degraded", "ready"),
    ]
    failed = heard.of(UpstreamChanged)[1]
    assert (failed.program, failed.upstream, failed.reason) == ("federation", "git", "connection refused")
    assert failed.next_attempt == 1.0
    ready = heard.of(UpstreamChanged)[2]
    assert (ready.revision, ready.reason, ready.process) == ("2025-11-25", "", None)


async def test_a_parked_upstream_tells_when_it_is_tried_again_and_a_removed_one_that_it_is_stopped() -> None:
    with hearing() as heard:
        async with federated({"git": spec(Upstairs(), intensity=0)}) as federation:
            await all_ready(federation)
            kill(federation.whereis("git"))
            await reaches(federation, "git", UpstreamState.PARKED)
            await federation.stop("git")
            await none_leaving(federation)
    parked, *_, stopped = heard.of(UpstreamChanged)[-3:]
    assert (parked.state, parked.next_attempt) == ("parked", 30.0)
    assert stopped.state == "stopped"


async def test_a_breaker_that_opens_is_probed_and_closes() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = After(100.0, {})
    with hearing() as heard:
        async with federated({"git": spec(stage)}) as federation:
            await all_ready(federation)
            await over(*(begin(federation, timeout=1.0) for _ in range(3)))
            await over(begin(federation))
            await reaches(federation, "git", UpstreamState.READY)
    assert [each.state for each in heard.of(BreakerChanged)] == ["open", "half_open", "closed"]
    assert {(each.program, each.upstream) for each in heard.of(BreakerChanged)} == {("federation", "git")}
    assert "no answer within 1 s" in heard.of(BreakerChanged)[0].reason
    assert outcomes(heard) == ["deadline", "deadline", "deadline", "refused"]
    assert ("ready", "open") in states(heard)


async def test_a_status_tells_since_when_and_how_many_wait() -> None:
    stage = Upstairs()
    async with federated({"git": spec(stage, concurrent=1)}) as federation:
        await all_ready(federation)
        await asyncio.sleep(3.0)
        stage.answers["tools/call"] = SILENCE
        requests = [begin(federation) for _ in range(3)]
        status = federation.status("git")
        assert (status.since, status.waiting, status.in_progress) == (3.0, 2, 3)
        assert (status.breaker, status.restarts, status.process) == ("closed", 0, None)
        await stage.wire.break_off(ConnectionLost("gone"))
        await all_ready(federation)
        assert federation.status("git").restarts == 1
        for each in requests:
            each.cancel()


# --- calls


@ERAS
async def test_each_ending_of_a_call_is_told_once(stateless: bool) -> None:  # noqa: FBT001
    stage = EraUpstream("echo", stateless=stateless)
    answers: list[tuple[Any, str]] = [
        ({"content": []}, "result"),
        ({"content": [], "isError": True}, "tool_error"),
        (PeerError(-32000, "no"), "error"),
        (SILENCE, "deadline"),
        (ConnectionLost("gone"), "peer_gone"),
    ]
    with hearing() as heard:
        async with federated({"git": spec(stage)}) as federation:
            await all_ready(federation)
            for answer, _ in answers:
                stage.answers["tools/call"] = answer
                await over(begin(federation, timeout=2.0))
            stage.answers["tools/call"] = SILENCE
            request = begin(federation)
            await asyncio.sleep(1.0)
            request.cancel()
    assert outcomes(heard) == [*(each for _, each in answers), "cancelled"]
    assert all(each.is_known for each in heard.ended("tools/call"))


async def test_a_request_that_waits_is_one_call_from_its_beginning() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = After(2.0, {"content": []})
    with hearing(details=True) as heard:
        async with federated({"git": spec(stage, concurrent=1)}) as federation:
            await all_ready(federation)
            await over(begin(federation), begin(federation))
    assert outcomes(heard) == ["result", "result"]
    first, second = heard.ended("tools/call")
    assert (first.queued, first.seconds) == (0.0, 2.0)
    assert (second.queued, second.seconds) == (2.0, 4.0)
    steps = [each.step for each in heard.of(CallStep) if each.call == second.call]
    assert steps == ["queued", "sent"]


async def test_requests_that_never_leave_the_queue_end_as_their_callers_see() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = SILENCE
    with hearing() as heard:
        async with federated({"git": spec(stage, concurrent=1, queue=2)}) as federation:
            await all_ready(federation)
            first, late, left, refused = (
                begin(federation),
                begin(federation, timeout=1.0),
                begin(federation),
                begin(federation),
            )
            assert refused.settled
            left.cancel()
            await over(late, left, refused)
            first.cancel()
            await over(first)
    assert outcomes(heard) == ["refused", "cancelled", "deadline", "cancelled"]
    (full,) = heard.of(RequestRefused)
    assert (full.kind, full.program, full.setting) == ("busy", "federation", "UpstreamSpec(queue=…)")


async def test_a_principal_that_floods_the_queue_makes_room_and_is_refused() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = SILENCE
    with hearing() as heard:
        async with federated({"git": spec(stage, concurrent=1, queue=2)}) as federation:
            await all_ready(federation)
            ann, bob = federation.line("git", "ann"), federation.line("git", "bob")
            assert ann is not None
            assert bob is not None
            requests = [ann.begin("tools/call", ECHO) for _ in range(3)] + [bob.begin("tools/call", ECHO)]
            await asyncio.sleep(0)
            assert [each.settled for each in requests] == [False, False, True, False]
            for each in requests:
                each.cancel()
            await over(*requests)
    assert sorted(outcomes(heard)) == ["cancelled", "cancelled", "cancelled", "refused"]
    assert len(heard.of(RequestRefused)) == 1


@pytest.mark.parametrize("end", ["park", "stop", "remove"])
async def test_requests_of_an_upstream_that_ends_end_once(end: str) -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = SILENCE
    with hearing() as heard:
        async with federated({"git": spec(stage, concurrent=1, intensity=0, grace=0.0)}) as federation:
            await all_ready(federation)
            line = federation.line("git")
            requests = [begin(federation), begin(federation)]
            await asyncio.sleep(0.5)
            if end == "park":
                kill(federation.whereis("git"))
                await reaches(federation, "git", UpstreamState.PARKED)
            elif end == "remove":
                await federation.stop("git")
                await none_leaving(federation)
                assert line is not None
                requests.append(line.begin("tools/call", ECHO))
            if end != "stop":
                await over(*requests)
    expected = {
        "park": ["peer_gone", "refused"],
        "stop": ["peer_gone", "refused"],
        "remove": ["peer_gone", "refused", "refused"],
    }
    assert sorted(outcomes(heard)) == expected[end]


@ERAS
async def test_a_queued_request_takes_the_context_of_its_own_call_along(stateless: bool) -> None:  # noqa: FBT001
    stage = EraUpstream("echo", stateless=stateless)
    stage.answers["tools/call"] = After(1.0, {"content": []})
    with tracing() as heard:
        async with federated({"git": spec(stage, concurrent=1)}) as federation:
            await all_ready(federation)
            await over(begin(federation), begin(federation))
    sent = [call_in(each.params["_meta"]["traceparent"]) for each in stage.asked("tools/call")]
    assert sent == [each.call for each in heard.ended("tools/call")]


async def test_tools_that_were_listed_before_a_listener_came_are_known() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = PeerError(-32000, "no")
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        with hearing() as heard:
            await over(begin(federation), line.begin("tools/call", {"name": "made up", "arguments": {}}))
    assert [(each.name, each.is_known) for each in heard.ended("tools/call")] == [("echo", True), ("made up", False)]


async def test_without_a_listener_no_call_is_made() -> None:
    async with federated({"git": spec(Upstairs(), concurrent=1)}) as federation:
        await all_ready(federation)
        sent, queued = begin(federation), begin(federation)
        assert queued.call is None
        assert sent.inner is not None
        assert getattr(sent.inner, "call", "none") is None
        await over(sent, queued)


# --- storms


def storm(seed: int, faults: int) -> None:
    """As many calls end as have started, whatever happens to the connections."""
    with hearing() as heard:
        run(lambda: trial(plan(seed, faults, 0.1)))
    assert heard.unbalanced() == []
    assert len(heard.ended("tools/call", "upstream")) > faults
    assert {each.outcome for each in heard.ended("tools/call")} > {"result", "peer_gone"}


def test_as_many_calls_end_as_start_in_a_storm_of_faults() -> None:
    storm(1, 50)


@pytest.mark.deep
@pytest.mark.parametrize("seed", [2, 3])
def test_as_many_calls_end_as_start_in_a_long_storm(seed: int) -> None:
    storm(seed, 1000)
