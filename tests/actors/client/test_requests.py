"""Requests: each is settled once, by the first outcome, and the server is notified of cancellations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.connections import snapshot

from greenroom.actors.client.errors import ClientClosed, NotReady, RequestLost, RequestTimeout, Unsupported
from greenroom.actors.client.interfaces import Phase, Progress
from greenroom.protocol.errors import BadAnswer, LocalProtocolError, PeerError, RemoteProtocolError, RequestCancelled
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcResponse
from greenroom.supervision import Ref, current_node, kill, spawn, wait_down
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost, ResponseTooLarge
from greenroom.transports.client.interfaces import Inbound, InvalidMessage, UnansweredRequest

from .client_helpers import phase, playing
from .fake_server import SILENCE, After, Garbled, Stage

if TYPE_CHECKING:
    from greenroom.protocol.jsonrpc import JsonRpcRequest

CALL: dict[str, Any] = {"name": "anything", "arguments": {}}


@pytest.mark.row("CL-26")
async def test_ids_are_integers_that_grow() -> None:
    async with playing(mode="legacy") as (line, stage):
        await asyncio.gather(*(line.request("ping") for _ in range(20)))
        ids = [request.id for request in stage.requests]
        assert ids == sorted(ids)
        assert len(set(ids)) == 21
        assert all(type(id) is int for id in ids)


@pytest.mark.row("CL-26")
async def test_the_books_say_what_waits_and_what_is_under_way() -> None:
    async with playing() as (line, stage):
        stage.answers["tools/call"] = SILENCE
        pending = line.begin("tools/call", CALL)
        await stage.wire.hears("tools/call")
        books = await snapshot(line)
        assert books["under_way"] == {pending.id: "tools/call"}
        pending.cancel()
        assert (await snapshot(line))["under_way"] == {}


@pytest.mark.row("CL-16")
async def test_a_deadline_is_kept_and_the_server_told() -> None:
    async with playing() as (line, stage):
        stage.answers["tools/call"] = After(10.0, {"content": []})
        pending = line.begin("tools/call", CALL, timeout=2.0)
        began = asyncio.get_running_loop().time()
        with pytest.raises(RequestTimeout) as caught:
            await pending.result()
        assert asyncio.get_running_loop().time() - began == pytest.approx(2.0)
        assert isinstance(caught.value, TimeoutError)
        await stage.wire.hears("notifications/cancelled")
        assert stage.notes("notifications/cancelled") == [{"requestId": pending.id, "reason": "timeout"}]
        assert stage.wire.forgotten == [pending.id]
        await asyncio.sleep(20)
        assert (await snapshot(line))["strays"] == 1


@pytest.mark.row("CL-16")
async def test_the_deadline_that_is_set_is_the_default_and_none_is_for_ever() -> None:
    async with playing(request_timeout=3.0) as (line, stage):
        stage.answers["tools/call"] = After(100.0, {"content": []})
        patient = asyncio.create_task(line.request("tools/call", CALL, timeout=None))
        with pytest.raises(RequestTimeout):
            await line.request("tools/call", CALL)
        assert await patient == {"content": []}


@pytest.mark.row("CL-16")
async def test_a_deadline_that_is_over_before_it_begins_sends_nothing() -> None:
    async with playing() as (line, stage):
        for seconds in (0, -1.0, float("nan")):
            with pytest.raises(RequestTimeout):
                await line.request("tools/call", CALL, timeout=seconds)
        assert stage.asked("tools/call") == []
        assert await line.request("ping", timeout=float("inf")) == {}


@pytest.mark.row("CL-16")
async def test_progress_and_keep_alives_put_no_deadline_off() -> None:
    async with playing() as (line, stage):
        stage.answers["tools/call"] = SILENCE
        pending = line.begin("tools/call", CALL, timeout=2.0, progress=True)
        await stage.wire.hears("tools/call")
        for number in range(3):
            await asyncio.sleep(0.5)
            stage.wire.say(
                JsonRpcNotification("notifications/progress", {"progressToken": pending.id, "progress": number})
            )
        began = asyncio.get_running_loop().time()
        with pytest.raises(RequestTimeout):
            await pending.result()
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.5)


@pytest.mark.row("CL-15")
async def test_a_cancelled_request_raises_and_the_server_is_notified() -> None:
    async with playing() as (line, stage):
        stage.answers["tools/call"] = SILENCE
        pending = line.begin("tools/call", CALL)
        await stage.wire.hears("tools/call")
        pending.cancel("not needed")
        with pytest.raises(RequestCancelled, match="not needed"):
            await pending.result()
        await stage.wire.hears("notifications/cancelled")
        assert stage.notes("notifications/cancelled") == [{"requestId": pending.id, "reason": "not needed"}]
        pending.cancel()
        stage.wire.say(JsonRpcResponse(pending.id, {}))
        assert await line.request("ping") == {}
        assert len(stage.notes("notifications/cancelled")) == 1


@pytest.mark.row("CL-15")
async def test_a_cancelled_task_cancels_what_it_waits_for() -> None:
    async with playing() as (line, stage):
        stage.answers["tools/call"] = SILENCE
        task = asyncio.create_task(line.request("tools/call", CALL))
        asked = await stage.wire.hears("tools/call")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await stage.wire.hears("notifications/cancelled")
        assert stage.notes("notifications/cancelled")[0]["requestId"] == getattr(asked, "id", None)


async def test_of_two_who_wait_for_one_request_the_other_hears_that_it_was_cancelled() -> None:
    async with playing() as (line, stage):
        stage.answers["tools/call"] = SILENCE
        pending = line.begin("tools/call", CALL)
        one, other = (asyncio.create_task(pending.result()) for _ in range(2))
        await stage.wire.hears("tools/call")
        one.cancel()
        outcomes = await asyncio.gather(one, other, return_exceptions=True)
        assert isinstance(outcomes[0], asyncio.CancelledError)
        assert isinstance(outcomes[1], RequestCancelled)


@pytest.mark.row("CL-15")
async def test_a_caller_that_dies_takes_its_request_along() -> None:
    async with playing() as (line, stage):
        stage.answers["tools/call"] = SILENCE

        async def caller() -> None:
            _ = line.begin("tools/call", CALL, timeout=None)
            await asyncio.sleep(1000)

        pid = spawn(caller)
        await stage.wire.hears("tools/call")
        kill(pid)
        await wait_down(pid)
        await stage.wire.hears("notifications/cancelled")
        assert (await snapshot(line))["under_way"] == {}


async def test_a_request_whose_caller_dies_before_it_was_sent_is_never_sent() -> None:
    stage = Stage()
    stage.answers["initialize"] = SILENCE
    async with playing(stage, ready=False) as (line, _):

        async def caller() -> None:
            await line.request("tools/call", CALL, timeout=None)

        pid = spawn(caller)
        while not (await snapshot(line))["waiting"]:  # noqa: ASYNC110 - each look is a turn of the loop
            await asyncio.sleep(0.1)
        kill(pid)
        await wait_down(pid)
        greeted = stage.asked("initialize")[0]
        stage.wire.answer(greeted, Stage()._welcome(greeted))
        await line.ready()
        await line.request("ping")
        assert stage.asked("tools/call") == []
        assert stage.notes("notifications/cancelled") == []


@pytest.mark.row("CL-19")
async def test_an_error_of_the_server_is_raised_as_it_came() -> None:
    async with playing() as (line, stage):
        stage.answers["tools/call"] = PeerError(-32001, "no such thing", {"detail": 1})
        with pytest.raises(PeerError) as caught:
            await line.request("tools/call", CALL)
        assert (caught.value.code, caught.value.message, caught.value.data) == (-32001, "no such thing", {"detail": 1})


@pytest.mark.row("CL-18")
async def test_an_undeclared_capability_is_refused_without_sending() -> None:
    async with playing(Stage(capabilities={"tools": {}})) as (line, stage):
        before = len(stage.requests)
        for method in ("resources/list", "prompts/get", "logging/setLevel", "completion/complete", "tasks/list"):
            with pytest.raises(Unsupported) as caught:
                await line.request(method, {})
            assert caught.value.method == method
        with pytest.raises(Unsupported, match=r"tasks\.requests\.tools\.call"):
            await line.request("tools/call", {**CALL, "task": {}})
        assert len(stage.requests) == before
        stage.answers["own/method"] = {"free": True}
        assert await line.request("own/method") == {"free": True}


@pytest.mark.row("CL-11")
async def test_progress_comes_until_the_request_is_settled() -> None:
    async with playing() as (line, stage):
        stage.answers["tools/call"] = SILENCE
        pending = line.begin("tools/call", CALL, token="mine")
        asked = await stage.wire.hears("tools/call")
        assert getattr(asked, "params", {})["_meta"] == {"progressToken": "mine"}
        for params in (
            {"progress": 1, "total": 3, "message": "one"},
            {"progress": 2.5},
            {"progress": "much"},
            {},
        ):
            stage.wire.say(JsonRpcNotification("notifications/progress", {"progressToken": "mine", **params}))
        stage.wire.say(JsonRpcNotification("notifications/progress", {"progressToken": ["odd"], "progress": 1}))
        stage.wire.say(JsonRpcResponse(pending.id, {"content": []}))
        assert [each async for each in pending.progress()] == [Progress(1, 3, "one"), Progress(2.5)]
        assert await pending.result() == {"content": []}


async def test_unread_progress_is_bounded() -> None:
    async with playing(max_progress=4) as (line, stage):
        stage.answers["tools/call"] = SILENCE
        pending = line.begin("tools/call", CALL, progress=True)
        await stage.wire.hears("tools/call")
        for number in range(100):
            stage.wire.say(
                JsonRpcNotification("notifications/progress", {"progressToken": pending.id, "progress": number})
            )
        stage.wire.say(JsonRpcResponse(pending.id, {}))
        await pending.result()
        assert [each.progress async for each in pending.progress()] == [96, 97, 98, 99]


async def test_two_requests_cannot_share_a_progress_token() -> None:
    async with playing() as (line, stage):
        stage.answers["tools/call"] = SILENCE
        first = line.begin("tools/call", CALL, token="same")
        with pytest.raises(LocalProtocolError, match="same"):
            await line.begin("tools/call", CALL, token="same").result()
        first.cancel()
        await stage.wire.hears("notifications/cancelled")
        stage.answers["tools/call"] = {"content": []}
        assert await line.begin("tools/call", CALL, token="same").result() == {"content": []}


async def test_params_that_cannot_be_encoded_fail_their_own_request() -> None:
    async with playing() as (line, _):
        with pytest.raises(LocalProtocolError):
            await line.request("tools/call", {"name": object()})
        assert await line.request("ping") == {}


async def test_an_answer_that_is_none_fails_the_request_that_it_would_have_answered() -> None:
    def garbled(request: JsonRpcRequest) -> Garbled:
        error = RemoteProtocolError(-32700, "Parse error: rubbish")
        error.response_to = request.id
        return Garbled(InvalidMessage(error, "rubbish"))

    async with playing() as (line, stage):
        stage.answers["tools/call"] = garbled
        with pytest.raises(BadAnswer, match="rubbish"):
            await line.request("tools/call", CALL)
        assert await line.request("ping") == {}


async def test_duplicate_unknown_and_stale_replies_are_counted_and_ignored() -> None:
    async with playing() as (line, stage):
        await line.request("ping")
        last = stage.requests[-1].id
        stage.wire.say(
            JsonRpcResponse(last, {}),
            JsonRpcResponse(last, {}),
            JsonRpcResponse("unknown", {}),
            JsonRpcResponse(10**6, {}),
        )
        stage.wire.say(JsonRpcError(None, PeerError(-32700, "what?")), JsonRpcError(last, PeerError(1, "late")))
        assert await line.request("ping") == {}
        assert (await snapshot(line))["strays"] == 6
        assert line.pid is not None
        Ref(line.pid).send(Inbound(line.pid, [JsonRpcResponse(10**6 + 1, {})]))
        assert (await snapshot(line))["strays"] == 6


@pytest.mark.row("CL-04")
async def test_before_it_is_ready_a_request_waits_or_is_refused() -> None:
    stage = Stage()
    stage.answers["initialize"] = lambda request: After(5.0, Stage()._welcome(request))
    async with playing(stage, ready=False) as (line, _):
        with pytest.raises(NotReady):
            await line.request("tools/list", wait=False)
        with pytest.raises(NotReady):
            await line.notify("notifications/roots/list_changed")
        with pytest.raises(RequestTimeout):
            await line.request("tools/list", timeout=1.0)
        stage.answers["tools/list"] = {"tools": []}
        assert await line.request("tools/list") == {"tools": []}
        assert len(stage.asked("tools/list")) == 1
        assert stage.notes("notifications/cancelled") == []


async def test_a_request_that_was_lost_without_being_seen_is_sent_again_once() -> None:
    async with playing() as (line, stage):
        answers: list[Any] = [ConnectFailed("refused"), {"content": []}]
        stage.answers["tools/call"] = lambda _: answers.pop(0)
        assert await line.request("tools/call", CALL) == {"content": []}
        answers += [ConnectFailed("refused"), ConnectFailed("refused again"), {"content": []}]
        with pytest.raises(RequestLost, match="refused again") as caught:
            await line.request("tools/call", CALL)
        assert not caught.value.maybe_done


async def test_a_call_that_may_have_been_seen_is_not_repeated_and_a_read_is() -> None:
    async with playing() as (line, stage):
        for method, params, count in (("tools/call", CALL, 1), ("resources/read", {"uri": "a:b"}, 2)):
            stage.answers[method] = ConnectionLost("cut")
            with pytest.raises(RequestLost) as caught:
                await line.request(method, params)
            assert caught.value.maybe_done
            assert len(stage.asked(method)) == count
        with pytest.raises(RequestLost):
            await line.begin("tools/call", CALL, idempotent=True).result()
        assert len(stage.asked("tools/call")) == 3
        with pytest.raises(RequestLost):
            await line.begin("resources/read", {"uri": "a:b"}, idempotent=False).result()
        assert len(stage.asked("resources/read")) == 3


async def test_a_request_that_is_too_large_fails_alone() -> None:
    async with playing() as (line, stage):
        stage.answers["tools/call"] = lambda request: Garbled(UnansweredRequest(request.id, ResponseTooLarge(17, 16)))
        with pytest.raises(RequestLost, match="16 bytes"):
            await line.request("tools/call", CALL)
        assert line.status.phase is Phase.READY


async def test_a_wire_that_is_full_refuses_what_was_not_taken() -> None:
    async with playing() as (line, stage):
        stage.wire.full = True
        with pytest.raises(RequestLost) as caught:
            await line.request("tools/call", CALL)
        assert not caught.value.maybe_done
        with pytest.raises(RequestLost, match="roots/list_changed"):
            await line.notify("notifications/roots/list_changed")
        stage.wire.full = False
        assert await line.request("ping") == {}


async def test_so_many_may_be_under_way_and_no_more() -> None:
    async with playing(max_pending=3) as (line, stage):
        stage.answers["tools/call"] = SILENCE
        kept = [line.begin("tools/call", CALL) for _ in range(3)]
        with pytest.raises(RequestLost, match="3 requests"):
            await line.request("tools/call", CALL)
        kept[0].cancel()
        assert await line.request("ping") == {}


@pytest.mark.row("CL-03")
async def test_closing_settles_everything_and_ends_the_wire() -> None:
    async with playing() as (line, stage):
        stage.answers["tools/call"] = SILENCE
        pending = [line.begin("tools/call", CALL) for _ in range(5)]
        await stage.wire.hears("tools/call", 5)
        await line.close()
        for each in pending:
            with pytest.raises(ClientClosed):
                await each.result()
        assert stage.wire.ended
        assert line.pid is None
        with pytest.raises(ClientClosed):
            await line.ready()
        with pytest.raises(ClientClosed):
            await line.notify("notifications/anything")


async def test_a_wire_that_does_not_end_is_killed_after_its_grace() -> None:
    async with playing(close_grace=2.0) as (line, stage):
        stage.hanging = True
        began = asyncio.get_running_loop().time()
        await line.close()
        assert asyncio.get_running_loop().time() - began == pytest.approx(2.0, abs=0.1)
        assert current_node().process(stage.wire.pid) is None
        assert line.status.phase is Phase.CLOSED


@pytest.mark.row("CL-25")
async def test_notifications_are_sent() -> None:
    async with playing() as (line, stage):
        await line.notify("notifications/roots/list_changed")
        await line.notify("own/thing", {"a": 1})
        assert stage.notes("notifications/roots/list_changed") == [{}]
        assert stage.notes("own/thing") == [{"a": 1}]


async def test_a_settled_request_tells_who_asked_to_be_told() -> None:
    async with playing() as (line, stage):
        told: list[Any] = []
        stage.answers["tools/call"] = After(1.0, {"content": []})
        line.begin("tools/call", CALL).when_settled(lambda result, error: told.append((result, error)))
        pending = line.begin("tools/call", CALL)
        pending.when_settled(lambda result, error: told.append((result, type(error))))
        pending.cancel()
        await asyncio.sleep(2)
        assert told == [(None, RequestCancelled), ({"content": []}, None)]
        await phase(line, Phase.READY)


@pytest.mark.row("CL-26")
@pytest.mark.parametrize("kind", ["an answer", "a broken one"])
async def test_an_answer_to_what_was_not_asked_yet_settles_nothing_and_loses_nothing(kind: str) -> None:
    stage = Stage()
    stage.answers["initialize"] = lambda request: After(1.0, stage._welcome(request))
    async with playing(stage, ready=False) as (line, _):
        waiting = line.begin("ping", timeout=10.0)
        wire = await stage.opened(1)
        await wire.hears("initialize")
        forged = RemoteProtocolError(-32600, "not an answer")
        forged.response_to = waiting.id
        wire.say(InvalidMessage(forged) if kind == "a broken one" else JsonRpcResponse(waiting.id, {"forged": True}))
        assert await waiting.result() == {}
