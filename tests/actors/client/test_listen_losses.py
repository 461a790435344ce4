"""How listens end: by the server, by an error, with their connection or their process; and how they are opened again."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from greenroom.actors.client.errors import SubscriptionRefused
from greenroom.actors.client.interfaces import Phase, ServerNotification
from greenroom.actors.client.listening import ListenFailed
from greenroom.protocol.errors import BadAnswer, ErrorCode, PeerError
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest, JsonRpcResponse
from greenroom.supervision import CrashReport, kill
from greenroom.supervision.introspect import get_state
from greenroom.transports.client.errors import ConnectionLost, HttpError

from .client_helpers import phase, playing
from .fake_server import SILENCE
from .listen_script import (
    CANCELLED,
    EVERY_LIST,
    ID_KEY,
    LISTEN,
    PROMPTS,
    STEADY,
    TOOLS,
    UPDATED,
    Hearing,
    ListenScript,
    listener,
    now,
    reports_of,
    settled,
)
from .test_updates import take

# --- the end of a listen


@pytest.mark.row("26-L6", "26-L7")
@pytest.mark.parametrize(
    "how", ["result", "cancelled", "cancelled, then the result", "result, then cancelled", "error"]
)
async def test_a_listen_that_the_server_ends_is_opened_again_after_a_pause_with_a_gap(how: str) -> None:
    script = ListenScript()
    async with playing(script.stage, backoff=STEADY) as (line, _), line.subscribe("a:1") as news:
        id = script.listens[0].id
        await asyncio.sleep(60)
        result = JsonRpcResponse(id, {"resultType": "complete", "_meta": {ID_KEY: id}})
        cancelled = JsonRpcNotification(CANCELLED, {"requestId": id})
        items: dict[str, JsonRpcResponse | JsonRpcNotification] = {"result": result, "cancelled": cancelled}
        before = now()
        if how == "error":
            script.wire.answer(script.listens[0], PeerError(-32603, "stopped"))
        else:
            script.wire.say(*(items["result" if "result" in part else "cancelled"] for part in how.split(", ")))
        again = await script.listen(2)
        assert now() - before == pytest.approx(1.0)
        script.change(UPDATED, id, uri="a:1")
        script.change(UPDATED, again, uri="a:1")
        assert [told.gap for told in await take(news, 2)] == [True, False]
        await settled(line)
        assert len(script.listens) == 2
        assert script.cancelled == []
        assert not news._queue


@pytest.mark.row("26-L7")
async def test_a_listen_that_ends_at_once_again_and_again_is_opened_ever_more_seldom() -> None:
    script = ListenScript()
    failed = reports_of(ListenFailed)
    script.answers = [{"resultType": "complete"}] * 100
    async with playing(script.stage, handler=Hearing(), backoff=STEADY) as (line, _):
        await asyncio.sleep(600)
        assert 20 <= len(script.listens) <= 26
        assert len(failed) == 1
        assert failed[0].retry_in == pytest.approx(1.0)
        assert "announces no changes" in str(failed[0])
        script.answers.clear()
        await script.listen(len(script.listens) + 1)
        await asyncio.sleep(10)
        before = now()
        script.wire.say(JsonRpcNotification(CANCELLED, {"requestId": script.listens[-1].id}))
        await script.listen(len(script.listens) + 1)
        assert now() - before == pytest.approx(1.0)  # it had lasted, so it has not failed
        assert line.status.generation == 1


async def test_one_listen_that_is_acknowledged_and_ended_at_once_is_not_opened_in_a_circle() -> None:
    script = ListenScript()

    def acknowledge_and_end(request: JsonRpcRequest) -> Any:
        script.acknowledge(request, request.params["notifications"])
        return {"resultType": "complete"}

    script.stage.answers[LISTEN] = acknowledge_and_end
    async with playing(script.stage, backoff=STEADY) as (line, _), line.listen(TOOLS) as news:
        await asyncio.sleep(600)
        assert 20 <= len(script.listens) <= 26
        assert [told.gap for told in await take(news, 1)] == [True]


@pytest.mark.parametrize(
    "error",
    [
        PeerError(ErrorCode.METHOD_NOT_FOUND, "no such method"),
        PeerError(ErrorCode.INVALID_PARAMS, "too many"),
        PeerError(ErrorCode.MISSING_REQUIRED_CLIENT_CAPABILITY, "tasks"),
        PeerError(ErrorCode.UNSUPPORTED_PROTOCOL_VERSION, "no"),
        PeerError(ErrorCode.INVALID_REQUEST, "no"),
        BadAnswer("no object"),
    ],
)
async def test_a_refusal_is_reported_once_told_to_subscribers_and_not_asked_again_until_the_connection_opens_anew(
    error: PeerError,
) -> None:
    script = ListenScript()
    failed = reports_of(ListenFailed)
    definite = error if not isinstance(error, BadAnswer) else {"resultType": "input_required"}
    script.answers = [definite] * 2
    async with playing(script.stage) as (line, _):
        with pytest.raises(PeerError) as refused:
            await line.subscribe("a:1").__aenter__()
        assert refused.value.code == error.code
        assert line.readers.by_uri == {}
        async with line.listen(TOOLS):
            await asyncio.sleep(600)
            assert len(script.listens) == (1 if error.code == ErrorCode.METHOD_NOT_FOUND else 2)
            assert len(failed) == 1
            script.answers.clear()
            await script.wire.break_off(ConnectionLost("cut"))
            await script.stage.opened(2)
            await script.listen()
            assert line.status.generation <= 2


async def test_a_resource_that_is_refused_ends_neither_the_other_subscriptions_nor_the_lists() -> None:
    script = ListenScript()
    async with playing(script.stage) as (line, _), line.subscribe("a:1") as one, line.listen(TOOLS) as lists:
        script.answers = [PeerError(ErrorCode.INVALID_PARAMS, "no such resource")]
        with pytest.raises(PeerError, match="no such resource"):
            await line.subscribe("a:bad").__aenter__()
        id = script.listens[1].id
        script.change(UPDATED, id, uri="a:1")
        assert await take(one, 1) == [ServerNotification(UPDATED, {"uri": "a:1"})]

        # After a reconnect the other one is gone, too: the lists are listened to without it.
        script.answers = [PeerError(ErrorCode.INVALID_PARAMS, "no such resource")]
        await script.wire.break_off(ConnectionLost("cut"))
        await script.stage.opened(2)
        id = await script.listen(2)
        assert script.wishes[-2:] == [
            {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]},
            {"toolsListChanged": True},
        ]
        script.change(TOOLS, id)
        assert [told.gap for told in await take(lists, 2)] == [True, False]
        assert "a:1" not in line.readers.granted


async def test_a_task_that_is_refused_ends_neither_subscriptions_nor_lists() -> None:
    script = ListenScript()
    failed = reports_of(ListenFailed)

    def listen(request: JsonRpcRequest) -> Any:
        wish = request.params["notifications"]
        if "taskIds" in wish:
            return PeerError(ErrorCode.INVALID_PARAMS, "no such task")
        script.acknowledge(request, wish)
        return SILENCE

    script.stage.answers[LISTEN] = listen
    async with playing(script.stage) as (line, _):
        line.readers.follow_task("gone")
        await settled(line)
        async with line.listen(TOOLS), line.subscribe("a:1"), line.subscribe("a:2") as news:
            id = script.listens[-1].id
            assert script.wishes[-1] == {"toolsListChanged": True, "resourceSubscriptions": ["a:1", "a:2"]}
            script.change(UPDATED, id, uri="a:2")
            assert await take(news, 1) == [ServerNotification(UPDATED, {"uri": "a:2"})]
            await asyncio.sleep(600)
            assert len(script.listens) == 7
            assert line.readers.granted == {"a:1", "a:2"}
        assert failed == []


async def test_an_internal_error_of_the_server_passes() -> None:
    script = ListenScript()
    script.answers = [PeerError(ErrorCode.INTERNAL_ERROR, "broken")] * 3
    failed = reports_of(ListenFailed)
    async with playing(script.stage, backoff=STEADY) as (line, _):
        before = now()
        async with line.subscribe("a:1"):
            assert now() - before == pytest.approx(1.0 + 2.0 + 4.0)
        assert len(failed) == 1


# --- losses


@pytest.mark.row("26-L7", "26-S3")
async def test_after_a_reconnect_the_listen_is_sent_first_and_the_gap_is_told_once() -> None:
    script, handler = ListenScript(), Hearing()
    async with (
        playing(script.stage, handler=handler) as (line, _),
        line.subscribe("a:1") as one,
        line.listen() as every,
    ):
        script.change(UPDATED, script.listens[-1].id, uri="a:1")
        await line.request("ping")
        await script.wire.break_off(ConnectionLost("cut"))
        await phase(line, Phase.READY, lambda status: status.generation == 2)
        await line.request("tools/list")
        requests = [each.method for each in script.wire.heard if isinstance(each, JsonRpcRequest)]
        assert requests == ["server/discover", LISTEN, "tools/list"]
        assert script.wishes[-1] == {**EVERY_LIST, "resourceSubscriptions": ["a:1"]}
        id = await script.listen()
        script.change(UPDATED, id, uri="a:1")
        for reader in (one, every):
            assert [told.gap for told in await take(reader, 3)] == [False, True, False]
            assert not reader._queue
        await settled(line)
        assert [method for method, _ in handler.heard] == [UPDATED, UPDATED]


async def test_readers_of_a_server_that_announces_nothing_get_the_gap_of_a_reconnect() -> None:
    script = ListenScript({})
    async with playing(script.stage) as (line, _), line.listen() as news:
        await script.wire.break_off(ConnectionLost("cut"))
        await phase(line, Phase.READY, lambda status: status.generation == 2)
        assert [told.gap for told in await take(news, 1)] == [True]
        assert script.listens == []


@pytest.mark.row("26-L7")
@pytest.mark.parametrize("reason", ["killed", "crashed"])
async def test_a_listening_process_that_dies_is_replaced_and_its_listen_closed(reason: str) -> None:
    script = ListenScript()
    crashes = reports_of(CrashReport)
    async with playing(script.stage, backoff=STEADY) as (line, _), line.subscribe("a:1") as news:
        first = await listener(line)
        before = now()
        if reason == "killed":
            kill(first.pid)
        else:
            first.crash(RuntimeError("a bug"))
        await script.wire.hears(CANCELLED)
        assert script.cancelled == [script.listens[0].id]
        id = await script.listen(2)
        assert 0 < now() - before < 5
        script.change(UPDATED, id, uri="a:1")
        assert [told.gap for told in await take(news, 2)] == [True, False]
        assert (await listener(line)).pid != first.pid
        assert len(crashes) == (reason == "crashed")
        assert line.status.generation == 1


async def test_a_listening_process_that_dies_at_once_is_started_ever_more_seldom() -> None:
    script = ListenScript()

    async with playing(script.stage, handler=Hearing(), backoff=STEADY) as (line, _):
        for count in range(1, 6):
            await script.listen(count)
            kill((await listener(line)).pid)
        await script.listen(6)
        assert now() > 8


@pytest.mark.row("26-L7")
async def test_the_connections_own_death_and_the_end_of_the_client_leave_no_reader_waiting() -> None:
    script = ListenScript()
    script.honours = lambda _: None
    async with playing(script.stage) as (line, _):
        entering = asyncio.ensure_future(line.listen(TOOLS).__aenter__())
        await script.listen()
        await line.close()
        reader = await entering
        assert await take(reader, 1) == []


async def test_readers_that_enter_during_a_pause_do_not_wait_and_get_the_gap() -> None:
    script = ListenScript()
    async with playing(script.stage, backoff=STEADY) as (line, _), line.listen(TOOLS):
        script.wire.say(JsonRpcNotification(CANCELLED, {"requestId": script.listens[0].id}))
        await line.request("ping")
        before = now()
        async with line.listen(TOOLS) as late:
            assert now() == before
            assert [told.gap for told in await take(late, 1)] == [True]
            assert now() - before == pytest.approx(1.0)


async def test_a_server_that_comes_back_with_a_handshake_is_subscribed_to_by_its_own_methods() -> None:
    script = ListenScript()
    async with playing(script.stage) as (line, played), line.subscribe("a:1") as news, line.listen(TOOLS):
        played.answers |= {
            "server/discover": PeerError(-32601, "no"),
            "resources/subscribe": {},
            LISTEN: PeerError(-32601, "no"),
        }
        await played.wire.break_off(ConnectionLost("cut"))
        await played.opened(2)
        request = await played.wire.hears("resources/subscribe")
        assert isinstance(request, JsonRpcRequest)
        assert request.params == {"uri": "a:1"}
        played.wire.say(JsonRpcNotification(UPDATED, {"uri": "a:1"}))
        assert [told.gap for told in await take(news, 2)] == [True, False]
        assert len(script.listens) == 2


@pytest.mark.row("26-L7")
@pytest.mark.parametrize("how", ["acknowledged", "opening"])
async def test_a_connection_that_opens_anew_listens_on_its_new_wire_and_closes_the_old_listen(
    how: str,
) -> None:
    script = ListenScript()
    acknowledging = script.honours
    script.stage.answers["tools/call"] = PeerError(ErrorCode.UNSUPPORTED_PROTOCOL_VERSION, "no")
    script.stage.answers["prompts/list"] = SILENCE
    if how == "opening":
        script.honours = lambda _: None
    handler = Hearing()
    async with playing(script.stage, handler=handler) as (line, played), line.listen("notifications/message") as news:
        old = await script.listen()
        await settled(line)
        script.honours = acknowledging
        _ = line.begin("prompts/list")  # keeps the old wire open
        with pytest.raises(PeerError, match="no"):
            await line.request("tools/call", {"name": "any"})
        new = await script.listen()
        assert len(played.wires) == 2
        assert new != old
        former = played.wires[0]
        await former.hears(CANCELLED)
        assert script.cancelled == [old]
        former.say(JsonRpcNotification(TOOLS, {"_meta": {ID_KEY: new}}))  # on the wrong wire
        script.change(TOOLS, old)  # of the wrong listen
        script.change(PROMPTS, new)
        await settled(line)
        assert [method for method, _ in handler.heard] == [PROMPTS]
        assert [told.gap for told in await take(news, 1)] == [True]
        assert not news._queue


async def test_a_connection_that_opens_anew_with_a_handshake_closes_its_listens_and_asks_for_each_resource() -> None:
    script = ListenScript()
    script.stage.answers |= {
        "tools/call": PeerError(ErrorCode.UNSUPPORTED_PROTOCOL_VERSION, "no"),
        "prompts/list": SILENCE,
        "resources/subscribe": {},
    }
    async with playing(script.stage, handler=Hearing()) as (line, played), line.subscribe("a:1"):
        old = script.listens[-1].id
        script.honours = lambda _: None
        entering = asyncio.ensure_future(line.subscribe("a:2").__aenter__())
        coming = await script.listen(len(script.listens) + 1)
        await played.wire.hears(CANCELLED)
        _ = line.begin("prompts/list")  # keeps the old wire open
        played.answers["server/discover"] = PeerError(ErrorCode.METHOD_NOT_FOUND, "no")
        _ = line.begin("tools/call", {"name": "any"})
        await (await played.opened(2)).hears("resources/subscribe", 2)
        await entering
        await settled(line)
        assert sorted(each.params["uri"] for each in played.asked("resources/subscribe")) == ["a:1", "a:2"]
        assert script.cancelled[1:] == [coming, old]


async def test_a_second_failure_of_a_listen_after_a_reconnect_is_reported_again() -> None:
    script = ListenScript()
    failed = reports_of(ListenFailed)
    script.stage.answers[LISTEN] = PeerError(ErrorCode.METHOD_NOT_FOUND, "no")
    async with playing(script.stage, handler=Hearing()) as (line, _):
        await settled(line)
        await script.wire.break_off(ConnectionLost("cut"))
        await phase(line, Phase.READY, lambda status: status.generation == 2)
        await settled(line)
        assert len(script.listens) == len(failed) == 2


async def test_a_resource_that_is_left_out_after_a_reconnect_is_refused_to_its_next_reader() -> None:
    script = ListenScript()
    changes: list[float] = []
    async with playing(script.stage, ready=False) as (line, _):
        line.tools_changed = lambda: changes.append(now())
        async with line.subscribe("a:1") as news:
            script.honours = lambda wish: {"toolsListChanged": True, "resourceSubscriptions": []} if wish else None
            await script.wire.break_off(ConnectionLost("cut"))
            assert [told.gap for told in await take(news, 1)] == [True]
            assert len(changes) == 1
            with pytest.raises(SubscriptionRefused):
                await line.subscribe("a:1").__aenter__()


async def test_each_gap_is_told_at_the_first_failure_and_again_at_the_acknowledgement() -> None:
    script = ListenScript()
    async with playing(script.stage, backoff=STEADY) as (line, _), line.subscribe("a:1") as news:
        script.answers = [PeerError(ErrorCode.INTERNAL_ERROR, "broken")] * 2
        script.wire.say(JsonRpcNotification(CANCELLED, {"requestId": script.listens[0].id}))
        before = now()
        assert [told.gap for told in await take(news, 1)] == [True]
        assert now() - before == pytest.approx(1.0)
        assert [told.gap for told in await take(news, 1)] == [True]
        assert now() - before == pytest.approx(7.0)
        assert len(script.listens) == 4


@pytest.mark.parametrize(("asked", "seconds"), [(20.0, 20.0), (1e9, 60.0)])
async def test_a_listen_is_not_sent_again_before_the_server_wants_it(asked: float, seconds: float) -> None:
    script = ListenScript()
    script.answers = [HttpError(429, "", "stage", asked)]
    async with playing(script.stage, backoff=STEADY, handler=Hearing()) as (_, played):
        before = now()
        await played.wire.hears(LISTEN, 2)
        assert now() - before == pytest.approx(seconds)


async def test_few_of_many_refused_wishes_are_remembered() -> None:
    script = ListenScript()
    script.stage.answers[LISTEN] = PeerError(ErrorCode.INVALID_PARAMS, "no such resource")
    async with playing(script.stage) as (line, _):
        for number in range(20):
            with pytest.raises(PeerError):
                await line.subscribe(f"a:{number}").__aenter__()
        assert len((await get_state(line.pid))["listening"]._refused) == 8


async def test_a_third_listen_counts_from_what_was_told_before_it() -> None:
    script = ListenScript()
    async with playing(script.stage) as (line, _), line.subscribe("a:1") as news, line.subscribe("a:2"):
        first, second = (each.id for each in script.listens)
        script.change(UPDATED, first, uri="a:1")
        script.change(UPDATED, second, uri="a:1")
        async with line.subscribe("a:3"):
            before = now()
            script.change(UPDATED, script.listens[2].id, uri="a:1")
            assert [told.gap for told in await take(news, 2)] == [False, False]
            assert now() == before


async def test_readers_that_all_leave_close_the_former_listens_at_once() -> None:
    script = ListenScript()
    async with playing(script.stage) as (line, _):
        before = now()
        async with AsyncExitStack() as readers:
            for uri in ("a:1", "a:2"):
                await readers.enter_async_context(line.subscribe(uri))
            readers.pop_all()
        line.readers.by_uri.clear()
        line.readers.wish_changed()
        await settled(line)
        assert now() == before
        assert sorted(script.cancelled) == [each.id for each in script.listens]


async def test_a_listening_process_that_dies_idle_or_while_it_waits_is_replaced_after_a_pause_and_blames_no_server() -> (
    None
):
    script = ListenScript()
    failed = reports_of(ListenFailed)
    async with playing(script.stage, backoff=STEADY) as (line, _):
        async with line.listen(TOOLS):
            pass
        kill((await listener(line)).pid)
        await asyncio.sleep(0.5)
        assert await listener(line) is None
        await asyncio.sleep(1.0)
        assert await listener(line) is not None
        script.honours = lambda _: None
        entering = asyncio.ensure_future(line.listen(TOOLS).__aenter__())
        await script.listen(2)
        kill((await listener(line)).pid)
        await entering
        await script.listen(3)
        assert failed == []
