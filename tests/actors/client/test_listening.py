"""Listening in the stateless era: one request for what all readers want, kept open, checked, and opened again after each loss."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.actors.client.client_handler import ClientHandler
from greenroom.actors.client.errors import RequestTimeout, SubscriptionRefused, Unsupported
from greenroom.actors.client.interfaces import Phase, ServerNotification
from greenroom.actors.client.listening import ListenFailed, ListenIncomplete, ListenWish
from greenroom.protocol.errors import BadAnswer, ErrorCode, PeerError
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest, JsonRpcResponse, is_object
from greenroom.supervision import Backoff, CrashReport, Report, current_node, kill
from greenroom.supervision.introspect import get_state
from greenroom.transports.client.errors import ConnectionLost

from .client_helpers import phase, playing
from .fake_server import SILENCE, After
from .listen_script import (
    ACKNOWLEDGED,
    CANCELLED,
    ID_KEY,
    LISTEN,
    PROMPTS,
    RESOURCES,
    TASK,
    TOOLS,
    UPDATED,
    ListenScript,
)
from .test_updates import take

if TYPE_CHECKING:
    from greenroom.actors.client.connection_line import ConnectionLine
    from greenroom.supervision import Process

EVERY_LIST = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
STEADY = Backoff(first=1.0, factor=2.0, longest=30.0, jitter=0.0)


class Hearing(ClientHandler):
    """A handler that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []

    def handle_notification(self, method: str, params: dict[str, Any]) -> None:
        self.heard.append((method, params))


def reports_of(kind: type[Report]) -> list[Any]:
    """The reports of that kind from now on."""
    found: list[Any] = []

    def note(report: Report) -> None:
        if isinstance(report, kind):
            found.append(report)

    current_node().reports.subscribe(note)
    return found


def now() -> float:
    return asyncio.get_running_loop().time()


async def listener(line: ConnectionLine) -> Process:
    """The process that listens."""
    process: Process = (await get_state(line.pid))["listening"].process
    return process


async def settled(line: ConnectionLine) -> None:
    """Wait until what the server has said so far is processed, also by the process that listens."""
    await line.request("ping")
    await asyncio.sleep(0)
    await line.request("ping")


# --- what is listened to


@pytest.mark.row("26-L1")
async def test_one_listen_asks_for_what_all_readers_want() -> None:
    script = ListenScript()
    async with playing(script.stage) as (line, _), AsyncExitStack() as readers:
        assert script.wishes == []
        wanted = (
            line.listen(TOOLS),
            line.listen("notifications/message", PROMPTS),
            line.subscribe("a:2"),
            line.subscribe("a:1"),
        )
        await asyncio.gather(*(readers.enter_async_context(each) for each in wanted))
        line.readers.follow_task("t1")
        await script.listen(2)
        wish = {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourceSubscriptions": ["a:1", "a:2"],
        }
        assert script.wishes == [wish, {**wish, "taskIds": ["t1"]}]


@pytest.mark.row("26-L1")
async def test_readers_of_all_notifications_and_handlers_want_every_list() -> None:
    for handler in (Hearing(), None):
        script = ListenScript()
        async with playing(script.stage, handler=handler) as (line, _):
            if handler is None:
                async with line.listen():
                    assert script.wishes == [EVERY_LIST]
            else:
                await script.listen()
                assert script.wishes == [EVERY_LIST]


async def test_a_client_that_keeps_schemas_listens_to_the_list_of_tools() -> None:
    script = ListenScript()
    changes: list[float] = []
    async with playing(script.stage, ready=False) as (line, _):
        line.tools_changed = lambda: changes.append(now())
        await line.ready()
        id = await script.listen()
        assert script.wishes == [{"toolsListChanged": True}]
        script.change(TOOLS, id)
        await line.request("ping")
        assert len(changes) == 1


@pytest.mark.row("26-L1")
async def test_what_the_server_does_not_declare_is_not_asked_for() -> None:
    script = ListenScript({"tools": {"listChanged": True}, "resources": {}, "prompts": {"listChanged": False}})
    async with playing(script.stage) as (line, _):
        line.readers.follow_task("t1")
        async with line.listen(PROMPTS, RESOURCES):
            with pytest.raises(Unsupported, match=r"resources\.subscribe"):
                await line.subscribe("a:1").__aenter__()
            await settled(line)
            assert script.wishes == []
            async with line.listen():
                assert script.wishes == [{"toolsListChanged": True}]


