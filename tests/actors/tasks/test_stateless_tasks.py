"""Tasks without a session: the extension of the stateless era, and its tasks in the hands of clients of either era."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.actors.session.session_client import messages_in, read

from greenroom import Settings
from greenroom.actors.stateless_tasks import watch_tasks
from greenroom.actors.task_record import TaskChanged
from greenroom.actors.worker_interfaces import SessionFacts
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.methods import TASKS_EXTENSION
from greenroom.protocol.versions import STATELESS
from greenroom.supervision import kill
from greenroom.transports.interfaces import Peer
from greenroom.wire_probe import WireProbe

from .stateless_client import ABLE, StatelessClient
from .task_server import RELATED, reply_to, result, running_task_server, start_task, status, texts, until

if TYPE_CHECKING:
    from .task_server import TaskServer

ANNE = {"action": "accept", "content": {"name": "anne"}}
ASKED_ANNE = "asked: Accepted(value={'name': 'anne'})"
MISSING: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}


async def ended(client: StatelessClient, id: str) -> dict[str, Any]:
    """The task, once it has ended."""
    for _ in range(400):
        task = await client.get(id)
        if task["status"] not in ("working", "input_required"):
            return task
        await asyncio.sleep(0.01)
    raise AssertionError(f"the task goes on: {task}")


async def asking(client: StatelessClient, id: str, questions: int = 1) -> dict[str, Any]:
    """The open questions of the task, once there are so many."""
    for _ in range(400):
        task = await client.get(id)
        if len(task.get("inputRequests", ())) == questions:
            assert task["status"] == "input_required"
            found: dict[str, Any] = task["inputRequests"]
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"it does not ask: {task}")


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
        store = stage.company.tasks.store
        before = store.put

        def broken(record: Any, *, at_once: bool = False) -> Any:
            before(record)
            if at_once:
                return None
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(OSError("the disk is full"))
            return failed

        stage.company.tasks.store = _Store(store, broken)
        error = await StatelessClient(stage.company).error("tools/call", name="wait", arguments={"gate": "x"})
        assert error["code"] == ErrorCode.INTERNAL_ERROR
        assert not stage.server.tasks.all()


class _Store:
    """A store that writes in another way."""

    def __init__(self, inner: Any, put: Any) -> None:
        self.put = put
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


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
        pause: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        store = stage.company.tasks.store
        before = store.put
        stage.company.tasks.store = _Store(
            store, lambda record, at_once=False: before(record) if at_once else (before(record), pause)[1]
        )
        calling = asyncio.ensure_future(client.answer("tools/call", name="wait", arguments={"gate": "x"}))
        await until(lambda: bool(stage.server.tasks.all()))
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        pause.set_result(None)
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
            assert task["error"] == {"code": -32011, "message": "the mill is shut", "data": {"until": "noon"}}
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


def _register_two(stage: TaskServer) -> None:
    @stage.server.tool(task_support="optional")
    async def two(ctx: Any) -> str:
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        answers = await asyncio.gather(ctx.elicit("first?", form), ctx.elicit("second?", form))
        again = await ctx.elicit("third?", form)
        return " ".join(str(each.value["name"]) for each in (*answers, again))


@pytest.mark.row("26-T4")
async def test_answers_may_come_in_parts_and_keys_are_never_used_twice() -> None:
    async with running_task_server() as stage:
        _register_two(stage)
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


# --- T8: a question before the call is a task


def _register_deferred(stage: TaskServer, **options: Any) -> None:
    @stage.server.tool(**{"task_support": "required", "defer_task": True, **options})
    async def later(gate: str, ctx: Any) -> str:
        begun = await ctx.start_task()
        await stage.gate(gate).wait()
        return f"{begun} {await ctx.start_task()}"


@pytest.mark.row("26-T8")
async def test_a_handler_makes_its_running_call_a_task() -> None:
    async with running_task_server() as stage:
        _register_deferred(stage)
        client = StatelessClient(stage.company)
        created = await client.call("later", gate="g")
        assert created["resultType"] == "task"
        assert not created.keys() & {"requestState", "inputRequests", "result"}
        id = created["taskId"]
        assert (await client.get(id))["status"] == "working"
        stage.gate("g").set()
        assert (await ended(client, id))["result"]["content"][0]["text"] == "True True"
        assert stage.company.exchanges.open == 0
        await until(lambda: stage.process(id) is None)


@pytest.mark.row("26-T8")
async def test_a_call_that_has_become_a_task_is_cancelled_as_one() -> None:
    async with running_task_server() as stage:
        ends: list[str] = []

        @stage.server.tool(task_support="optional", defer_task=True)
        async def later(ctx: Any) -> None:
            await ctx.start_task()
            try:
                await asyncio.Event().wait()
            finally:
                ends.append(str(ctx.cancelled.reason))

        client = StatelessClient(stage.company)
        id = await client.start("later")
        await client.result("tasks/cancel", taskId=id)
        assert (await ended(client, id))["status"] == "cancelled"
        await until(lambda: ends == ["by request"])


@pytest.mark.row("26-T8")
async def test_a_worker_ends_with_the_process_of_its_task() -> None:
    async with running_task_server() as stage:
        ends: list[bool] = []

        @stage.server.tool(task_support="optional", defer_task=True)
        async def later(ctx: Any) -> None:
            await ctx.start_task()
            try:
                await asyncio.Event().wait()
            finally:
                ends.append(True)

        client = StatelessClient(stage.company)
        id = await client.start("later")
        process = stage.process(id)
        assert process is not None
        kill(process)
        assert (await ended(client, id))["status"] == "failed"
        await until(lambda: ends == [True])


@pytest.mark.row("26-T8")
async def test_a_handler_may_answer_without_a_task_and_then_there_is_none() -> None:
    async with running_task_server() as stage:

        @stage.server.tool(task_support="optional", defer_task=True)
        async def quick(ctx: Any) -> str:
            return "at once"

        answer = await StatelessClient(stage.company).call("quick")
        assert (answer["resultType"], answer["content"][0]["text"]) == ("complete", "at once")
        assert not stage.server.tasks.all()


@pytest.mark.row("26-T8")
async def test_a_call_stays_one_where_its_client_cannot_follow_tasks() -> None:
    async with running_task_server() as stage:
        _register_deferred(stage, task_support="optional")
        stage.gate("g").set()
        answer = await StatelessClient(stage.company, capabilities=ABLE).call("later", gate="g")
        assert answer["content"][0]["text"] == "False False"
        player = await stage.player()
        assert texts(await reply_to(player, "tools/call", name="later", arguments={"gate": "g"})) == ["False False"]
        assert texts(await result(player, await start_task(player, "later", gate="g"))) == ["True True"]


@pytest.mark.row("26-T8")
async def test_a_deferred_task_needs_a_handler_that_can_start_it() -> None:
    async with running_task_server() as stage:
        with pytest.raises(Exception, match="with defer_task its handler starts the task"):
            stage.server.tool("no_context", task_support="optional", defer_task=True)(lambda: "x")
        with pytest.raises(Exception, match="with defer_task its handler starts the task"):
            stage.server.tool("no_task", defer_task=True)(lambda ctx: "x")


@pytest.mark.row("26-T8")
async def test_a_handler_in_a_thread_starts_its_task_too() -> None:
    async with running_task_server() as stage:

        @stage.server.tool(task_support="optional", defer_task=True)
        def threaded(ctx: Any) -> str:
            return f"{ctx.wait(ctx.start_task())} {ctx.wait(ctx.elicit('who?', {'type': 'object', 'properties': {}})).action}"

        client = StatelessClient(stage.company)
        id = await client.start("threaded")
        (key,) = await asking(client, id)
        await client.result("tasks/update", taskId=id, inputResponses={key: {"action": "decline"}})
        assert (await ended(client, id))["result"]["content"][0]["text"] == "True decline"


@pytest.mark.row("26-T8")
async def test_a_task_that_cannot_be_started_is_an_error_that_the_handler_may_handle() -> None:
    async with running_task_server(Settings(max_tasks=1)) as stage:

        @stage.server.tool(task_support="optional", defer_task=True)
        async def careful(ctx: Any) -> str:
            try:
                return str(await ctx.start_task())
            except McpError as error:
                return error.message

        client = StatelessClient(stage.company)
        await client.start("wait", gate="shut")
        answer = await client.call("careful")
        assert answer["resultType"] == "complete"
        assert answer["content"][0]["text"].startswith("Too many tasks")


def _register_composition(stage: TaskServer, support: str = "required") -> None:
    @stage.server.tool(task_support=support, defer_task=True)  # type: ignore[arg-type]
    async def greets(ctx: Any) -> str:
        stage.seen.append("run")
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        asked = await ctx.elicit("before?", form)
        is_task = await ctx.start_task()
        if not is_task:
            return f"no task for {asked.value['name']}"
        await stage.gate("g").wait()
        again = await ctx.elicit("after?", form)
        return f"{asked.value['name']} and {again.value['name']}"


def named(name: str) -> dict[str, Any]:
    """The answer to a form."""
    return {"action": "accept", "content": {"name": name}}


@pytest.mark.row("26-T8")
async def test_a_question_before_the_task_is_the_calls_and_one_after_it_the_tasks() -> None:
    async with running_task_server() as stage:
        _register_composition(stage)
        client = StatelessClient(stage.company)
        asked = await client.call("greets")
        assert asked["resultType"] == "input_required"
        assert "taskId" not in asked
        assert not stage.server.tasks.all()
        ((key, question),) = asked["inputRequests"].items()
        assert question["params"]["message"] == "before?"
        created = await client.result(
            "tools/call",
            name="greets",
            arguments={},
            inputResponses={key: named("alice")},
            requestState=asked["requestState"],
        )
        assert created["resultType"] == "task"
        assert not created.keys() & {"requestState", "inputRequests"}
        id = created["taskId"]
        assert (await client.get(id))["status"] == "working"
        stage.gate("g").set()
        ((later, question),) = (await asking(client, id)).items()
        assert question["params"]["message"] == "after?"
        await client.result("tasks/update", taskId=id, inputResponses={later: named("bob")})
        assert (await ended(client, id))["result"]["content"][0]["text"] == "alice and bob"
        assert stage.seen == ["run"]
        assert (stage.company.exchanges.open, stage.company.exchanges.parked) == (0, 0)


@pytest.mark.row("26-T1")
@pytest.mark.row("26-T8")
@pytest.mark.parametrize("support", ["required", "optional"])
async def test_the_request_that_would_get_the_task_has_to_declare_the_extension_itself(support: str) -> None:
    async with running_task_server() as stage:
        _register_composition(stage, support)
        client = StatelessClient(stage.company)
        asked = await client.call("greets")
        (key,) = asked["inputRequests"]
        client.capabilities = ABLE
        retry = {"inputResponses": {key: named("alice")}, "requestState": asked["requestState"]}
        reply = await client.reply("tools/call", name="greets", arguments={}, **retry)
        message = json.loads(reply.body)
        if support == "required":
            assert (reply.status, message["error"]["code"], message["error"]["data"]) == (400, -32021, MISSING)
        else:
            assert message["result"]["content"][0]["text"] == "no task for alice"
        assert not stage.server.tasks.all()


# --- T9: no messages, and notifications for those that listen


@pytest.mark.row("26-T9")
async def test_a_task_sends_no_progress_and_no_messages() -> None:
    async with running_task_server() as stage:
        heard: list[bool] = []

        @stage.server.tool(task_support="optional")
        async def talk_on(ctx: Any) -> str:
            await stage.gate("g").wait()
            heard.extend(
                bool(each) for each in (ctx.progress(1, 2), ctx.info("half way"), ctx.notify("notifications/odd"))
            )
            return "talked"

        owner = Peer("test", principal="ada")
        client = StatelessClient(stage.company, owner)
        id = await client.start("talk_on")
        player = await stage.player(owner)
        waiting = asyncio.ensure_future(reply_to(player, "tasks/result", taskId=id))
        await asyncio.sleep(0.1)
        stage.gate("g").set()
        assert texts(await waiting) == ["talked"]
        assert heard == [False, False, False]


class Watcher:
    """A process that watches tasks would be one of these: it notes what it is sent."""

    def __init__(self, number: int = 1) -> None:
        self.pid: Any = number
        self.records: list[Any] = []
        self.alive = True

    def send(self, message: object) -> bool:
        assert isinstance(message, TaskChanged)
        self.records.append(message.record)
        return self.alive


def facts_of(client: StatelessClient) -> Any:
    return SessionFacts("", STATELESS, client.peer, {}, client.capabilities)


@pytest.mark.row("26-T9")
async def test_a_watcher_is_told_of_each_change_and_of_the_end() -> None:
    async with running_task_server() as stage:
        _register_two(stage)
        client = StatelessClient(stage.company)
        id = await client.start("two")
        both = await asking(client, id, 2)
        watcher: Any = Watcher()
        (now,) = watch_tasks(stage.company, facts_of(client), [id, id, "task_nowhere"], watcher)
        assert now == stage.record(id)
        for key in (*both, "question-3"):
            await client.result("tasks/update", taskId=id, inputResponses={key: ANNE})
            await asyncio.sleep(0.1)
        open_questions = [
            len(msgspec.json.decode(each.input_requests)) if each.input_requests else each.status
            for each in watcher.records
        ]
        assert open_questions == [1, "working", 1, "working", "completed"]
        assert len(stage.company.tasks.watchers) == 0


@pytest.mark.row("26-L8")
async def test_watching_needs_the_extension_and_the_owner() -> None:
    async with running_task_server() as stage:
        ada = StatelessClient(stage.company, Peer("test", principal="ada"))
        id = await ada.start("wait", gate="g")
        watcher: Any = Watcher()
        with pytest.raises(McpError) as refused:
            watch_tasks(stage.company, facts_of(StatelessClient(stage.company, capabilities=ABLE)), [id], watcher)
        assert (refused.value.code, refused.value.data) == (-32021, MISSING)
        bob = StatelessClient(stage.company, Peer("test", principal="bob"))
        assert watch_tasks(stage.company, facts_of(bob), [id], watcher) == []
        assert len(watch_tasks(stage.company, facts_of(ada), [id], watcher)) == 1
        stage.company.tasks.watchers.unwatch([id, "task_nowhere"], watcher)
        stage.gate("g").set()
        await ended(ada, id)
        assert watcher.records == []


@pytest.mark.row("26-T9")
async def test_a_watcher_that_is_gone_is_forgotten() -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company)
        id = await client.start("wait", gate="shut")
        gone: Any = Watcher()
        gone.alive = False
        watch_tasks(stage.company, facts_of(client), [id], gone)
        stage.server.tasks.update(id, "half way")
        await asyncio.sleep(0.1)
        assert len(stage.company.tasks.watchers) == 0


# --- T10: owners


@pytest.mark.row("26-T10")
@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize(
    "stranger", [Peer("test", principal="bob"), Peer("test"), Peer("stdio"), Peer("test", principal=("ada",))]
)
async def test_a_task_of_another_principal_looks_unknown(method: str, stranger: Peer) -> None:
    async with running_task_server() as stage:
        ada = StatelessClient(stage.company, Peer("test", principal="ada"))
        id = await ada.start("ask")
        (key,) = await asking(ada, id)
        other = StatelessClient(stage.company, stranger)
        error = await other.error(method, taskId=id, inputResponses={key: ANNE})
        assert error == await other.error(method, taskId="task_nowhere", inputResponses={})
        assert stage.record(id).status == "input_required"


@pytest.mark.row("26-T10")
async def test_the_id_alone_gives_an_anonymous_client_access_and_no_principal() -> None:
    async with running_task_server() as stage:
        here, there = Peer("http", "192.0.2.1:4000", proxied=False), Peer("http", "192.0.2.2:4000", proxied=False)
        id = await StatelessClient(stage.company, here).start("wait", gate="shut")
        assert len(id.removeprefix("task_")) >= 32
        assert (await StatelessClient(stage.company, there).get(id))["status"] == "working"
        principal = StatelessClient(stage.company, Peer("http", "192.0.2.1:4000", principal="ada", proxied=False))
        assert (await principal.error("tasks/get", taskId=id))["code"] == ErrorCode.INVALID_PARAMS


@pytest.mark.row("26-T10")
async def test_anonymous_clients_have_a_share_of_their_own_by_address() -> None:
    async with running_task_server(Settings(max_tasks=1)) as stage:
        for address in ("192.0.2.1:4000", "192.0.2.2:4000"):
            client = StatelessClient(stage.company, Peer("http", address, proxied=False))
            await client.start("wait", gate="shut")
            error = await client.error("tools/call", name="wait", arguments={"gate": "shut"})
            assert error["data"]["reason"] == "too_many_tasks"


class _Nameless:
    """A principal that cannot be told from others in writing."""


@pytest.mark.row("26-T10")
async def test_a_principal_that_cannot_be_written_down_owns_no_tasks() -> None:
    async with running_task_server() as stage:
        stage.gate("open").set()
        client = StatelessClient(stage.company, Peer("test", principal=_Nameless()))
        assert (await client.call("wait", gate="open"))["resultType"] == "complete"
        assert "_Nameless" in (await client.error("tools/call", name="only"))["message"]
        id = await StatelessClient(stage.company).start("wait", gate="shut")
        assert (await client.error("tasks/get", taskId=id))["code"] == ErrorCode.INVALID_PARAMS


# --- both eras


ADA = Peer("test", principal="ada")


@pytest.mark.row("26-T3")
@pytest.mark.row("26-T7")
async def test_a_task_of_a_session_is_read_without_one() -> None:
    async with running_task_server() as stage:
        stage.gate("open").set()
        player, client = await stage.player(ADA), StatelessClient(stage.company, ADA)
        failed = await start_task(player, "fail", how="told")
        number = await start_task(player, "long", gate="open")
        assert (await ended(client, failed))["status"] == "completed"
        assert await status(player, failed) == "failed"
        task = await ended(client, number)
        assert RELATED not in task["result"].get("_meta", {})
        assert task["ttlMs"] > 0
        assert "ttl" not in task
        assert (await result(player, number))["result"]["_meta"] == {RELATED: {"taskId": number}}


@pytest.mark.row("26-T4")
async def test_a_question_of_a_session_is_answered_without_one() -> None:
    async with running_task_server() as stage:
        player, client = await stage.player(ADA), StatelessClient(stage.company, ADA)
        id = await start_task(player, "ask")
        (key,) = await asking(client, id)
        waiting = await player.reply("tasks/result", taskId=id)  # the question goes onto this stream as well
        await asyncio.sleep(0.2)
        await client.result("tasks/update", taskId=id, inputResponses={key: ANNE})
        assert (await ended(client, id))["result"]["content"][0]["text"] == ASKED_ANNE
        messages = messages_in(await read(waiting))  # type: ignore[arg-type]
        asked, taken, answer = messages
        assert asked["method"] == "elicitation/create"
        assert (taken["method"], taken["params"]["requestId"]) == ("notifications/cancelled", asked["id"])
        assert texts(answer) == [ASKED_ANNE]


@pytest.mark.row("26-T5")
async def test_a_task_of_a_session_is_cancelled_without_one() -> None:
    async with running_task_server() as stage:
        player, client = await stage.player(ADA), StatelessClient(stage.company, ADA)
        id = await start_task(player, "wait", gate="shut")
        await client.result("tasks/cancel", taskId=id)
        await ended(client, id)
        assert await status(player, id) == "cancelled"


@pytest.mark.row("26-T3")
async def test_a_task_without_a_session_is_read_answered_and_cancelled_in_one() -> None:
    async with running_task_server() as stage:
        stage.gate("open").set()
        probe = await stage.probe({"elicitation/create": lambda _: ANNE}, peer=ADA)
        client = StatelessClient(stage.company, ADA)
        seven = await client.start("long", gate="open")
        await ended(client, seven)
        answer = (await result(probe, seven))["result"]
        assert answer == {
            "content": [{"type": "text", "text": "7"}],
            "structuredContent": {"result": 7},
            "isError": False,
            "_meta": {RELATED: {"taskId": seven}},
        }
        asked = await client.start("ask")
        await asking(client, asked)
        assert texts(await result(probe, asked)) == [ASKED_ANNE]
        assert (await client.get(asked))["status"] == "completed"
        cancelled = await client.start("wait", gate="shut")
        assert (await reply_to(probe, "tasks/cancel", taskId=cancelled))["result"]["status"] == "cancelled"
        assert (await client.get(cancelled))["status"] == "cancelled"
        listed = (await reply_to(probe, "tasks/list"))["result"]["tasks"]
        assert {each["taskId"] for each in listed} == {seven, asked, cancelled}
        assert probe.notifications("notifications/tasks/status") == []  # it did not ask for these tasks


async def test_a_session_that_cannot_answer_a_question_leaves_it_to_others() -> None:
    async with running_task_server() as stage:
        client = StatelessClient(stage.company, ADA)
        id = await client.start("ask")
        async with WireProbe(stage.company, peer=ADA, capabilities={}) as unable:
            waiting = asyncio.ensure_future(result(unable, id))
            await asyncio.sleep(0.2)
            (key,) = await asking(client, id)
            await client.result("tasks/update", taskId=id, inputResponses={key: ANNE})
            assert texts(await waiting) == [ASKED_ANNE]


async def test_a_task_of_an_anonymous_session_is_not_read_without_it() -> None:
    async with running_task_server() as stage:
        player = await stage.player()
        id = await start_task(player, "wait", gate="shut")
        assert (await StatelessClient(stage.company).error("tasks/get", taskId=id))["code"] == ErrorCode.INVALID_PARAMS
        free = await StatelessClient(stage.company).start("wait", gate="shut")
        assert await status(player, free) == "working"
        assert free not in {each["taskId"] for each in (await reply_to(player, "tasks/list"))["result"]["tasks"]}


async def test_the_program_creates_a_task_for_a_caller_without_a_session() -> None:
    async with running_task_server() as stage:
        server = stage.server

        @server.tool
        async def order(ctx: Any) -> str:
            return str(server.tasks.create(ctx, "order"))

        client = StatelessClient(stage.company, ADA)
        id = (await client.call("order"))["content"][0]["text"]
        assert (await client.get(id))["status"] == "working"
        await asyncio.to_thread(server.tasks.finish, id, "two loaves")
        assert (await ended(client, id))["result"]["content"][0]["text"] == "two loaves"
        probe = await stage.probe(peer=ADA)
        own = (await probe.request("tools/call", {"name": "order"}))["content"][0]["text"]
        assert await status(probe, own) == "working"
