"""How many tasks there may be, how long they last, and when they are forgotten."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from greenroom import Settings
from greenroom.actors.settings import BadSetting
from greenroom.actors.task_store import MemoryTaskStore
from greenroom.transports.interfaces import Peer

from .stateless_client import StatelessClient, ended
from .task_records import ended as ended_record
from .task_records import record
from .task_server import reply_to, result, running_task_server, start_task, status, until

HOUR = 3600


@pytest.mark.row("TF-17")
async def test_a_task_is_forgotten_an_hour_after_its_end_and_never_while_it_works() -> None:
    async with running_task_server(Settings(session_idle=None)) as stage:
        client = await stage.player()
        ended, works = await start_task(client, "only"), await start_task(client, "wait", gate="a")
        await result(client, ended)
        assert (await reply_to(client, "tasks/get", taskId=ended))["result"]["ttl"] == HOUR * 1000
        await asyncio.sleep(HOUR - 1)
        assert await status(client, ended) == "completed"
        await asyncio.sleep(2)
        assert (await reply_to(client, "tasks/get", taskId=ended))["error"]["code"] == -32602
        listed = (await reply_to(client, "tasks/list"))["result"]["tasks"]
        assert [each["taskId"] for each in listed] == [works]
        await asyncio.sleep(61)
        assert stage.server.tasks.get(ended) is None  # and its place is free
        await asyncio.sleep(10 * HOUR)
        assert await status(client, works) == "working"
        stage.gate("a").set()
        await result(client, works)
        await asyncio.sleep(HOUR - 1)
        assert await status(client, works) == "completed"


@pytest.mark.row("TF-17")
async def test_a_peer_may_wish_for_another_time_within_bounds() -> None:
    async with running_task_server(Settings(task_ttl_max=7200, session_idle=None)) as stage:
        client = await stage.player()
        short, long, none = (
            await start_task(client, "only", 5000),
            await start_task(client, "only", 10**9),
            await start_task(client, "only", 0),
        )
        for id in (short, long):
            await result(client, id)
        ttls = [(await reply_to(client, "tasks/get", taskId=id))["result"]["ttl"] for id in (short, long)]
        assert ttls == [5000, 7_200_000]
        assert (await reply_to(client, "tasks/get", taskId=none))["error"]["code"] == -32602
        await asyncio.sleep(5.1)
        assert (await reply_to(client, "tasks/get", taskId=short))["error"]["code"] == -32602
        await asyncio.sleep(7190)
        assert await status(client, long) == "completed"
        await asyncio.sleep(10)
        assert (await reply_to(client, "tasks/get", taskId=long))["error"]["code"] == -32602


async def test_a_wait_for_a_task_with_ttl_zero_gets_its_result() -> None:
    async with running_task_server() as stage:
        client = await stage.player()
        id = await start_task(client, "wait", 0, gate="a")
        waiting = asyncio.create_task(result(client, id))
        await asyncio.sleep(1)
        stage.gate("a").set()
        assert (await waiting)["result"]["isError"] is False


async def test_a_task_may_not_take_longer_than_a_task_may() -> None:
    async with running_task_server(Settings(task_lifetime=100)) as stage:
        client = await stage.probe()
        id = await start_task(client, "wait", gate="a")
        waiting = asyncio.create_task(result(client, id))
        await asyncio.sleep(99)
        assert not waiting.done()
        assert (await waiting)["result"]["content"][0]["text"] == "Tool 'wait' timed out after 100 s (task_lifetime)"
        await until(lambda: stage.seen == ["a cancelled"])


@pytest.mark.parametrize("principal", [None, "ann"])
async def test_so_many_unfinished_tasks_an_owner_may_have_and_others_are_not_touched(principal: str | None) -> None:
    async with running_task_server(Settings(max_tasks=3)) as stage:
        peer = Peer("test", principal=principal)
        client = await stage.player(peer)
        again = client if principal is None else await stage.player(peer)
        ids = [await start_task(client, "wait", gate="a") for _ in range(3)]
        refused = await reply_to(again, "tools/call", name="wait", arguments={"gate": "a"}, task={})
        assert refused["error"]["code"] == -32603
        assert "at most 3" in refused["error"]["message"]
        assert refused["error"]["data"] == {"reason": "too_many_tasks", "maybe_done": False}
        other = await stage.player(Peer("test", principal=None if principal is None else "bob"))
        await start_task(other, "wait", gate="a")
        await reply_to(client, "tasks/cancel", taskId=ids[0])
        await start_task(again, "wait", gate="a")


async def test_a_limited_number_of_ended_tasks_is_kept_the_newest() -> None:
    async with running_task_server(Settings(max_tasks_kept=3)) as stage:
        client = await stage.probe()
        works = await start_task(client, "wait", gate="a")
        ids: list[str] = []
        for _ in range(6):
            ids.append(await start_task(client, "only"))
            await result(client, ids[-1])
            await asyncio.sleep(0.01)
        assert [each.id for each in stage.server.tasks.all()] == [works, *ids[3:]]


async def test_of_what_they_hold_so_many_bytes_are_kept() -> None:
    async with running_task_server(Settings(task_bytes=5000)) as stage:

        @stage.server.tool(task_support="optional")
        async def big(size: int) -> str:
            return "x" * size

        client = await stage.probe()
        ids: list[str] = []
        for size in (2000, 2000, 2000, 9000):
            ids.append(await start_task(client, "big", size=size))
            await result(client, ids[-1])
            await asyncio.sleep(0.01)
            assert sum(each.size for each in stage.server.tasks.all()) < 5000 or len(stage.server.tasks.all()) == 1
        assert [each.id for each in stage.server.tasks.all()] == ids[3:]


async def test_calls_that_wait_for_tasks_count_as_in_flight() -> None:
    async with running_task_server(Settings(max_in_flight=4)) as stage:
        client = await stage.probe()
        id = await start_task(client, "wait", gate="a")
        for _ in range(4):
            await client.ask("tasks/result", {"taskId": id})
        refused = await reply_to(client, "tasks/result", taskId=id)
        assert "Too many requests" in refused["error"]["message"]
        assert await status(client, id) == "working"  # looking is no request that is under way


@pytest.mark.parametrize(
    "name", ["max_tasks", "max_tasks_kept", "task_bytes", "task_ttl", "task_lifetime", "task_poll"]
)
def test_limits_are_numbers(name: str) -> None:
    wrong: dict[str, Any] = {name: 0}
    with pytest.raises(BadSetting, match=name):
        replace(Settings(), **wrong)


async def test_there_is_a_limit_for_the_tasks_of_all_owners() -> None:
    async with running_task_server(Settings(max_tasks=2, max_tasks_in_all=3)) as stage:
        ada, bob = (StatelessClient(stage.company, Peer("test", principal=name)) for name in ("ada", "bob"))
        await ada.start("wait", gate="a")
        await ada.start("wait", gate="a")
        id = await bob.start("wait", gate="b")
        error = await bob.error("tools/call", name="wait", arguments={"gate": "b"})
        assert error["message"] == "Too many tasks at once: at most 3 of all owners may be unfinished"
        assert error["data"] == {"reason": "too_many_tasks", "maybe_done": False}
        stage.gate("b").set()
        await ended(bob, id)
        await bob.start("wait", gate="b")  # the place is free


def test_a_store_in_memory_keeps_so_many_records_and_bytes_and_the_newest_always() -> None:
    store = MemoryTaskStore(max_records=2, max_bytes=100)
    works = record(owner="bob")
    store.put(works)
    kept = [ended_record(record(owner=f"owner {number}"), "x" * 30) for number in range(3)]
    for each in kept:
        store.put(each)
    assert store.list() == [works, *kept[1:]]
    store.put(kept[1])  # known already: nothing is counted twice
    assert store.list() == [works, *kept[1:]]
    large = ended_record(record(), "x" * 80)
    store.put(large)
    assert store.list() == [works, large]
    huge = ended_record(record(), "x" * 1000)
    store.put(huge)
    assert store.list() == [works, huge]
    store.remove(huge.id)
    fits = [ended_record(record(), "x" * 50) for _ in range(2)]
    for each in fits:
        store.put(each)
    assert store.list() == [works, *fits]


async def test_a_company_without_a_store_of_its_own_has_a_bounded_one() -> None:
    async with running_task_server() as stage:
        store = stage.company.tasks.store
        assert isinstance(store, MemoryTaskStore)
        assert (store.max_records, store.max_bytes) == (100_000, 256 * 1024 * 1024)