async def test_a_listen_is_the_first_request_of_a_connection_also_before_those_that_waited() -> None:
    script = ListenScript()
    async with playing(script.stage, handler=Hearing(), ready=False) as (line, _):
        await line.request("tools/list")
        assert [request.method for request in script.stage.requests] == ["server/discover", LISTEN, "tools/list"]


@pytest.mark.row("26-M20", "26-L5")
async def test_changes_of_one_turn_are_one_listen_and_nothing_but_methods_of_the_revision_is_sent() -> None:
    script = ListenScript()
    async with playing(script.stage) as (line, _):
        async with AsyncExitStack() as readers:
            many = [line.subscribe(f"a:{number}") for number in range(20)]
            await asyncio.gather(*(readers.enter_async_context(each) for each in many))
            assert len(script.listens) == 1
        await script.wire.hears(CANCELLED)
        sent = {getattr(each, "method", "") for each in script.wire.heard}
        assert sent <= {"server/discover", LISTEN, CANCELLED}


async def test_a_full_table_of_requests_has_room_for_a_listen_and_a_listen_takes_no_room() -> None:
    script = ListenScript()
    script.stage.answers["tools/call"] = SILENCE
    async with playing(script.stage, max_pending=1) as (line, played):
        under_way = line.begin("tools/call", {"name": "slow"})
        await played.wire.hears("tools/call")
        async with line.listen(TOOLS):
            assert script.wishes == [{"toolsListChanged": True}]
            under_way.cancel()
            assert (await line.request("tools/list"))["tools"] == []


# --- acknowledgements


@pytest.mark.row("26-L7")
async def test_subscribers_and_readers_wait_for_the_acknowledgement() -> None:
    script = ListenScript()
    script.honours = lambda _: None
    async with playing(script.stage) as (line, _):
        entering = [
            asyncio.ensure_future(line.subscribe("a:1").__aenter__()),
            asyncio.ensure_future(line.listen(TOOLS).__aenter__()),
        ]
        id = await script.listen()
        await settled(line)
        assert not any(each.done() for each in entering)
        script.change(ACKNOWLEDGED, id, notifications=script.wishes[0])
        one, other = await asyncio.gather(*entering)
        script.change(UPDATED, id, uri="a:1")
        script.change(TOOLS, id)
        assert await take(one, 1) == [ServerNotification(UPDATED, {"uri": "a:1"})]
        assert await take(other, 1) == [ServerNotification(TOOLS, {})]


@pytest.mark.row("26-L7")
async def test_what_the_acknowledgement_leaves_out_is_reported_once_and_refused_to_its_subscriber() -> None:
    script = ListenScript()
    script.honours = lambda wish: {name: value for name, value in wish.items() if name == "toolsListChanged"}
    incomplete = reports_of(ListenIncomplete)
    async with playing(script.stage) as (line, _), line.listen(TOOLS, PROMPTS) as news:
        with pytest.raises(SubscriptionRefused, match="a:1"):
            await line.subscribe("a:1").__aenter__()
        assert line.readers.by_uri == {}
        await settled(line)
        script.change(TOOLS, await script.listen(2))
        assert await take(news, 1) == [ServerNotification(TOOLS, {})]
        assert [report.missing for report in incomplete] == [(PROMPTS,), ("a:1",)]
        await script.wire.break_off(ConnectionLost("cut"))
        await script.stage.opened(2)
        await script.listen()
        await settled(line)
        assert "prompts" in str(incomplete[-1])
        assert len(incomplete) == 3
        assert len(script.listens) == 3


async def test_a_listen_that_is_not_acknowledged_in_time_is_withdrawn_and_opened_again() -> None:
    script = ListenScript()
    failed = reports_of(ListenFailed)
    acknowledging = script.honours
    script.honours = lambda _: None
    async with playing(script.stage, request_timeout=10.0, backoff=STEADY) as (line, _):
        before = now()
        async with line.listen(TOOLS) as news:
            assert now() - before == pytest.approx(10.0)
            await script.wire.hears(CANCELLED)
            assert script.cancelled == [script.listens[0].id]
            assert [type(report.error) for report in failed] == [RequestTimeout]
            script.honours = acknowledging
            id = await script.listen(2)
            assert now() - before == pytest.approx(11.0)
            script.change(TOOLS, id)
            assert await take(news, 1) == [ServerNotification(TOOLS, {})]


