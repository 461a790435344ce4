"""Whichever process dies, a task never works for ever, and a client that waits for it is answered once."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import CallToolResult, Context, Image, Settings
from greenroom.actors.process_names import ProcessName
from greenroom.actors.task_record import TaskRecord
from greenroom.actors.task_store import MemoryTaskStore
from greenroom.actors.tasks import LOST, RESTARTED
from greenroom.protocol.errors import ErrorCode
from greenroom.supervision import kill, wait_down, whereis, which_children
from greenroom.transports.interfaces import Peer

from .task_server import reply_to, result, running_task_server, start_task, status, texts, until

if TYPE_CHECKING:
    from greenroom.supervision import Pid

    from .task_server import TaskServer


async def worker_of(stage: TaskServer) -> Pid:
    """The one running worker."""
    (found,) = await which_children(stage.company.workers)
    assert found.pid is not None
    return found.pid


def role(stage: TaskServer, name: str) -> Pid:
    """The company's process with that role."""
    found = whereis(stage.company.name(name))
    assert found is not None
    return found


async def test_a_worker_that_dies_makes_its_task_fail_at_once() -> None:
    async with running_task_server() as stage:
        client = await stage.probe()
        id = await start_task(client, "wait", gate="a")
        waiting = asyncio.create_task(result(client, id))
        await asyncio.sleep(0.1)
        kill(await worker_of(stage))
        assert texts(await waiting) == ["Tool execution failed"]
        assert await status(client, id) == "failed"
        await until(lambda: stage.process(id) is None)


async def test_where_a_crash_is_the_protocols_a_worker_that_dies_is_an_error() -> None:
    async with running_task_server(Settings(crashes="protocol")) as stage:
        client = await stage.probe()
        id = await start_task(client, "wait", gate="a")
        kill(await worker_of(stage))
        answer = await result(client, id)
        assert answer["error"] == {"code": ErrorCode.TOOL_ERROR, "message": "Tool execution failed"}
        assert await status(client, id) == "failed"


@pytest.mark.parametrize("content", [[], [Image(b"x", "image/png")], [Image(b"x", "image/png"), "no flour left"]])
async def test_a_failure_that_has_no_words_has_failed_all_the_same(content: list[Any]) -> None:
    async with running_task_server() as stage:

        @stage.server.tool(task_support="optional")
        async def burn() -> CallToolResult:
            return CallToolResult(content, is_error=True)

        client = await stage.probe()
        id = await start_task(client, "burn")
        assert (await result(client, id))["result"]["isError"] is True
        task = (await reply_to(client, "tasks/get", taskId=id))["result"]
        says = content[-1] if len(content) > 1 else "The tool has failed"
        assert (task["status"], task["statusMessage"]) == ("failed", says)


async def test_a_cancelled_task_without_a_stream_sends_nothing_more() -> None:
    async with running_task_server() as stage:
        said: list[bool] = []

        @stage.server.tool(task_support="optional")
        async def stubborn(ctx: Context) -> None:
            said.append(ctx.interrupt_stream(0.5))
            said.append(bool(ctx.info("at work")))
            try:
                await stage.gate("b").wait()
            finally:
                said.append(bool(ctx.log("info", "not yet", "mill")))

        client = await stage.probe()
        id = await start_task(client, "stubborn")
        await until(lambda: len(said) == 2)
        await reply_to(client, "tasks/cancel", taskId=id)
        await until(lambda: len(said) == 3)
        assert said == [False, True, False]
        assert await status(client, id) == "cancelled"


async def test_a_worker_that_dies_before_its_first_step_too() -> None:
    async with running_task_server() as stage:
        client = await stage.probe()
        killed: list[Pid] = []

        async def killer() -> None:
            while not killed:
                for each in await which_children(stage.company.workers):
                    assert each.pid is not None
                    kill(each.pid)
                    killed.append(each.pid)
                await asyncio.sleep(0)

        hunting = asyncio.create_task(killer())
        id = await start_task(client, "wait", gate="a")
        await hunting
        await until(lambda: stage.record(id).terminal)
        assert stage.record(id).status == "failed"
        assert "error" in (answer := await result(client, id)) or answer["result"]["isError"]


@pytest.mark.parametrize("who", ["task", "task_processes", "tasks", "workers", "company"])
async def test_killing_any_process_ends_the_wait_and_fails_the_task(who: str) -> None:
    async with running_task_server() as stage:
        client = await stage.probe()
        id = await start_task(client, "wait", gate="a")
        number = await client.ask("tasks/result", {"taskId": id})
        await asyncio.sleep(0.1)
        victim = stage.process(id) if who == "task" else role(stage, who)
        assert victim is not None
        kill(victim)
        answer = await client.answer(number, within=60)
        if who == "workers":
            assert texts(answer) == ["Tool execution failed"]
        else:
            assert answer["error"]["code"] == -32603
        await asyncio.sleep(5)
        assert len([each for each in client.received if each.get("id") == number]) == 1
        assert stage.server.tasks.get(id) is None or stage.record(id).status == "failed"
        assert stage.seen == ["a cancelled"]
        again = await stage.probe()
        assert texts(await result(again, await start_task(again, "only"))) == ["done"]


