"""The events of a client's connection: its calls and their trace context, its sessions, its server's questions, and the frames."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples
from tests.heard_events import call_in, hearing, tracing

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
from greenroom.event_types import (
    CallStarted,
    CallStep,
    FramePassed,
    QuestionAsked,
    QuestionEnded,
    RequestRefused,
    SessionClosed,
    SessionOpened,
)
from greenroom.protocol.errors import (
    BadAnswer,
    LocalProtocolError,
    McpError,
    PeerError,
    RemoteProtocolError,
    RequestCancelled,
)
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest
from greenroom.supervision import kill, wait_down
from greenroom.supervision.testing import run
from greenroom.transports.client.errors import ConnectionLost, HttpError, NodeEnded, ProcessDied, WireFull
from greenroom.transports.client.interfaces import InvalidMessage

from .client_helpers import playing
from .fake_server import SILENCE, Stage
from .stateless_stage import asking, in_turn, stateless_stage
from .test_input_rounds import CALL, DONE, Answering, silent

GONE = ConnectionLost("gone")


def stage_of(era: str, **answers: Any) -> Stage:
    """A server of that era, which has no need to be asked for it."""
    if era == "stateless":
        return stateless_stage(answers=answers)
    stage = Stage()
    stage.answers |= answers
    return stage


MODES = {"handshake": "legacy", "stateless": "auto"}
ERAS = pytest.mark.parametrize("era", ["handshake", "stateless"])


@ERAS
async def test_a_call_starts_and_ends_once(era: str) -> None:
    with hearing() as heard:
        async with playing(stage_of(era, **{"tools/call": {"content": []}}), mode=MODES[era]) as (line, _):
            await line.request("tools/call", {"name": "add"})
    assert heard.unbalanced() == []
    (call,) = heard.ended("tools/call")
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
    assert [each.outcome for each in heard.ended(opening)] == ["result"]


@ERAS
async def test_each_request_takes_its_own_trace_context_along(era: str) -> None:
    stage = stage_of(era, **{"tools/call": {"content": []}})
    with tracing() as heard:
        async with playing(stage, mode=MODES[era]) as (line, _):
            await line.request("tools/call", {"name": "add"})
            await line.request("tools/call", {"name": "add", "_meta": {"traceparent": "mine", "else": 1}})
    opening = "server/discover" if era == "stateless" else "initialize"
    methods = {each.call: each.method for each in heard.of(CallStarted)}
    first, second = (each.params["_meta"] for each in stage.asked("tools/call"))
    assert methods[call_in(first["traceparent"])] == "tools/call"
    assert first["tracestate"] == "ours=1"
    assert second["traceparent"] == "mine"
    assert second["else"] == 1
    assert "tracestate" not in second
    (hello,) = stage.asked(opening)
    assert methods[call_in(hello.params["_meta"]["traceparent"])] == opening


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
async def test_the_context_goes_with_a_request_that_is_sent_again(era: str) -> None:
    stage = stage_of(era, **{"tools/list": SILENCE})
    with tracing() as heard:
        async with playing(stage, mode=MODES[era]) as (line, _):
            request = line.begin("tools/list")
            await stage.wire.hears("tools/list")
            stage.answers["tools/list"] = {"tools": []}
            await stage.wire.break_off(GONE)
            await request
    first, again = (each.params["_meta"]["traceparent"] for each in stage.asked("tools/list"))
    assert first == again
    assert [each.outcome for each in heard.ended("tools/list")] == ["result"]


async def test_the_context_goes_with_each_round() -> None:
    stage = stateless_stage(answers={"tools/call": in_turn(asking("name"), DONE)})
    with tracing():
        async with playing(stage, handler=Answering()) as (line, _):
            await line.request("tools/call", {"name": "add"})
    first, again = (each.params["_meta"]["traceparent"] for each in stage.asked("tools/call"))
    assert first == again


@ERAS
async def test_without_a_tracer_a_request_is_sent_as_it_is(era: str) -> None:
    stage = stage_of(era, **{"tools/call": {"content": []}})
    with hearing():
        async with playing(stage, mode=MODES[era]) as (line, _):
            await line.request("tools/call", {"name": "add"})
    assert [each for each in stage.requests if "traceparent" in each.meta] == []


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
async def test_a_name_is_known_when_it_was_listed_or_had_a_result(era: str) -> None:
    stage = stage_of(era)
    stage.answers |= {"tools/list": {"tools": [{"name": "listed"}]}, "tools/call": {"content": [], "isError": True}}
    stage.answers["resources/read"] = {"contents": []}
    with hearing() as heard:
        async with playing(stage, mode=MODES[era]) as (line, _):
            await line.request("tools/call", {"name": "listed"})
            await line.request("tools/list")
            await line.request("tools/call", {"name": "listed"})
            stage.answers["tools/call"] = {"content": []}
            await line.request("tools/call", {"name": "answered"})
            await line.request("resources/read", {"uri": "file:///a?key=secret"})
    known = [(each.name, each.is_known) for each in heard.ended("tools/call")]
    assert known == [("listed", False), ("listed", True), ("answered", True)]
    (read,) = heard.ended("resources/read")
    assert (read.name, read.is_known) == ("file:///a", False)


async def test_long_and_secret_texts_are_cut() -> None:
    stage = stage_of("handshake", **{"tools/call": PeerError(-1, "x" * 10_000), "tasks/get": PeerError(-2, "no")})
    with hearing() as heard:
        async with playing(stage, mode="legacy") as (line, _):
            await asyncio.wait(
                [
                    asyncio.ensure_future(line.request("tools/call", {"name": "n" * 10_000})),
                    asyncio.ensure_future(line.request("tasks/get", {"taskId": "task_0123456789abcdef"})),
                ]
            )
    (call,), (get,) = heard.ended("tools/call"), heard.ended("tasks/get")
    assert (len(call.message), len(call.name)) == (500, 2048)
    assert "89abcdef" not in get.task
    assert get.message == "no"


async def test_nothing_is_made_without_a_listener() -> None:
    async with playing(stage_of("handshake", **{"tools/list": {"tools": []}})) as (line, _):
        request = line.begin("tools/list")
        assert request.call is None
        assert line.session is None
        await request


# --- sessions


@ERAS
async def test_a_connection_is_a_session_for_as_long_as_it_is_ready(era: str) -> None:
    stage = stage_of(era)
    with hearing() as heard:
        async with playing(stage, mode=MODES[era]) as (line, _):
            await asyncio.sleep(2.0)
            await stage.wire.break_off(GONE)
            await line.ready()
    opened, closed = heard.of(SessionOpened), heard.of(SessionClosed)
    assert [each.session for each in opened] == [each.session for each in closed]
    assert len({each.session for each in opened}) == 2
    assert {(each.side, each.program, each.peer) for each in opened} == {("client", "stage", "stage")}
    assert [(each.seconds, each.is_failure, each.reason) for each in closed] == [(2.0, True, "gone"), (0.0, False, "")]


async def test_a_session_ends_with_the_connections_process() -> None:
    with hearing() as heard:
        async with playing() as (line, _):
            pid = line.pid
            assert pid is not None
            kill(pid)
            await wait_down(pid)
    assert [each.is_failure for each in heard.of(SessionClosed)] == [True]


# --- questions


async def test_a_question_of_the_stateless_era_belongs_to_its_call() -> None:
    stage = stateless_stage(answers={"tools/call": in_turn(asking("name"), DONE)})
    with hearing(details=True) as heard:
        async with playing(stage, handler=Answering()) as (line, _):
            await line.request("tools/call", {"name": "add"})
    (asked,), (answered,) = heard.of(QuestionAsked), heard.of(QuestionEnded)
    (call,) = heard.ended("tools/call")
    assert (asked.side, asked.program, asked.method) == ("client", "stage", "elicitation/create")
    assert asked.call == answered.call == call.call
    assert (answered.question, answered.outcome) == (asked.question, "accept")
    steps = [(each.step, each.text) for each in heard.of(CallStep) if each.call == call.call]
    assert steps == [("sent", ""), ("question", "elicitation/create"), ("answer", "accept"), ("sent", "again")]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"action": "decline"}, "decline"),
        ({"action": "cancel"}, "cancel"),
        ({"action": "nonsense"}, "answered"),
        (McpError(-1, "no"), "error"),
    ],
)
async def test_a_question_of_the_handshake_era_has_its_outcome(answer: Any, expected: str) -> None:
    with hearing() as heard:
        async with playing(handler=Answering(answer), mode="legacy") as (_, stage):
            stage.wire.say(JsonRpcRequest("q", "elicitation/create", {"message": "who?"}))
            stage.wire.say(JsonRpcRequest("p", "ping", {}), JsonRpcRequest("u", "unknown", {}))
            await stage.wire.hears(lambda message: getattr(message, "id", None) == "q")
    assert [each.outcome for each in heard.of(QuestionEnded)] == [expected]
    assert len(heard.of(QuestionAsked)) == 1


@pytest.mark.parametrize("loss", ["wire", "connection", "server"])
async def test_a_question_that_has_no_answer_is_lost_once(loss: str) -> None:
    with hearing() as heard:
        async with playing(handler=Answering(silent), mode="legacy") as (line, stage):
            stage.wire.say(JsonRpcRequest(1, "elicitation/create", {"message": "who?"}))
            await asyncio.sleep(1.0)
            if loss == "wire":
                await stage.wire.break_off(GONE)
            elif loss == "server":
                stage.wire.say(JsonRpcNotification("notifications/cancelled", {"requestId": 1}))
            else:
                assert line.pid is not None
                kill(line.pid)
            await asyncio.sleep(1.0)
    assert [(each.outcome, each.seconds) for each in heard.of(QuestionEnded)] == [("lost", 1.0)]


# --- refusals


async def test_bounds_of_a_connection_tell_what_they_refuse() -> None:
    stage = stage_of("handshake", **{"tools/call": SILENCE})
    with hearing() as heard:
        async with playing(stage, handler=Answering(silent), mode="legacy", max_pending=1, max_server_requests=1) as (
            line,
            _,
        ):
            first, second = line.begin("tools/call", CALL), line.begin("tools/call", CALL)
            await asyncio.wait([asyncio.ensure_future(second.result())])
            for id in ("q", "r"):
                stage.wire.say(JsonRpcRequest(id, "elicitation/create", {"message": "who?"}))
            stage.wire.say(JsonRpcRequest("s", "made/up", {}))
            await stage.wire.hears(lambda message: getattr(message, "id", None) == "s")
            first.cancel()
    assert [(each.kind, each.setting, each.method) for each in heard.of(RequestRefused)] == [
        ("max_pending", "ClientSettings(max_pending=…)", "tools/call"),
        ("too_many_requests", "ClientSettings(max_server_requests=…)", "elicitation/create"),
        ("too_many_requests", "ClientSettings(max_server_requests=…)", ""),
    ]
    assert {each.program for each in heard.of(RequestRefused)} == {"stage"}
    assert len(heard.of(QuestionAsked)) == 1


# --- hostile servers

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.dictionaries(st.sampled_from(["isError", "content", "x"]), JSON) | JSON.map(PeerError.from_wire), JSON)
@settings(max_examples=examples(40))
def test_whatever_a_server_sends_its_events_can_be_written(tools: Any, answer: Any, info: Any) -> None:
    async def play() -> None:
        stage = stage_of("handshake", **{"tools/list": {"tools": tools}, "tools/call": answer})
        stage.answers["initialize"] = {
            "protocolVersion": stage.version,
            "capabilities": {"tools": {}},
            "serverInfo": info,
        }
        async with playing(stage, mode="legacy") as (line, _):
            pending = [line.begin("tools/list"), line.begin("tools/call", {"name": "\ud800x", "_meta": info})]
            await asyncio.gather(*(each.result() for each in pending), return_exceptions=True)

    with hearing(details=True) as heard:
        run(play)
    assert heard.unbalanced() == []
    assert len(heard.ended("tools/call")) == 1
    for event in heard:
        msgspec.json.encode(event)


# --- details


@ERAS
async def test_each_frame_passes_once_in_its_direction(era: str) -> None:
    stage = stage_of(era, **{"tools/call": {"content": []}})
    with hearing(details=True) as heard:
        async with playing(stage, mode=MODES[era]) as (line, _):
            await line.request("tools/call", {"name": "add"})
            stage.wire.say(JsonRpcNotification("notifications/message", {"level": "info", "data": 1}))
            stage.wire.say(InvalidMessage(RemoteProtocolError(-32700, "no"), "rubbish"))
            await asyncio.sleep(0)
    frames = heard.of(FramePassed)
    sent = [json.loads(each.body) for each in frames if each.direction == "out"]
    assert [each.get("method") for each in sent] == [getattr(each, "method", None) for each in stage.wire.heard]
    came = [each.body for each in frames if each.direction == "in"]
    assert came[-1] == b"rubbish"
    assert json.loads(came[-2])["method"] == "notifications/message"
    assert [json.loads(each) for each in came[:-1]][1]["result"] == {"content": []}
    assert {(each.side, each.program) for each in frames} == {("client", "stage")}
    assert {each.session for each in frames} == {"", heard.of(SessionOpened)[0].session}


async def test_frames_and_steps_are_only_for_listeners_of_details() -> None:
    with hearing() as heard:
        async with playing(stage_of("handshake", **{"tools/list": {"tools": []}})) as (line, _):
            await line.request("tools/list")
    assert heard.of(FramePassed) == []
    assert heard.of(CallStep) == []


async def test_progress_is_a_step() -> None:
    stage = stage_of("handshake", **{"tools/call": SILENCE})
    with hearing(details=True) as heard:
        async with playing(stage, mode="legacy") as (line, _):
            pending = line.begin("tools/call", {"name": "add"}, progress=True)
            await stage.wire.hears("tools/call")
            told = {"progressToken": pending.id, "progress": 1, "total": 4, "message": "m" * 1000}
            stage.wire.say(JsonRpcNotification("notifications/progress", told))
            await anext(pending.progress())
            pending.cancel()
    steps = [each for each in heard.of(CallStep) if each.step == "progress"]
    assert [(each.text[:8], len(each.text)) for each in steps] == [("1 of 4 m", 500)]
