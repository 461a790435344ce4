"""Servers that change their era, or end, while several calls are at different points: each call has one outcome, and none is done twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.actors.client.client_handler import Deferred
from greenroom.actors.client.errors import Parked, RequestLost, RequestTimeout, StreamLost
from greenroom.actors.client.interfaces import Phase
from greenroom.protocol.errors import PeerError, RequestCancelled
from greenroom.transports.client.errors import ConnectionLost, HttpError, SessionGone

from .client_helpers import phase, playing
from .fake_server import SILENCE, Stage
from .stateless_stage import PREFIX, VERSION, asking, discovered, sent, stateless_stage
from .task_script import working
from .test_input_rounds import ANNE, Answering

CALL: dict[str, Any] = {"name": "t", "arguments": {}}
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
REFUSED = PeerError(-32022, "Unsupported protocol version", {"supported": ["2025-11-25"], "requested": VERSION})
BARE = HttpError(400, "<html>Bad Request</html>", "http://127.0.0.1")


# --- the era


@pytest.mark.row("26-V10")
@pytest.mark.parametrize(("refused", "is_http"), [(REFUSED, False), (REFUSED, True), (BARE, True)])
async def test_all_calls_that_an_older_server_refuses_are_sent_again_after_one_handshake(
    refused: Any, is_http: Any
) -> None:
    stage = stateless_stage(answers={"tools/call": SILENCE})
    stage.is_http = is_http
    async with playing(stage) as (line, _):
        calls = [line.begin("tools/call", CALL) for _ in range(5)]
        wire = stage.wire
        await wire.hears("tools/call", 5)
        stage.answers = Stage().answers | {"tools/call": DONE}
        for request in stage.asked("tools/call"):
            wire.answer(request, refused)
        assert [await call for call in calls] == [DONE] * 5
        assert (len(stage.wires), len(stage.asked("initialize"))) == (2, 1)
        assert len(stage.asked("tools/call")) == 10


@pytest.mark.row("26-V10")
async def test_a_server_that_flips_at_each_call_costs_two_attempts_for_each() -> None:
    stage = stateless_stage()
    stage.is_http = True
    eras = [stage.answers, Stage().answers]

    def flip(_: object) -> PeerError:
        eras.reverse()
        stage.answers = eras[0]
        return REFUSED if eras[1].get("initialize") is None else PeerError(-32022, "no", {"supported": [VERSION]})

    for answers in eras:
        answers["tools/call"] = flip
    async with playing(stage) as (line, _):
        for _ in range(10):
            with pytest.raises(PeerError):
                await line.request("tools/call", CALL)
        assert len(stage.asked("tools/call")) <= 20
        assert len(stage.wires) <= 11


@pytest.mark.row("26-V10")
async def test_a_call_with_effects_is_not_sent_again_to_a_server_that_has_not_changed() -> None:
    """A status without an error answer may be that of a program that failed in the middle of the call."""
    stage = stateless_stage(answers={"tools/call": BARE, "resources/read": BARE})
    stage.is_http = True
    async with playing(stage) as (line, _):
        with pytest.raises(StreamLost) as lost:
            await line.request("tools/call", CALL)
        assert (lost.value.maybe_done, len(stage.asked("tools/call"))) == (True, 1)
        with pytest.raises(RequestLost):
            await line.request("resources/read", {"uri": "x:y"})
        assert len(stage.asked("resources/read")) == 2


async def test_a_refused_call_whose_server_is_gone_keeps_the_refusal() -> None:
    stage = stateless_stage(answers={"tools/call": SILENCE})
    stage.is_http = True
    async with playing(stage, park_after=1) as (line, _):
        call = line.begin("tools/call", CALL)
        await stage.wire.hears("tools/call")
        stage.failures.append(ConnectionLost("gone"))
        stage.wire.answer(stage.asked("tools/call")[0], BARE)
        with pytest.raises(StreamLost, match="Bad Request") as lost:
            await call
        assert lost.value.maybe_done
        await phase(line, Phase.PARKED)


async def test_a_call_that_was_surely_not_begun_ends_as_unavailable_where_its_server_is_gone() -> None:
    stage = stateless_stage(answers={"tools/call": SILENCE})
    stage.is_http = True
    async with playing(stage, park_after=1) as (line, _):
        call = line.begin("tools/call", CALL)
        await stage.wire.hears("tools/call")
        stage.failures.append(ConnectionLost("gone"))
        stage.wire.answer(stage.asked("tools/call")[0], REFUSED)
        with pytest.raises(Parked):
            await call
        assert len(stage.asked("tools/call")) == 1


@pytest.mark.row("26-R6", "26-V10")
@pytest.mark.parametrize("later", ["stateless", "handshake"])
async def test_a_question_that_comes_while_the_connection_opens_anew_is_asked(later: str) -> None:
    """The reply is read by the era of its request, though no era is known at that moment."""
    stage, handler = stateless_stage(answers={"tools/call": SILENCE, "resources/read": SILENCE}), Answering()
    stage.is_http = True
    async with playing(stage, handler=handler) as (line, _):
        first, second = line.begin("resources/read", {"uri": "x:y"}), line.begin("tools/call", CALL)
        wire = stage.wire
        await wire.hears("tools/call")
        stage.answers |= {"server/discover": SILENCE, "tools/call": DONE}
        wire.answer(stage.asked("resources/read")[0], REFUSED)
        opened = await stage.opened(2)
        await opened.hears("server/discover")
        wire.answer(stage.asked("tools/call")[0], asking("name", state="s"))
        discovery = stage.asked("server/discover")[-1]
        if later == "handshake":
            stage.answers = Stage().answers | {"resources/read": {"contents": []}}
            opened.answer(discovery, PeerError(-32601, "no"))
        else:
            opened.answer(discovery, discovered())
        if later == "handshake":
            assert await first == {"contents": []}
            with pytest.raises(RequestLost, match="has sessions now") as lost:
                await second
            assert lost.value.maybe_done
        else:
            with pytest.raises(PeerError, match="Unsupported"):
                await first
            assert await second == DONE
            assert sent(stage, "tools/call")[-1]["inputResponses"] == {"name": ANNE}
        assert len(handler.asked) == 1


@pytest.mark.row("26-S1", "26-V10")
async def test_an_older_program_that_dies_of_the_question_takes_the_place_of_a_newer_one() -> None:
    stage = stateless_stage()
    async with playing(stage) as (line, _):

        def dies(_: object) -> Any:
            stage.wire.end(ConnectionLost("exited with 1"))
            return SILENCE

        stage.answers = Stage().answers | {"server/discover": dies}
        stage.wire.end(ConnectionLost("updated"))
        await phase(line, Phase.READY, lambda status: status.generation == 2)
        assert line.welcome is not None
        assert (line.welcome.version, len(stage.wires)) == ("2025-11-25", 4)


# --- callers that leave, and calls that fail while something is under way for them


async def test_a_task_whose_caller_leaves_as_the_reply_arrives_is_cancelled() -> None:
    extensions: dict[str, Any] = {"tools": {}, "extensions": {f"{PREFIX}tasks": {}}}
    stage = stateless_stage(answers={"tools/call": SILENCE, "tasks/cancel": {}}, capabilities=extensions)
    async with playing(stage) as (line, _):
        call = line.begin("tools/call", CALL)
        await stage.wire.hears("tools/call")
        created = working()
        stage.wire.answer(stage.asked("tools/call")[0], {**created, "resultType": "task"})
        call.cancel()
        await stage.wire.hears("tasks/cancel")
        assert sent(stage, "tasks/cancel") == [{"taskId": created["taskId"]}]


async def test_a_question_ends_with_its_call_when_the_server_cannot_be_reached_any_more() -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def wait(_method: str, _params: dict[str, Any]) -> Any:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    stage = stateless_stage(answers={"tools/call": asking("name")})
    async with playing(stage, handler=Answering(wait), park_after=1) as (line, _):
        call = line.begin("tools/call", CALL)
        await asked.wait()
        stage.failures.append(ConnectionLost("gone for good"))
        await stage.wire.break_off(ConnectionLost("gone"))
        with pytest.raises(RequestLost) as lost:
            await call
        assert isinstance(lost.value.cause, Parked)
        await ended.wait()


async def test_a_retry_is_not_sent_for_a_caller_that_has_left_as_the_answer_came() -> None:
    deferred, asked = Deferred(), asyncio.Event()

    def later(_method: str, _params: dict[str, Any]) -> Deferred:
        asked.set()
        return deferred

    stage = stateless_stage(answers={"tools/call": asking("name")})
    async with playing(stage, handler=Answering(later)) as (line, _):
        call = line.begin("tools/call", CALL)
        await asked.wait()
        assert await line.request("ping") == {}
        deferred.reply(ANNE)
        call.cancel()
        with pytest.raises(RequestCancelled):
            await call
        assert await line.request("ping") == {}
        assert len(stage.asked("tools/call")) == 1


@pytest.mark.row("26-P8")
async def test_lists_that_are_not_answered_take_no_place_for_ever() -> None:
    refused = PeerError(-32020, "Header mismatch")
    stage = stateless_stage(answers={"tools/call": refused, "tools/list": SILENCE, "resources/list": {"resources": []}})
    stage.is_http = True
    async with playing(stage, request_timeout=1.0, max_pending=8) as (line, _):
        for _ in range(10):
            with pytest.raises(RequestTimeout):
                await line.request("tools/call", CALL)
        assert await line.request("resources/list") == {"resources": []}
        assert len(stage.wire.forgotten) == 10


async def test_a_replaced_wire_ends_though_the_server_never_answers_what_restores_its_session() -> None:
    stage = Stage()
    async with playing(stage, mode="legacy") as (line, _):
        stage.answers["logging/setLevel"] = {}
        await line.set_level("error")
        stage.answers["logging/setLevel"] = SILENCE
        for generation in (2, 3):
            stage.answers["tools/call"] = SessionGone(404, "no such session")
            with pytest.raises(RequestLost):
                await line.request("tools/call", CALL)
            await phase(line, Phase.READY, lambda status, wanted=generation: status.generation == wanted)  # type: ignore[misc]
            stage.answers["tools/call"] = DONE
            assert await line.request("tools/call", CALL) == DONE
        assert [wire.ended for wire in stage.wires] == [True, True, False]