@pytest.mark.row("26-L4")
async def test_an_acknowledgement_with_the_id_as_a_text_is_a_bad_answer() -> None:
    script = ListenScript()
    script.honours = lambda _: None
    failed = reports_of(ListenFailed)
    async with playing(script.stage) as (line, _):
        entering = asyncio.ensure_future(line.subscribe("a:1").__aenter__())
        id = await script.listen()
        script.change(ACKNOWLEDGED, str(id), notifications=script.wishes[0])
        with pytest.raises(BadAnswer, match="type"):
            await entering
        assert script.wire.forgotten == [id]
        assert [report.retry_in for report in failed] == [None]


# --- messages


@pytest.mark.row("26-L4", "26-L5", "26-M20")
async def test_only_messages_with_the_exact_id_and_of_kinds_that_were_asked_for_count() -> None:
    script, handler = ListenScript(), Hearing()
    async with playing(script.stage, handler=handler) as (line, _), line.listen() as news, line.subscribe("a:1"):
        id = script.listens[-1].id
        assert isinstance(id, int)
        await script.wire.hears(CANCELLED)
        for wrong in (str(id), float(id), True, id + 1, script.listens[0].id, None, [id], {"id": id}):
            script.change(TOOLS, wrong)
        script.change("notifications/progress", id, progressToken=1, progress=1)
        script.change("notifications/message", id, level="error", data="no")
        script.change(TASK, id, taskId="foreign")
        script.change(ACKNOWLEDGED, id, notifications={})
        script.wire.say(JsonRpcNotification(TOOLS, {}), JsonRpcNotification(UPDATED, {"uri": "a:1"}))
        script.wire.say(JsonRpcNotification(TOOLS, {"_meta": {ID_KEY: id, "own": 1}}))
        script.change(UPDATED, id, uri="a:1/part")
        script.wire.say(JsonRpcNotification("notifications/message", {"level": "info", "data": 1}))
        expected = [
            (TOOLS, {"_meta": {"own": 1}}),
            (UPDATED, {"uri": "a:1/part"}),
            ("notifications/message", {"level": "info", "data": 1}),
        ]
        assert [(told.method, told.params) for told in await take(news, 3)] == expected
        await settled(line)
        assert handler.heard == expected


@pytest.mark.row("26-S4", "26-L6")
async def test_a_server_cancels_nothing_but_listens() -> None:
    script = ListenScript()
    script.stage.answers["tools/call"] = After(1.0, {"content": []})
    async with playing(script.stage, handler=Hearing(), backoff=STEADY) as (line, _):
        call = line.begin("tools/call", {"name": "slow"})
        await script.wire.hears("tools/call")
        for id in (call.id, str(script.listens[0].id), None, [1], True):
            script.wire.say(JsonRpcNotification(CANCELLED, {"requestId": id}))
        assert await call == {"content": []}
        assert len(script.listens) == 1
        script.wire.say(JsonRpcNotification(CANCELLED, {"requestId": script.listens[0].id}))
        await script.listen(2)
        assert script.cancelled == []


@pytest.mark.row("26-L5")
async def test_a_changed_wish_opens_the_new_listen_before_the_old_one_is_closed_and_tells_nothing_twice() -> None:
    script = ListenScript()
    acknowledging = script.honours
    async with playing(script.stage) as (line, _), line.listen(TOOLS) as news:
        old = script.listens[0].id
        script.honours = lambda _: None
        entering = asyncio.ensure_future(line.subscribe("a:1").__aenter__())
        new = await script.listen(2)
        assert script.cancelled == []
        script.change(TOOLS, old)  # the old one speaks until the new one is acknowledged
        script.change(TOOLS, new)
        assert await take(news, 1) == [ServerNotification(TOOLS, {})]
        script.change(ACKNOWLEDGED, new, notifications=script.wishes[1])
        script.change(TOOLS, old)
        script.change(TOOLS, new)
        script.change(UPDATED, new, uri="a:1")
        assert await take(news, 1) == [ServerNotification(TOOLS, {})]
        assert await take(await entering, 1) == [ServerNotification(UPDATED, {"uri": "a:1"})]
        await script.wire.hears(CANCELLED)
        assert script.cancelled == [old]
        script.honours = acknowledging
        async with line.listen(PROMPTS) as more:
            script.change(PROMPTS, script.listens[-1].id)
            assert await take(more, 1) == [ServerNotification(PROMPTS, {})]
        await settled(line)
        assert await line.request("ping") is not None
        assert not news._queue


