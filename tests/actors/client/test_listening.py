"""Listening in the stateless era: one request for what all readers want, kept open, checked, and opened again after each loss."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.actors.client.errors import RequestTimeout, SubscriptionRefused, Unsupported
from greenroom.actors.client.interfaces import Phase, ServerNotification
from greenroom.actors.client.listening import ListenFailed, ListenIncomplete, ListenWish
from greenroom.protocol.errors import BadAnswer
from greenroom.protocol.jsonrpc import JsonRpcNotification, is_object
from greenroom.supervision import CrashReport
from greenroom.supervision.introspect import get_state
from greenroom.transports.client.errors import ConnectionLost

from .client_helpers import playing
from .fake_server import SILENCE, After
from .listen_script import (
    ACKNOWLEDGED,
    CANCELLED,
    EVERY_LIST,
    ID_KEY,
    LISTEN,
    PROMPTS,
    RESOURCES,
    STEADY,
    TASK,
    TOOLS,
    UPDATED,
    Hearing,
    ListenScript,
    now,
    reports_of,
    settled,
)
from .test_updates import take

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
