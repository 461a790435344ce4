"""Tasks without a session: the extension of the stateless era."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from greenroom import Settings
from greenroom.protocol.errors import ErrorCode
from greenroom.protocol.methods import TASKS_EXTENSION
from greenroom.supervision import kill

from .stateless_client import (
    ABLE,
    ANNE,
    ASKED_ANNE,
    MISSING,
    HeldStore,
    StatelessClient,
    asking,
    ended,
    register_two,
    use_store,
)
from .task_server import RELATED, running_task_server, until

# --- T1: the extension is declared with each request


@pytest.mark.row("26-T1")
async def test_the_server_declares_the_extension_and_no_capability_of_sessions() -> None:
    async with running_task_server() as stage:
        found = await StatelessClient(stage.company).result("server/discover")
        assert found["capabilities"]["extensions"] == {TASKS_EXTENSION: {}}
        assert "tasks" not in found["capabilities"]


@pytest.mark.row("26-T1")
async def test_a_client_that_has_not_declared_it_is_answered_synchronously() -> None:
    async with running_task_server() as stage:
        stage.gate("open").set()
        plain = StatelessClient(stage.company, capabilities=ABLE)
        answer = await plain.call("wait", gate="open")
        assert answer["content"][0]["text"] == "through open"
        assert answer["resultType"] == "complete"
        assert (await plain.call("long", gate="open"))["structuredContent"]
        assert not stage.server.tasks.all()


@pytest.mark.row("26-T1")
async def test_a_tool_that_runs_as_a_task_only_says_what_is_missing() -> None:
    async with running_task_server() as stage:
        plain = StatelessClient(stage.company, capabilities=ABLE)
        reply = await plain.reply("tools/call", name="only")
        error = json.loads(reply.body)["error"]
        assert (reply.status, error["code"], error["data"]) == (400, -32021, MISSING)
        assert "only runs as a task only" in error["message"]
        assert not stage.server.tasks.all()


@pytest.mark.row("26-T1")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_the_task_methods_need_the_extension_also_for_a_task_that_is_there(method: str) -> None:
    async with running_task_server() as stage:
        id = await StatelessClient(stage.company).start("wait", gate="shut")
        plain = StatelessClient(stage.company, capabilities=ABLE)
        reply = await plain.reply(method, taskId=id, inputResponses={})
        error = json.loads(reply.body)["error"]
        assert (reply.status, error["code"], error["data"]) == (400, -32021, MISSING)
        assert not stage.record(id).terminal


@pytest.mark.row("26-T1")
async def test_nothing_is_remembered_from_one_request_to_the_next() -> None:
    async with running_task_server() as stage:
        stage.gate("open").set()
        client = StatelessClient(stage.company)
        assert (await client.call("wait", gate="open"))["resultType"] == "task"
        client.capabilities = ABLE
        assert (await client.call("wait", gate="open"))["resultType"] == "complete"
        client.capabilities = {"extensions": {TASKS_EXTENSION: True}}  # no object: it is not declared
        assert (await client.call("wait", gate="open"))["resultType"] == "complete"


async def test_a_server_that_has_switched_tasks_off_knows_no_task_methods() -> None:
    async with running_task_server(Settings(capabilities={"tasks": None})) as stage:
        stage.gate("open").set()
        client = StatelessClient(stage.company)
        assert (await client.call("wait", gate="open"))["resultType"] == "complete"
        assert (await client.error("tasks/get", taskId="task_0"))["code"] == ErrorCode.METHOD_NOT_FOUND
        assert "extensions" not in (await client.result("server/discover"))["capabilities"]


# --- T2: creation


@pytest.mark.row("26-T2")
async def test_a_created_task_is_flat_and_is_there_at_once() -> None:
    async with running_task_server(Settings(task_ttl=60, task_poll=0.5)) as stage:
        client = StatelessClient(stage.company)
        created = await client.call("wait", gate="shut")
        moment = created["createdAt"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", moment)
        server_info = created.pop("_meta")["io.modelcontextprotocol/serverInfo"]
        assert server_info["name"] == "stage"
        assert created == {
            "resultType": "task",
            "taskId": created["taskId"],
            "status": "working",
            "createdAt": moment,
            "lastUpdatedAt": moment,
            "ttlMs": 60_000,
            "pollIntervalMs": 500,
        }
        assert (await client.get(created["taskId"]))["status"] == "working"


@pytest.mark.row("26-T2")
async def test_a_store_that_keeps_nothing_creates_no_task() -> None:
    async with running_task_server() as stage:
        held = HeldStore(stage.company.tasks.store)
        use_store(stage.company, held)
        held.release(OSError("the disk is full"))
        error = await StatelessClient(stage.company).error("tools/call", name="wait", arguments={"gate": "x"})
        assert error["code"] == ErrorCode.INTERNAL_ERROR
        assert not stage.server.tasks.all()


@pytest.mark.row("26-T2")
async def test_the_ttl_counts_from_the_creation_and_never_ends_earlier_than_announced() -> None:
    async with running_task_server(Settings(task_ttl=60)) as stage:
        client = StatelessClient(stage.company)
        id = await client.start("wait", gate="g")
        await asyncio.sleep(100)
        working = await client.get(id)
        assert working["ttlMs"] == pytest.approx(
            160_000, abs=500
        )  # it has not ended, and is kept for a minute after that
        stage.gate("g").set()
        over = await ended(client, id)
        await asyncio.sleep(30)
        assert (await client.get(id))["ttlMs"] == over["ttlMs"] == pytest.approx(160_000, abs=1000)
        await asyncio.sleep(31)
        assert (await client.error("tasks/get", taskId=id))["code"] == ErrorCode.INVALID_PARAMS


@pytest.mark.row("26-T2")
async def test_a_caller_that_goes_away_before_it_has_the_id_leaves_no_task() -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company)
        held = HeldStore(stage.company.tasks.store)
        use_store(stage.company, held)
        calling = asyncio.ensure_future(client.answer("tools/call", name="wait", arguments={"gate": "x"}))
        await until(lambda: bool(stage.server.tasks.all()))
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        held.release()
        (record,) = stage.server.tasks.all()
        await until(lambda: stage.record(record.id).status == "cancelled")


async def test_too_many_tasks_are_refused() -> None:
    async with running_task_server(Settings(max_tasks=2)) as stage:
        client = StatelessClient(stage.company)
        for _ in range(2):
            await client.start("wait", gate="shut")
        error = await client.error("tools/call", name="wait", arguments={"gate": "shut"})
        assert error["data"] == {"reason": "too_many_tasks", "maybe_done": False}


# --- T3, T7: what a task is


@pytest.mark.row("26-T3")
async def test_a_completed_task_has_the_result_of_the_call() -> None:
    async with running_task_server() as stage:
        stage.gate("open").set()
        client = StatelessClient(stage.company)
        task = await ended(client, await client.start("wait", gate="open"))
        assert task["resultType"] == "complete"
        assert task["status"] == "completed"
        assert task["result"]["content"] == [{"type": "text", "text": "through open"}]
        assert task["result"]["resultType"] == "complete"
        assert RELATED not in task["result"].get("_meta", {})
        assert "error" not in task
        assert "inputRequests" not in task


@pytest.mark.row("26-T3")
@pytest.mark.row("26-T7")
@pytest.mark.parametrize(
    ("how", "status", "member"),
    [("told", "completed", "result"), ("raised", "completed", "result"), ("error", "failed", "error")],
)
async def test_only_an_error_of_the_protocol_fails_a_task(how: str, status: str, member: str) -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company)
        task = await ended(client, await client.start("fail", how=how))
        assert task["status"] == status
        assert ("result" in task, "error" in task) == (member == "result", member == "error")
        if member == "result":
            assert task["result"]["isError"] is True
            assert "swordfish" not in json.dumps(task)
        else:
            # -32011 is a code that this era reserves.
            assert task["error"] == {"code": -32603, "message": "the mill is shut", "data": {"until": "noon"}}
            assert task["statusMessage"] == "the mill is shut"


@pytest.mark.row("26-T3")
async def test_a_task_whose_worker_or_process_dies_has_ended_all_the_same() -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company)
        id = await client.start("wait", gate="shut")
        process = stage.process(id)
        assert process is not None
        kill(process)
        task = await ended(client, id)
        assert task["status"] == "failed"
        assert task["error"]["code"] == ErrorCode.INTERNAL_ERROR


@pytest.mark.row("26-M8")
async def test_every_result_about_a_task_names_the_server() -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company)
        created = await client.call("wait", gate="shut")
        task = {"taskId": created["taskId"]}
        found = [
            created,
            await client.result("tasks/get", **task),
            await client.result("tasks/update", **task, inputResponses={}),
            await client.result("tasks/cancel", **task),
            await client.result("tasks/get", **task),
        ]
        names = [each["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] for each in found]
        assert names == ["stage"] * len(found)


# --- T4, T5: update and cancel


@pytest.mark.row("26-T3")
@pytest.mark.row("26-T4")
async def test_a_question_stands_in_the_task_until_it_is_answered() -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company)
        id = await client.start("ask")
        ((key, question),) = (await asking(client, id)).items()
        assert question["method"] == "elicitation/create"
        assert question["params"]["message"] == "who?"
        assert "_meta" not in question["params"]
        assert await asking(client, id) == {key: question}
        ack = await client.result("tasks/update", taskId=id, inputResponses={key: ANNE})
        assert ack.keys() == {"resultType", "_meta"}
        assert ack["resultType"] == "complete"
        task = await ended(client, id)
        assert task["result"]["content"][0]["text"] == ASKED_ANNE


@pytest.mark.row("26-T4")
async def test_answers_may_come_in_parts_and_keys_are_never_used_twice() -> None:
    async with running_task_server() as stage:
        register_two(stage)
        client = StatelessClient(stage.company)
        id = await client.start("two")
        both = await asking(client, id, 2)
        first, second = sorted(both, key=lambda key: both[key]["params"]["message"])
        named = {"action": "accept", "content": {"name": "ada"}}
        await client.result("tasks/update", taskId=id, inputResponses={first: named, "never-asked": {"odd": [1]}})
        assert (await client.get(id))["inputRequests"].keys() == {second}  # at once
        await client.result("tasks/update", taskId=id, inputResponses={first: ANNE})  # answered already: ignored
        await client.result("tasks/update", taskId=id, inputResponses={second: ANNE})
        (third,) = await asking(client, id)
        assert third not in both
        await client.result("tasks/update", taskId=id, inputResponses={third: named, second: named})
        assert (await ended(client, id))["result"]["content"][0]["text"] == "ada anne ada"


@pytest.mark.row("26-T4")
async def test_a_question_has_the_key_of_its_author_once() -> None:
    async with running_task_server() as stage:

        @stage.server.tool(task_support="optional")
        async def keyed(ctx: Any) -> str:
            for key in ("name", "name", "question-4", None):
                await ctx.elicit("who?", {"type": "object", "properties": {}}, key=key)
            return "all"

        client = StatelessClient(stage.company)
        id = await client.start("keyed")
        keys: list[str] = []
        for _ in range(4):
            (key,) = await asking(client, id)
            keys.append(key)
            await client.result("tasks/update", taskId=id, inputResponses={key: {"action": "decline"}})
        assert keys == ["name", "question-2", "question-3", "question-4"]
        await ended(client, id)


@pytest.mark.row("26-T4")
@pytest.mark.parametrize(
    "response", [None, 7, [], "yes", {}, {"action": "perhaps"}, {"action": "accept", "content": 3}]
)
async def test_an_answer_that_does_not_fit_its_question_is_refused_and_the_question_stays(response: Any) -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company)
        id = await client.start("ask")
        (key,) = await asking(client, id)
        error = await client.error("tasks/update", taskId=id, inputResponses={key: response})
        assert error["code"] == ErrorCode.INVALID_PARAMS
        assert key in error["message"]
        assert (await asking(client, id)).keys() == {key}
        await client.result("tasks/update", taskId=id, inputResponses={key: ANNE})
        assert (await ended(client, id))["status"] == "completed"


@pytest.mark.row("26-T4")
@pytest.mark.parametrize("responses", [{}, {"question-1": ANNE}, {"x": None}])
async def test_an_update_of_a_task_that_asks_nothing_is_acknowledged(responses: Any) -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company)
        working = await client.start("wait", gate="shut")
        assert (await client.result("tasks/update", taskId=working, inputResponses=responses))[
            "resultType"
        ] == "complete"
        stage.gate("open").set()
        over = await client.start("wait", gate="open")
        await ended(client, over)
        assert (await client.result("tasks/update", taskId=over, inputResponses=responses))["resultType"] == "complete"
        assert (await client.get(working))["status"] == "working"


@pytest.mark.row("26-T4")
async def test_params_of_an_update_have_both_members() -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company)
        id = await client.start("ask")
        wrong: list[dict[str, Any]] = [
            {"taskId": id},
            {"inputResponses": {}},
            {"taskId": id, "inputResponses": []},
            {"taskId": 1, "inputResponses": {}},
        ]
        for params in wrong:
            assert (await client.error("tasks/update", **params))["code"] == ErrorCode.INVALID_PARAMS


async def test_a_question_that_was_shown_and_not_answered_times_out() -> None:
    async with running_task_server(Settings(parked_timeout=30)) as stage:
        client = StatelessClient(stage.company)
        id = await client.start("ask")
        await asyncio.sleep(100)
        assert not stage.record(id).terminal  # it was not shown yet
        await asking(client, id)
        await asyncio.sleep(20)
        await client.get(id)  # does not start the time anew
        await asyncio.sleep(11)
        task = await ended(client, id)
        assert task["result"]["isError"] is True
        assert "inputRequests" not in task


@pytest.mark.row("26-T5")
async def test_cancelling_is_acknowledged_and_idempotent() -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company)
        id = await client.start("wait", gate="shut")
        for _ in range(2):
            ack = await client.result("tasks/cancel", taskId=id)
            assert ack.keys() == {"resultType", "_meta"}
            assert ack["resultType"] == "complete"
        task = await ended(client, id)
        assert task["status"] == "cancelled"
        assert not task.keys() & {"result", "error", "inputRequests"}
        assert (await client.result("tasks/cancel", taskId=id))["resultType"] == "complete"
        await until(lambda: stage.seen == ["shut cancelled"])


@pytest.mark.row("26-T5")
async def test_a_task_that_has_ended_stays_as_it_is_when_it_is_cancelled() -> None:
    async with running_task_server() as stage:
        stage.gate("open").set()
        client = StatelessClient(stage.company)
        id = await client.start("wait", gate="open")
        before = await ended(client, id)
        await client.result("tasks/cancel", taskId=id)
        assert await client.get(id) == before


@pytest.mark.row("26-T5")
async def test_a_question_goes_with_its_cancelled_task() -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company)
        id = await client.start("ask")
        (key,) = await asking(client, id)
        await client.result("tasks/cancel", taskId=id)
        assert (await ended(client, id))["status"] == "cancelled"
        await client.result("tasks/update", taskId=id, inputResponses={key: ANNE})
        assert (await client.get(id))["status"] == "cancelled"


# --- T6: what is gone


@pytest.mark.row("26-T6")
@pytest.mark.parametrize("method", ["tasks/list", "tasks/result"])
async def test_methods_of_the_handshake_era_are_unknown(method: str) -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company)
        id = await client.start("wait", gate="shut")
        assert (await client.error(method, taskId=id))["code"] == ErrorCode.METHOD_NOT_FOUND


@pytest.mark.row("26-T6")
async def test_a_task_param_makes_no_task_of_a_plain_tool() -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company)
        answer = await client.result("tools/call", name="plain", task={"ttl": 60_000, "pollInterval": 100})
        assert (answer["resultType"], answer["content"][0]["text"]) == ("complete", "plain")
        assert "taskId" not in answer
        created = await client.result("tools/call", name="wait", arguments={"gate": "shut"}, task={"ttl": 5})
        assert created["ttlMs"] == Settings().task_ttl * 1000


@pytest.mark.row("26-T6")
async def test_no_tool_is_listed_with_task_support() -> None:
    async with running_task_server() as stage:
        tools = (await StatelessClient(stage.company).result("tools/list"))["tools"]
        assert "only" in {tool["name"] for tool in tools}
        assert not [tool for tool in tools if "execution" in tool]


@pytest.mark.row("26-T6")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
async def test_an_unknown_task_is_an_invalid_param(method: str) -> None:
    async with running_task_server() as stage:
        error = await StatelessClient(stage.company).error(method, taskId="task_nowhere", inputResponses={})
        assert error["code"] == ErrorCode.INVALID_PARAMS
