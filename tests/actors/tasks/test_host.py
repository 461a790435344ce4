"""Tasks of the program itself: begun and ended by its own code, from any thread or node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom import Settings
from greenroom.actors.company import UnknownSession
from greenroom.protocol.errors import McpError

from .task_server import reply_to, result, running_task_server, status, texts, until


@pytest.mark.row("TF-18")
async def test_a_task_is_created_and_finished() -> None:
    async with running_task_server() as stage:
        player, tasks = await stage.player(), stage.server.tasks
        id = tasks.create(player.session.id, "bake", ttl=60)
        assert id.startswith("task_")
        task = (await reply_to(player, "tasks/get", taskId=id))["result"]
        assert (task["status"], task["ttl"]) == ("working", 60_000)
        waiting = asyncio.create_task(result(player, id))
        await asyncio.sleep(0.1)
        assert tasks.update(id, "in the oven")
        await asyncio.sleep(0.1)
        assert (await reply_to(player, "tasks/get", taskId=id))["result"]["statusMessage"] == "in the oven"
        assert tasks.finish(id, {"loaves": 3})
        assert texts(await waiting) == ['{"loaves":3}']
        assert [each.name for each in tasks.all(player.session.id)] == ["bake"]


@pytest.mark.row("TF-18")
async def test_an_ended_task_stays_as_it_is() -> None:
    async with running_task_server() as stage:
        player, tasks = await stage.player(), stage.server.tasks
        id = tasks.create(player.session.id)
        assert tasks.finish(id, "first")
        assert tasks.fail(id, "second")  # no client has looked yet: the first end decides
        assert texts(await result(player, id)) == ["first"]
        assert not tasks.finish(id, "third")
        assert not tasks.fail(id, "third")
        assert not tasks.cancel(id)
        assert not tasks.update(id, "third")
        assert not tasks.finish("task_unknown", "x")
        assert texts(await result(player, id)) == ["first"]


@pytest.mark.row("TF-18", "TF-15")
async def test_a_failure_is_recorded_and_announced() -> None:
    async with running_task_server() as stage:
        player, tasks = await stage.player(), stage.server.tasks
        said, error = tasks.create(player.session.id), tasks.create(player.session.id)
        tasks.fail(said, "the oven is cold")
        tasks.fail(error, McpError(-32050, "no wood", {"cord": 0}))
        assert (await result(player, said))["error"] == {"code": -32000, "message": "the oven is cold"}
        assert (await result(player, error))["error"] == {"code": -32050, "message": "no wood", "data": {"cord": 0}}
        assert await status(player, said) == "failed"


@pytest.mark.row("TF-18")
async def test_the_program_can_cancel_a_peers_task_and_its_tool() -> None:
    async with running_task_server() as stage:
        player, tasks = await stage.player(), stage.server.tasks
        id = (await reply_to(player, "tools/call", name="wait", arguments={"gate": "a"}, task={}))["result"]["task"][
            "taskId"
        ]
        await asyncio.sleep(0.1)
        assert tasks.cancel(id, "closing time")
        assert (await result(player, id))["error"]["message"] == "Task cancelled: closing time"
        await until(lambda: stage.seen == ["a cancelled"])


@pytest.mark.row("TF-18")
async def test_all_of_it_works_from_a_thread() -> None:
    async with running_task_server() as stage:
        player, tasks = await stage.player(), stage.server.tasks

        def bake() -> str:
            id = tasks.create(player.session.id)
            tasks.update(id, "from afar")
            tasks.finish(id, "baked")
            return id

        id = await asyncio.to_thread(bake)
        assert texts(await result(player, id)) == ["baked"]


async def test_a_tool_hands_a_task_to_other_code_and_returns_its_id() -> None:
    async with running_task_server() as stage:
        orders: list[str] = []

        @stage.server.tool
        def order(ctx: Any) -> str:
            orders.append(stage.server.tasks.create(ctx.session_id, "order"))
            return orders[0]

        client = await stage.probe()
        assert texts(await reply_to(client, "tools/call", name="order")) == orders
        stage.server.tasks.finish(orders[0], "here you are")
        assert texts(await result(client, orders[0])) == ["here you are"]


async def test_tasks_need_a_known_session_and_room_for_one_more() -> None:
    async with running_task_server(Settings(max_tasks=2)) as stage:
        player, tasks = await stage.player(), stage.server.tasks
        with pytest.raises(UnknownSession):
            tasks.create("mcp_unknown")
        tasks.create(player.session.id)
        tasks.create(player.session.id)
        with pytest.raises(McpError, match="at most 2"):
            tasks.create(player.session.id)
        assert len(tasks.all()) == 2


async def test_a_peer_without_tasks_gets_no_announcement_and_its_task_ends_with_its_session() -> None:
    async with running_task_server() as stage:
        client = await stage.probe(version="2025-06-18")
        (card,) = await stage.server.peers.all()
        id = stage.server.tasks.create(card.id)
        await asyncio.sleep(0.1)
        stage.server.tasks.update(id, "psst")
        await asyncio.sleep(1)
        assert not client.notifications("notifications/tasks/status")
        await client.close()
        await until(lambda: stage.server.tasks.get(id) is None)


async def test_the_programs_value_must_have_a_wire_form() -> None:
    async with running_task_server() as stage:
        player, tasks = await stage.player(), stage.server.tasks
        id = tasks.create(player.session.id)
        with pytest.raises(Exception, match="object"):
            tasks.finish(id, object())
        assert await status(player, id) == "working"