@pytest.mark.row("26-L5", "26-L7")
async def test_what_a_former_listen_announces_late_is_told_and_what_both_announce_is_told_once() -> None:
    script = ListenScript()
    async with playing(script.stage) as (line, _), line.subscribe("a:1") as one, line.subscribe("a:2") as other:
        old, new = (each.id for each in script.listens)
        for uri, said in {"a:1": (old,), "a:2": (new, new)}.items():
            for id in said:
                script.change(UPDATED, id, uri=uri)
        script.change(UPDATED, new, uri="a:1")  # the same as on the other one, or the next: that comes there as well
        script.change(UPDATED, old, uri="a:1")
        script.change(UPDATED, new, uri="a:1")
        await line.request("ping")
        assert len(one._queue) == 2
        assert len(other._queue) == 2
        before = now()
        await script.wire.hears(CANCELLED)
        assert now() - before == pytest.approx(1.0)
        assert script.cancelled == [old]
        for id in (old, new, new):
            script.change(UPDATED, id, uri="a:1")
        assert [told.gap for told in await take(one, 4)] == [False] * 4
        await line.request("ping")
        assert not one._queue


async def test_updates_of_a_resource_end_when_its_last_reader_leaves() -> None:
    script, handler = ListenScript(), Hearing()
    async with playing(script.stage, handler=handler) as (line, _):
        async with line.subscribe("a:1"):
            id = script.listens[-1].id
            script.change(UPDATED, id, uri="a:1")
            await settled(line)
        script.change(UPDATED, id, uri="a:1")
        await script.listen(3)
        for each in script.listens:
            script.change(UPDATED, each.id, uri="a:1")
        await settled(line)
        assert [method for method, _ in handler.heard] == [UPDATED]


async def test_a_former_listen_that_has_announced_more_leaves_a_gap_and_so_does_one_that_breaks() -> None:
    script = ListenScript()
    async with playing(script.stage) as (line, _), line.subscribe("a:1") as one, line.subscribe("a:2") as other:
        old, new = (each.id for each in script.listens)
        script.change(UPDATED, old, uri="a:1")
        script.change(UPDATED, old, uri="a:1")
        script.change(UPDATED, new, uri="a:1")
        await script.wire.hears(CANCELLED)
        await line.request("ping")
        assert [told.gap for told in await take(one, 3)] == [False, False, True]
        assert [told.gap for told in await take(other, 1)] == [True]

        async with line.subscribe("a:3"):
            script.wire.answer(script.listens[1], ConnectionLost("cut"))
            await line.request("ping")
            assert [told.gap for told in await take(one, 1)] == [True]
            assert len(script.listens) == 3


async def test_former_listens_are_bounded_in_number_and_in_what_they_may_announce() -> None:
    script = ListenScript()
    async with playing(script.stage) as (line, _), AsyncExitStack() as readers:
        for number in range(10):
            await readers.enter_async_context(line.subscribe(f"a:{number}"))
        await line.request("ping")
        before = now()
        assert script.cancelled == [each.id for each in script.listens[:5]]
        for number in range(3000):
            script.change(UPDATED, script.listens[-1].id, uri=f"a:{number}")
        await line.request("ping")
        await line.request("ping")
        assert now() == before
        assert script.cancelled == [each.id for each in script.listens[:9]]
        listening = (await get_state(line.pid))["listening"]
        assert (listening._told, listening.current.announced) == ({}, {})


@pytest.mark.row("26-L6")
async def test_after_unsubscribing_nothing_is_told_of_the_resource_though_the_listen_is_heard_a_moment_longer() -> None:
    handler = Hearing()
    script = ListenScript()
    async with playing(script.stage, handler=handler) as (line, _), line.subscribe("a:1"):
        async with line.subscribe("a:2"):
            both = script.listens[-1].id
        script.change(UPDATED, both, uri="a:2")
        script.change(UPDATED, both, uri="a:2/part")  # a part of some resource, which may be the other one
        script.change(UPDATED, both, uri="a:1")
        await line.request("ping")
        await settled(line)
        assert [params["uri"] for _, params in handler.heard] == ["a:2/part", "a:1"]


async def test_a_client_that_wants_nothing_more_cancels_its_listen() -> None:
    script = ListenScript()
    async with playing(script.stage) as (line, _):
        async with line.subscribe("a:1"), line.subscribe("a:1"):
            assert len(script.listens) == 1
        await script.wire.hears(CANCELLED)
        assert script.cancelled == [script.listens[0].id]
        async with line.subscribe("a:1"):
            assert len(script.listens) == 2


