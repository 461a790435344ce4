"""A call that becomes a task, and the four methods by which its peer looks after it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from tests.actors.session.session_client import message, messages_in, read

from greenroom import Server, Settings
from greenroom.actors.catalogue import RegistrationError
from greenroom.actors.task_process import TaskProcess
from greenroom.actors.task_record import TERMINAL
from greenroom.protocol.jsonrpc import JsonRpcRequest
from greenroom.protocol.versions import LATEST
from greenroom.supervision import current_node, kill
from greenroom.transports.interfaces import Peer

from .task_server import RELATED, TaskServer, reply_to, result, running_task_server, start_task, status, texts, until

CAPABILITY: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
OLDER = ["2024-11-05", "2025-03-26", "2025-06-18"]


@pytest.mark.row("TF-13", "TF-15", "TF-27")
@pytest.mark.parametrize("kind", ["probe", "player"])
async def test_a_tool_is_called_as_a_task_and_its_result_is_what_the_call_would_have_had(kind: str) -> None:
    async with running_task_server() as stage:
        client: Any = await getattr(stage, kind)()
        answer = await reply_to(client, "tools/call", name="wait", arguments={"gate": "a"}, task={"ttl": 60_000})
        task = answer["result"].pop("task")
        assert answer["result"] == {}
        assert re.fullmatch("task_[0-9a-f]{32}", task["taskId"])
        assert (task["status"], task["ttl"], task["pollInterval"]) == ("working", 60_000, 1000)
        assert task["createdAt"] == task["lastUpdatedAt"]
        id = task["taskId"]
        assert await status(client, id) == "working"
        waiting = asyncio.create_task(result(client, id))
        await asyncio.sleep(500)  # it waits as long as that takes
        assert not waiting.done()
        stage.gate("a").set()
        direct = await reply_to(client, "tools/call", name="wait", arguments={"gate": "a"})
        direct["result"]["_meta"] = {RELATED: {"taskId": id}}
        assert (await waiting)["result"] == direct["result"]
        assert await status(client, id) == "completed"
        assert (await result(client, id))["result"] == direct["result"]


@pytest.mark.row("TF-15")
async def test_a_failing_tool_fails_its_task_with_the_same_result() -> None:
    async with running_task_server() as stage:
        client = await stage.probe()
        told, error, raised = [await start_task(client, "fail", how=how) for how in ("told", "error", "raised")]
        answer = await result(client, told)
        assert answer["result"]["isError"] is True
        assert texts(answer) == ["no flour left"]
        assert answer["result"]["_meta"] == {RELATED: {"taskId": told}}
        direct = await reply_to(client, "tools/call", name="fail", arguments={"how": "error"})
        assert (await result(client, error))["error"] == direct["error"]
        assert direct["error"] == {"code": -32011, "message": "the mill is shut", "data": {"until": "noon"}}
        assert texts(await result(client, raised)) == ["Tool execution failed"]
        tasks = [(await reply_to(client, "tasks/get", taskId=id))["result"] for id in (told, error, raised)]
        assert {each["status"] for each in tasks} == {"failed"}
        assert [each["statusMessage"] for each in tasks] == [
            "no flour left",
            "the mill is shut",
            "Tool execution failed",
        ]


@pytest.mark.row("TF-13")
async def test_a_tools_task_support_is_listed_and_enforced() -> None:
    async with running_task_server() as stage:
        client = await stage.probe()
        assert client.welcome["capabilities"]["tasks"] == CAPABILITY
        tools = {each["name"]: each for each in (await client.request("tools/list"))["tools"]}
        assert {name: tool.get("execution") for name, tool in tools.items()} == {
            "wait": {"taskSupport": "optional"},
            "fail": {"taskSupport": "optional"},
            "ask": {"taskSupport": "optional"},
            "talk": {"taskSupport": "optional"},
            "only": {"taskSupport": "required"},
            "long": {"taskSupport": "optional"},
            "plain": None,
        }
        refused = (await reply_to(client, "tools/call", name="only"))["error"]
        assert (refused["code"], refused["message"]) == (-32601, "only runs as a task only: call it with params.task")
        refused = (await reply_to(client, "tools/call", name="plain", task={}))["error"]
        assert refused["code"] == -32601
        assert texts(await reply_to(client, "tools/call", name="plain")) == ["plain"]
        assert texts(await result(client, await start_task(client, "only"))) == ["done"]


@pytest.mark.row("TF-13")
async def test_a_long_running_tool_answers_at_once_with_a_task_and_a_text() -> None:
    async with running_task_server() as stage:
        client = await stage.probe()
        answer = (await reply_to(client, "tools/call", name="long", arguments={"gate": "a"}))["result"]
        id = answer["task"]["taskId"]
        assert answer["task"]["status"] == "working"
        assert answer["isError"] is False
        assert id in answer["content"][0]["text"]
        (tool,) = [each for each in (await client.request("tools/list"))["tools"] if each["name"] == "long"]
        assert "outputSchema" not in tool  # the first answer would break the promise
        stage.gate("a").set()
        assert (await result(client, id))["result"]["structuredContent"] == {"result": 7}
        asked_for = await start_task(client, "long", gate="a")
        assert (await result(client, asked_for))["result"]["structuredContent"] == {"result": 7}


@pytest.mark.row("TF-13")
@pytest.mark.parametrize("version", OLDER)
async def test_older_peers_see_nothing_of_tasks(version: str) -> None:
    async with running_task_server() as stage:
        client = await stage.probe(version=version)
        assert "tasks" not in client.welcome["capabilities"]
        stage.gate("a").set()
        assert texts(await reply_to(client, "tools/call", name="wait", arguments={"gate": "a"}, task={})) == [
            "through a"
        ]
        assert texts(await reply_to(client, "tools/call", name="long", arguments={"gate": "a"})) == ["7"]
        assert texts(await reply_to(client, "tools/call", name="only")) == ["done"]
        assert texts(await reply_to(client, "tools/call", name="plain", task={})) == ["plain"]
        for method in ("tasks/get", "tasks/list", "tasks/result", "tasks/cancel"):
            assert (await reply_to(client, method, taskId="task_1"))["error"]["code"] == -32601
        assert all("execution" not in each for each in (await client.request("tools/list"))["tools"])
        assert not client.notifications("notifications/tasks/status")
        assert not stage.server.tasks.all()


async def test_a_server_that_declares_no_tasks_ignores_the_wish() -> None:
    async with running_task_server(Settings(capabilities={"tasks": None})) as stage:
        client = await stage.probe()
        assert "tasks" not in client.welcome["capabilities"]
        assert texts(await reply_to(client, "tools/call", name="plain", task={"ttl": 1})) == ["plain"]
        assert texts(await reply_to(client, "tools/call", name="only")) == ["done"]
        assert (await reply_to(client, "tasks/list"))["error"]["code"] == -32601


def test_long_running_and_forbidden_is_refused_at_registration() -> None:
    server = Server("wrong")
    with pytest.raises(RegistrationError, match="long_running"):
        server.tool(long_running=True, task_support="forbidden")(_nothing)
    with pytest.raises(RegistrationError, match="task_support"):
        server.tool(task_support="perhaps")(_nothing)  # type: ignore[call-overload]


def _nothing() -> None:
    """Nothing."""


@pytest.mark.row("TF-14")
async def test_tasks_are_listed_page_by_page_the_oldest_first() -> None:
    async with running_task_server(Settings(page_size=2)) as stage:
        client = await stage.probe()
        ids: list[str] = []
        for number in range(5):
            ids.append(await start_task(client, "wait", gate=str(number)))
            await asyncio.sleep(0.01)
        stage.gate("2").set()
        await until(lambda: stage.record(ids[2]).terminal)
        found: list[dict[str, Any]] = []
        cursor = None
        for _ in range(3):
            page = (await reply_to(client, "tasks/list", **({} if cursor is None else {"cursor": cursor})))["result"]
            found += page["tasks"]
            cursor = page.get("nextCursor")
        assert cursor is None
        assert [each["taskId"] for each in found] == ids
        assert [each["status"] for each in found] == ["working", "working", "completed", "working", "working"]
        assert all("_meta" not in each for each in found)
        assert (await reply_to(client, "tasks/list", cursor="nonsense"))["error"]["code"] == -32602


@pytest.mark.row("TF-14")
async def test_a_cancelled_task_is_ended_and_announced() -> None:
    async with running_task_server() as stage:
        client = await stage.probe()
        id = await start_task(client, "wait", gate="a")
        waiting = asyncio.create_task(result(client, id))
        await asyncio.sleep(0.1)
        answer = (await reply_to(client, "tasks/cancel", taskId=id))["result"]
        assert (answer["taskId"], answer["status"], answer["statusMessage"]) == (id, "cancelled", "by request")
        assert (await waiting)["error"] == {"code": -32602, "message": "Task cancelled: by request"}
        assert (await result(client, id))["error"]["code"] == -32602
        await until(lambda: stage.seen == ["a cancelled"])
        await until(lambda: stage.process(id) is None)
        again = (await reply_to(client, "tasks/cancel", taskId=id))["error"]
        assert again["code"] == -32602
        assert "is cancelled" in again["message"]
        stage.gate("a").set()
        await asyncio.sleep(1)
        assert await status(client, id) == "cancelled"


@pytest.mark.row("TF-14")
async def test_an_ended_task_cannot_be_cancelled() -> None:
    async with running_task_server() as stage:
        client = await stage.probe()
        stage.gate("a").set()
        id = await start_task(client, "wait", gate="a")
        before = await result(client, id)
        refused = (await reply_to(client, "tasks/cancel", taskId=id))["error"]
        assert refused["code"] == -32602
        assert "completed" in refused["message"]
        assert (await result(client, id))["result"] == before["result"]


@pytest.mark.row("TF-14")
@pytest.mark.parametrize("principal", [None, "ann"])
async def test_a_foreign_task_looks_unknown(principal: str | None) -> None:
    async with running_task_server() as stage:
        mine = await stage.player(Peer("test", principal=principal))
        other = await stage.player(Peer("test", principal=None if principal is None else "bob"))
        id = await start_task(mine, "wait", gate="a")
        unknown = (await reply_to(other, "tasks/get", taskId="task_" + 32 * "0"))["error"]
        assert unknown["code"] == -32602
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            assert (await reply_to(other, method, taskId=id))["error"] == unknown
        assert (await reply_to(other, "tasks/list"))["result"] == {"tasks": []}
        assert await status(mine, id) == "working"


@pytest.mark.row("TF-14")
async def test_a_principal_finds_its_task_again_in_another_session() -> None:
    async with running_task_server() as stage:
        first = await stage.player(Peer("test", principal="ann"))
        id = await start_task(first, "wait", gate="a")
        await first.session.end()
        second = await stage.player(Peer("test", principal="ann"))
        assert await status(second, id) == "working"
        waiting = asyncio.create_task(result(second, id))
        await asyncio.sleep(0.1)
        stage.gate("a").set()
        assert texts(await waiting) == ["through a"]


@pytest.mark.row("TF-14")
async def test_without_a_principal_a_task_ends_with_its_session() -> None:
    async with running_task_server() as stage:
        client = await stage.player()
        running, over = await start_task(client, "wait", gate="a"), await start_task(client, "only")
        await result(client, over)
        await client.session.end()
        await until(lambda: stage.seen == ["a cancelled"])
        await until(lambda: stage.process(running) is None)
        assert not stage.server.tasks.all()


@pytest.mark.row("TF-16")
async def test_every_change_is_announced_with_the_whole_task() -> None:
    async with running_task_server() as stage:
        client = await stage.probe({"elicitation/create": lambda _: {"action": "decline"}})
        asks, waits, fails = (
            await start_task(client, "ask"),
            await start_task(client, "wait", gate="a"),
            await start_task(client, "only"),
        )
        await result(client, asks)
        await result(client, fails)
        await reply_to(client, "tasks/cancel", taskId=waits)
        told = await client.wait_for_notifications("notifications/tasks/status", 8)
        by_task = {id: [each["status"] for each in told if each["taskId"] == id] for id in (asks, waits, fails)}
        assert by_task == {
            asks: ["working", "input_required", "working", "completed"],
            waits: ["working", "cancelled"],
            fails: ["working", "completed"],
        }
        last = next(each for each in reversed(told) if each["taskId"] == waits)
        assert last == (await reply_to(client, "tasks/get", taskId=waits))["result"]
        order = [each.get("id") or each["method"] for each in client.received]
        assert order.index(2) < order.index("notifications/tasks/status")  # the task is known before it is spoken of


@pytest.mark.row("TF-16")
async def test_status_notifications_wait_for_a_reader_of_the_stream() -> None:
    async with running_task_server() as stage:
        client = await stage.player()
        id = await start_task(client, "only")
        await result(client, id)
        feed = await client.session.listen()
        events = await feed.next(1)
        assert events is not None
        bodies = [event.data for event in events if event.data]
        assert [b"working" in body for body in bodies] == [True, False]
        assert b"completed" in bodies[-1]


async def test_progress_and_logs_go_on_for_the_life_of_the_task_and_name_it() -> None:
    async with running_task_server() as stage:
        client = await stage.probe()
        answer = await client.request(
            "tools/call",
            {"name": "talk", "arguments": {"gate": "a"}, "task": {}, "_meta": {"progressToken": "bread"}},
        )
        id = answer["task"]["taskId"]
        await client.wait_for_notifications("notifications/message")
        stage.gate("a").set()
        await result(client, id)
        progress = client.notifications("notifications/progress")
        assert [(each["progressToken"], each["progress"]) for each in progress] == [("bread", 1), ("bread", 2)]
        (log,) = client.notifications("notifications/message")
        assert all(each["_meta"] == {RELATED: {"taskId": id}} for each in (*progress, log))


async def test_a_tasks_messages_go_onto_the_stream_of_the_waiting_call() -> None:
    async with running_task_server() as stage:
        client = await stage.player()
        params = {"name": "talk", "arguments": {"gate": "a"}, "task": {}, "_meta": {"progressToken": 1}}
        id = (await reply_to(client, "tools/call", **params))["result"]["task"]["taskId"]
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(client.reply("tasks/result", taskId=id))
        await asyncio.sleep(0.1)
        stage.gate("a").set()
        feed = await waiting
        progress, answer = messages_in(await read(feed))
        assert (progress["params"]["progress"], progress["params"]["_meta"]) == (2, {RELATED: {"taskId": id}})
        assert texts(answer) == ["talked"]


async def test_a_request_that_is_cancelled_before_it_was_answered_leaves_no_task_behind() -> None:
    async with running_task_server() as stage:
        client = await stage.probe()
        number = await client.ask("tools/call", {"name": "wait", "arguments": {"gate": "a"}, "task": {}})
        await client.cancel(number)
        await asyncio.sleep(5)
        assert all(each.status in TERMINAL for each in stage.server.tasks.all())


async def test_a_wait_that_is_cancelled_is_over_and_the_task_is_not() -> None:
    async with running_task_server() as stage:
        client = await stage.player()
        id = await start_task(client, "wait", gate="a")
        waiting = asyncio.create_task(client.reply("tasks/result", id="r", taskId=id))
        await asyncio.sleep(0.1)
        await client.cancel("r")
        assert await waiting is None
        assert await status(client, id) == "working"
        stage.gate("a").set()
        assert texts(await result(client, id)) == ["through a"]


async def test_repeated_waits_of_a_client_that_goes_away_do_not_pile_up() -> None:
    async with running_task_server(Settings(max_in_flight=3)) as stage:
        client = await stage.player()
        id = await start_task(client, "wait", gate="a")
        for _ in range(10):
            waiting = asyncio.create_task(client.reply("tasks/result", taskId=id))
            await asyncio.sleep(0.1)
            waiting.cancel()
            await asyncio.sleep(0.1)
        stage.gate("a").set()
        assert texts(await result(client, id)) == ["through a"]


async def test_finished_waits_leave_no_monitors() -> None:
    async with running_task_server() as stage:
        client = await stage.player()
        id = await start_task(client, "wait", gate="a")
        pid = stage.process(id)
        process = None if pid is None else current_node().process(pid)
        assert process is not None
        task_process = process.behaviour
        assert isinstance(task_process, TaskProcess)
        for number in range(20):
            waiting = asyncio.create_task(client.reply("tasks/result", id=f"w{number}", taskId=id))
            await asyncio.sleep(0.1)
            assert len(task_process._waiters) == 1
            await client.cancel(f"w{number}")
            await waiting
            await asyncio.sleep(0.1)
        assert len(task_process._waiters) == 0


async def test_several_may_wait_and_each_is_answered_under_its_own_id() -> None:
    async with running_task_server() as stage:
        client = await stage.probe()
        id = await start_task(client, "wait", gate="a")
        numbers = [await client.ask("tasks/result", {"taskId": id}) for _ in range(5)]
        stage.gate("a").set()
        answers = [await client.answer(number) for number in numbers]
        assert [each["id"] for each in answers] == numbers
        assert len({str(each["result"]) for each in answers}) == 1


async def once(stage: TaskServer, principal: str | None, method: str, /, **params: Any) -> dict[str, Any]:
    """The answer to one request without a session."""
    peer = Peer("test", principal=principal)
    answer = await stage.company.once(peer, JsonRpcRequest("r", method, params), LATEST)
    return message(answer.body)


async def test_without_sessions_only_a_principal_can_have_tasks() -> None:
    async with running_task_server(Settings(sessions=False)) as stage:
        stage.gate("a").set()
        call = {"name": "wait", "arguments": {"gate": "a"}, "task": {}}
        assert texts(await once(stage, None, "tools/call", **call)) == ["through a"]
        assert texts(await once(stage, None, "tools/call", name="only")) == ["done"]
        assert texts(await once(stage, None, "tools/call", name="long", arguments={"gate": "a"})) == ["7"]
        assert not stage.server.tasks.all()
        begun = await once(stage, "ann", "tools/call", **call)
        id = begun["result"]["task"]["taskId"]
        assert texts(await once(stage, "ann", "tasks/result", taskId=id)) == ["through a"]
        assert [each["taskId"] for each in (await once(stage, "ann", "tasks/list"))["result"]["tasks"]] == [id]
        assert (await once(stage, None, "tasks/get", taskId=id))["error"]["code"] == -32602


async def test_a_flooding_task_is_told_that_its_messages_are_dropped() -> None:
    async with running_task_server() as stage:
        said: list[bool] = []

        @stage.server.tool(task_support="optional")
        async def chatter(ctx: Any) -> str:
            said.extend(bool(ctx.info("blah")) for _ in range(5000))
            await asyncio.sleep(1)
            said.append(bool(ctx.info("and again")))
            return "done"

        client = await stage.probe()
        await result(client, await start_task(client, "chatter"))
        assert said[0]
        assert sum(said[:-1]) == 1024
        assert said[-1]


@pytest.mark.parametrize("ttl", [-1, "soon", True])
async def test_a_wish_that_makes_no_sense_is_refused(ttl: Any) -> None:
    async with running_task_server() as stage:
        client = await stage.probe()
        answer = await reply_to(client, "tools/call", name="only", task={"ttl": ttl})
        assert answer["error"]["code"] == -32602
        assert not stage.server.tasks.all()


async def test_the_work_of_a_task_runs_on_while_its_session_does_nothing_else() -> None:
    async with running_task_server() as stage:
        client = await stage.probe()
        id = await start_task(client, "wait", gate="a")
        waiting = await client.ask("tasks/result", {"taskId": id})
        assert texts(await reply_to(client, "tools/call", name="plain")) == ["plain"]
        task_process = stage.process(id)
        assert task_process is not None
        kill(task_process)
        assert (await client.answer(waiting))["error"]["code"] == -32603
