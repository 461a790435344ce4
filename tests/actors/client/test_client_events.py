"""The events of a client's calls: each request is one `CallStarted` and one `CallEnded`, and takes the trace context along."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.client.client_events import outcome_of, with_trace_context
from greenroom.actors.client.connection_line import LONGEST_NAME, MOST_NAMES, KnownNames
from greenroom.actors.client.errors import (
    CircuitOpen,
    ClientClosed,
    InitTimeout,
    InputRefused,
    NotReady,
    Parked,
    RequestLost,
    RequestTimeout,
    StreamLost,
    TaskLost,
    Unsupported,
)
from greenroom.event_types import CallEnded, CallStarted
from greenroom.protocol.errors import BadAnswer, LocalProtocolError, PeerError, RequestCancelled
from greenroom.supervision.event_bus import bus
from greenroom.transports.client.errors import ConnectionLost, HttpError, NodeEnded, ProcessDied, WireFull

from .client_helpers import playing
from .fake_server import SILENCE, Stage
from .stateless_stage import stateless_stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from greenroom.event_types import Event

GONE = ConnectionLost("gone")


class FakeTracer:
    """A tracer whose carrier shows the number of the call."""

    home = __name__
    fields = ("traceparent", "tracestate", "baggage")

    def enter(self, call: int) -> None:
        """A no-op: no code of this program runs for the calls."""

    def carrier(self, call: int) -> Mapping[str, str]:
        """The trace context of the call."""
        return {"traceparent": f"00-{call:032x}-{call:016x}-01", "tracestate": "ours=1"}

    def current_ids(self) -> tuple[str, str] | None:
        """None: there is no current span."""
        return None


@pytest.fixture
def events() -> Iterator[list[Event]]:
    """All events that happen in the test."""
    heard: list[Event] = []
    unsubscribe = bus.subscribe(heard.append)
    yield heard
    unsubscribe()


@pytest.fixture
def tracer(events: list[Event]) -> Iterator[list[Event]]:
    """The same, with a tracer."""
    bus.tracer = FakeTracer()
    yield events
    bus.tracer = None


def stage_of(era: str, **answers: Any) -> Stage:
    """A server of that era, which has no need to be asked for it."""
    if era == "stateless":
        return stateless_stage(answers=answers)
    stage = Stage()
    stage.answers |= answers
    return stage


def ended(events: list[Event], method: str) -> list[CallEnded]:
    """How the calls of this method ended."""
    return [each for each in events if isinstance(each, CallEnded) and each.method == method]


MODES = {"handshake": "legacy", "stateless": "auto"}
ERAS = pytest.mark.parametrize("era", ["handshake", "stateless"])


@ERAS
async def test_a_call_starts_and_ends_once(era: str, events: list[Event]) -> None:
    async with playing(stage_of(era, **{"tools/call": {"content": []}}), mode=MODES[era]) as (line, _):
        await line.request("tools/call", {"name": "add"})
    started = [each for each in events if isinstance(each, CallStarted)]
    over = [each for each in events if isinstance(each, CallEnded)]
    assert sorted(each.call for each in started) == sorted(each.call for each in over)
    (call,) = ended(events, "tools/call")
    assert (call.side, call.way, call.program, call.name, call.outcome) == (
        "client",
        "client",
        "stage",
        "add",
        "result",
    )
    assert call.revision == ("2026-07-28" if era == "stateless" else "2025-11-25")
    assert 0 <= call.queued <= call.seconds
    opening = "server/discover" if era == "stateless" else "initialize"
    assert [each.outcome for each in ended(events, opening)] == ["result"]


@ERAS
async def test_each_request_takes_its_own_trace_context_along(era: str, tracer: list[Event]) -> None:
    stage = stage_of(era, **{"tools/call": {"content": []}})
    async with playing(stage, mode=MODES[era]) as (line, _):
        await line.request("tools/call", {"name": "add"})
        await line.request("tools/call", {"name": "add", "_meta": {"traceparent": "mine", "else": 1}})
    opening = "server/discover" if era == "stateless" else "initialize"
    numbers = {each.call: each.method for each in tracer if isinstance(each, CallStarted)}
    first, second = (each.params["_meta"] for each in stage.asked("tools/call"))
    assert numbers[int(first["traceparent"].split("-")[2], 16)] == "tools/call"
    assert first["tracestate"] == "ours=1"
    assert second["traceparent"] == "mine"
    assert second["else"] == 1
    assert "tracestate" not in second
    (hello,) = stage.asked(opening)
    assert numbers[int(hello.params["_meta"]["traceparent"].split("-")[2], 16)] == opening


@pytest.mark.parametrize(
    ("error", "was_sent", "expected"),
    [
        (PeerError(-32000, "no"), True, ("error", -32000)),
        (BadAnswer("no answer at all"), True, ("error", None)),
        (RequestTimeout("m", 1.0), True, ("deadline", None)),
        (InitTimeout("late"), True, ("deadline", None)),
        (RequestCancelled(), True, ("cancelled", None)),
        (RequestLost("m", GONE), True, ("peer_gone", None)),
        (StreamLost("m", GONE), True, ("peer_gone", None)),
        (RequestLost("m", HttpError(503)), True, ("peer_gone", None)),
        (RequestLost("m", HttpError(429), maybe_done=False), True, ("refused", None)),
        (RequestLost("m", ProcessDied("p", 1)), True, ("process_ended", None)),
        (RequestLost("m", NodeEnded("was killed")), True, ("process_ended", None)),
        (RequestLost("m", WireFull("full"), maybe_done=False), False, ("refused", None)),
        (ClientClosed("closed"), True, ("peer_gone", None)),
        (ClientClosed("closed"), False, ("refused", None)),
        (NotReady("not yet"), False, ("refused", None)),
        (Parked("git"), False, ("refused", None)),
        (CircuitOpen("git"), False, ("refused", None)),
        (Unsupported("m", "tools"), False, ("refused", None)),
        (LocalProtocolError("no JSON"), False, ("refused", None)),
        (InputRefused("m", "elicitation/create", ValueError()), True, ("error", None)),
        (TaskLost("1", "cancelled"), True, ("cancelled", None)),
        (TaskLost("1", "expired"), True, ("error", None)),
    ],
)
def test_every_error_has_an_outcome(error: Exception, was_sent: bool, expected: tuple[str, int | None]) -> None:  # noqa: FBT001
    assert outcome_of("tools/call", None, error, was_sent=was_sent) == expected


def test_only_a_tool_can_have_a_tool_error() -> None:
    assert outcome_of("tools/call", {"isError": True}, None, was_sent=True) == ("tool_error", None)
    assert outcome_of("tools/call", {"isError": "yes"}, None, was_sent=True) == ("result", None)
    assert outcome_of("prompts/get", {"isError": True}, None, was_sent=True) == ("result", None)


@ERAS
async def test_the_context_goes_with_a_request_that_is_sent_again(era: str, tracer: list[Event]) -> None:
    stage = stage_of(era)
    async with playing(stage, mode=MODES[era]) as (line, _):
        stage.answers["tools/list"] = SILENCE
        request = line.begin("tools/list")
        await stage.wire.hears("tools/list")
        stage.answers["tools/list"] = {"tools": []}
        await stage.wire.break_off(GONE)
        await request
    first, again = (each.params["_meta"]["traceparent"] for each in stage.asked("tools/list"))
    assert first == again
    assert [each.outcome for each in ended(tracer, "tools/list")] == ["result"]


def test_an_invalid_meta_is_sent_as_it_is() -> None:
    params = {"_meta": "text"}
    assert with_trace_context(params, {"traceparent": "1"}) is params
    assert with_trace_context(None, {"traceparent": "1"}) == {"_meta": {"traceparent": "1"}}


def test_names_are_known_up_to_a_bound() -> None:
    names = KnownNames()
    names.learn("tools/call", [{"name": "a"}, {"name": 1}, "b", {"name": "x" * (LONGEST_NAME + 1)}])
    names.learn("tools/call", "no list")
    assert ("tools/call", "a") in names
    assert ("prompts/get", "a") not in names
    names.learn("tools/call", [{"name": f"t{number}"} for number in range(MOST_NAMES)])
    assert ("tools/call", f"t{MOST_NAMES - 2}") in names
    assert ("tools/call", f"t{MOST_NAMES - 1}") not in names


@ERAS
async def test_a_name_is_known_when_it_was_listed_or_had_a_result(era: str, events: list[Event]) -> None:
    stage = stage_of(era)
    stage.answers |= {"tools/list": {"tools": [{"name": "listed"}]}, "tools/call": {"content": [], "isError": True}}
    stage.answers["resources/read"] = {"contents": []}
    async with playing(stage, mode=MODES[era]) as (line, _):
        await line.request("tools/call", {"name": "listed"})
        await line.request("tools/list")
        await line.request("tools/call", {"name": "listed"})
        stage.answers["tools/call"] = {"content": []}
        await line.request("tools/call", {"name": "answered"})
        await line.request("resources/read", {"uri": "file:///secret"})
    known = [(each.name, each.is_known) for each in ended(events, "tools/call")]
    assert known == [("listed", False), ("listed", True), ("answered", True)]
    assert not ended(events, "resources/read")[0].is_known


async def test_nothing_is_made_without_a_listener() -> None:
    async with playing(stage_of("handshake", **{"tools/list": {"tools": []}})) as (line, _):
        request = line.begin("tools/list")
        assert request.call is None
        await request


async def test_a_cancelled_task_ends_its_call(events: list[Event]) -> None:
    stage = stage_of("handshake")
    async with playing(stage) as (line, _):
        stage.answers["tools/call"] = SILENCE
        task = asyncio.create_task(line.request("tools/call", {"name": "slow"}))
        await stage.wire.hears("tools/call")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [each.outcome for each in ended(events, "tools/call")] == ["cancelled"]