@pytest.mark.parametrize("principal", [None, "ann"])
async def test_a_killed_session_takes_only_the_tasks_that_it_alone_could_read(principal: str | None) -> None:
    async with running_task_server() as stage:
        player = await stage.player(Peer("test", principal=principal))
        id = await start_task(player, "wait", gate="a")
        kill(stage.server.peers.ref(player.session.id))
        await asyncio.sleep(5)
        if principal is None:
            assert stage.server.tasks.get(id) is None
            assert stage.seen == ["a cancelled"]
        else:
            assert stage.record(id).status == "working"
            stage.gate("a").set()
            again = await stage.player(Peer("test", principal=principal))
            assert texts(await result(again, id)) == ["through a"]


@pytest.mark.parametrize("how", ["sys.exit", "hang"])
async def test_a_tool_that_exits_or_does_not_listen_is_dealt_with(how: str) -> None:
    async with running_task_server(Settings(cancel_grace=0.5)) as stage:

        @stage.server.tool(task_support="optional")
        async def stubborn() -> None:
            if how == "sys.exit":
                sys.exit(0)
            while True:
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    stage.seen.append("no")

        client = await stage.probe()
        id = await start_task(client, "stubborn")
        if how == "hang":
            await asyncio.sleep(0.1)
            assert (await reply_to(client, "tasks/cancel", taskId=id))["result"]["status"] == "cancelled"
        else:
            assert texts(await result(client, id)) == ["Tool execution failed"]
        await until(lambda: stage.process(id) is None)
        assert not await which_children(stage.company.workers)


async def test_a_tool_with_a_deadline_of_its_own_has_it_as_a_task_and_the_companys_does_not_count() -> None:
    async with running_task_server(Settings(call_timeout=1)) as stage:

        @stage.server.tool(task_support="optional", timeout=5)
        async def quick() -> None:
            await asyncio.sleep(3600)

        client = await stage.probe()
        short, long = await start_task(client, "quick"), await start_task(client, "wait", gate="a")
        answer = await result(client, short)
        assert answer["result"]["isError"]
        assert answer["result"]["content"] == [{"type": "text", "text": "Tool 'quick' timed out after 5 s"}]
        assert await status(client, short) == "failed"
        await asyncio.sleep(1000)
        assert await status(client, long) == "working"


async def test_stopping_the_company_fails_its_unfinished_tasks() -> None:
    async with running_task_server() as stage:
        client = await stage.probe()
        id = await start_task(client, "wait", gate="a")
        store = stage.company.tasks.store
        player = await stage.player(Peer("test", principal="ann"))
        other = await start_task(player, "wait", gate="b")
    mine = store.get(id)
    assert mine is None or mine.status == "cancelled"
    found = store.get(other)
    assert found is not None
    assert (found.status, found.error is None) == ("failed", False)


class Kept(MemoryTaskStore):
    """A store that has something in it from an earlier life."""

    def __init__(self, *records: TaskRecord) -> None:
        super().__init__()
        for record in records:
            self.put(record)


def left(id: str, created: float = 1.0) -> TaskRecord:
    return TaskRecord(id=id, owner="principal ann", created=created, updated=max(2.0, created), ttl=1e10)


async def test_after_a_restart_unfinished_tasks_have_failed_and_ended_ones_are_unchanged() -> None:
    async with running_task_server() as stage:
        await stage.probe()
        tasks = stage.company.tasks
        done = left("task_done").with_status("completed", 3.0, result=b'{"content":[],"isError":false}')
        tasks.store = Kept(left("task_a"), left("task_b").with_status("input_required", 2.0), done)
        tasks.is_recovered = False
        kill(role(stage, "task_sweeper"))
        await until(lambda: tasks.is_recovered)
        player = await stage.player(Peer("test", principal="ann"))
        for id in ("task_a", "task_b"):
            task = (await reply_to(player, "tasks/get", taskId=id))["result"]
            assert (task["status"], task["statusMessage"]) == ("failed", RESTARTED)
            assert (await result(player, id))["error"]["message"] == RESTARTED
        assert (await result(player, "task_done"))["result"] == {"content": [], "isError": False}


async def test_a_record_without_a_process_is_found_out() -> None:
    async with running_task_server() as stage:
        player = await stage.player(Peer("test", principal="ann"))
        record = left("task_a", stage.company.tasks.now())
        stage.company.tasks.store.put(record)
        answer = await result(player, "task_a")  # no process is there to say when it ends
        assert answer["error"]["code"] == -32603
        await asyncio.sleep(62)
        assert (stage.record("task_a").status, stage.record("task_a").message) == ("failed", LOST)


@pytest.mark.parametrize("who", ["task_sweeper", "task_processes"])
async def test_a_killed_task_process_loses_only_its_own_task(who: str) -> None:
    async with running_task_server() as stage:
        player = await stage.player(Peer("test", principal="ann"))
        done, runs = await start_task(player, "only"), await start_task(player, "wait", gate="a")
        await result(player, done)
        victim = role(stage, who)
        kill(victim)
        await wait_down(victim)
        await until(lambda: whereis(ProcessName(stage.company.key, who)) not in (None, victim))
        assert texts(await result(player, done)) == ["done"]
        assert await status(player, runs) == ("working" if who == "task_sweeper" else "failed")
        if who == "task_sweeper":
            stage.gate("a").set()
            assert texts(await result(player, runs)) == ["through a"]