async def test_followed_tasks_are_listened_to_until_the_last_follower_leaves() -> None:
    script = ListenScript()
    async with playing(script.stage) as (line, _), line.listen(TASK) as news:
        line.readers.follow_task("t1")
        line.readers.follow_task("t1")
        id = await script.listen()
        script.change(TASK, id, taskId="t2")
        script.change(TASK, id, taskId="t1", status="working")
        assert await take(news, 1) == [ServerNotification(TASK, {"taskId": "t1", "status": "working"})]
        line.readers.unfollow_task("t1")
        await settled(line)
        assert script.cancelled == []
        line.readers.unfollow_task("t1")
        await script.wire.hears(CANCELLED)
        assert script.wishes == [{"taskIds": ["t1"]}]


async def test_tasks_that_have_ended_are_no_reason_for_another_listen() -> None:
    script = ListenScript()
    async with playing(script.stage) as (line, _), line.listen(TOOLS):
        for id in ("t1", "t2"):
            line.readers.follow_task(id)
        await settled(line)
        for id in ("t1", "t2"):
            line.readers.unfollow_task(id)
        await settled(line)
        assert script.wishes[1:] == [{"toolsListChanged": True, "taskIds": ["t1", "t2"]}]
        line.readers.follow_task("t3")
        await script.listen(3)
        assert script.wishes[2] == {"toolsListChanged": True, "taskIds": ["t3"]}


async def test_news_without_end_fill_no_more_than_a_readers_queue() -> None:
    script = ListenScript()
    async with playing(script.stage, max_updates=16) as (line, _), line.listen(TOOLS) as news:
        id = script.listens[0].id
        for _ in range(5000):
            script.change(TOOLS, id)
        await line.request("ping")
        assert len(news._queue) == 16
        assert [told.gap for told in await take(news, 16)] == [True] + [False] * 15


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


# --- hostile servers

_ids = st.one_of(st.integers(-3, 12), st.booleans(), st.text(max_size=3), st.none(), st.floats(), st.just([1]))
_junk: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)),
    max_leaves=8,
)
_filters: st.SearchStrategy[Any] = st.one_of(
    _junk,
    st.fixed_dictionaries(
        {},
        optional={
            "toolsListChanged": _junk,
            "promptsListChanged": _junk,
            "resourceSubscriptions": _junk,
            "taskIds": _junk,
        },
    ),
)


def _tagged(method: str, id: object, members: dict[str, Any]) -> JsonRpcNotification:
    return JsonRpcNotification(method, {**members, "_meta": {ID_KEY: id}})


def _with_meta(method: str, meta: object) -> JsonRpcNotification:
    return JsonRpcNotification(method, {"_meta": meta})


_notifications = st.builds(
    _tagged,
    st.sampled_from([TOOLS, PROMPTS, RESOURCES, UPDATED, TASK, ACKNOWLEDGED, CANCELLED, "notifications/progress"]),
    _ids,
    st.fixed_dictionaries({}, optional={"uri": _junk, "taskId": _junk, "notifications": _filters, "requestId": _ids}),
)
_untagged = st.builds(
    _with_meta,
    st.sampled_from([TOOLS, UPDATED, ACKNOWLEDGED, CANCELLED]),
    _junk,
)


@given(st.lists(st.one_of(_notifications, _untagged), max_size=20))
@settings(max_examples=examples(100), deadline=None)
async def test_no_message_of_a_server_crashes_the_connection_or_makes_a_change_of_what_was_not_asked_for(
    messages: list[JsonRpcNotification],
) -> None:
    script = ListenScript()
    crashes = reports_of(CrashReport)
    async with playing(script.stage, backoff=STEADY) as (line, _), line.listen(TOOLS) as news:
        script.wire.say(*messages)
        await settled(line)
        mine = script.listens[0].id
        asked = [
            each
            for each in messages
            if each.method == TOOLS and type(each.meta.get(ID_KEY)) is int and each.meta[ID_KEY] == mine
        ]
        told = [each for each in news._queue if not each.gap]
        assert {each.method for each in told} <= {TOOLS}
        assert len(told) <= len(asked)
        if not any(each.method == CANCELLED for each in messages):
            assert len(told) == len(asked)
            assert len(script.listens) == 1
        assert crashes == []
        assert line.status.phase is Phase.READY


@given(_filters)
@settings(max_examples=examples(300), deadline=None)
def test_what_is_honoured_is_a_part_of_the_wish(acknowledged: Any) -> None:
    wish = ListenWish(frozenset({TOOLS, PROMPTS}), frozenset({"a", "0"}), frozenset({"t"}))
    honoured = wish.honoured_part(acknowledged)
    assert honoured.is_within(wish)
    assert (TOOLS in honoured.lists) == (is_object(acknowledged) and acknowledged.get("toolsListChanged") is True)
    assert wish.honoured_part(wish.to_wire()) == wish
