"""Calls that become tasks while they run, of tools with `defer_task`."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Settings
from greenroom.protocol.errors import McpError, RequestCancelled
from greenroom.supervision import kill

from .stateless_client import ABLE, MISSING, HeldStore, StatelessClient, asking, ended, named, use_store
from .task_server import reply_to, result, running_task_server, start_task, texts, until

if TYPE_CHECKING:
    from greenroom.actors.handler_options import TaskSupport

    from .task_server import TaskServer


# --- T8: a question before the call is a task


def _register_deferred(stage: TaskServer, support: TaskSupport = "required") -> None:
    @stage.server.tool(task_support=support, defer_task=True)
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


@pytest.mark.row("26-T5")
async def test_a_client_that_leaves_after_its_call_has_become_a_task_cancels_nothing() -> None:
    async with running_task_server() as stage:

        @stage.server.tool(task_support="optional", defer_task=True)
        async def later(ctx: Any) -> str:
            ctx.progress(1)
            await ctx.start_task()
            await stage.gate("g").wait()
            return "done"

        client = StatelessClient(stage.company)
        params = {"name": "later", "arguments": {}, "_meta": {"progressToken": "p"}}
        feed: Any = await stage.company.exchange(client.peer, client.request("tools/call", params), None, math.inf)
        messages = [json.loads(event.data) for event in (await feed.next() or ())]
        while (events := await feed.next()) is not None:
            messages += [json.loads(event.data) for event in events]
        progress, created = messages
        assert progress["method"] == "notifications/progress"
        feed.leave()
        stage.gate("g").set()
        assert (await ended(client, created["result"]["taskId"]))["status"] == "completed"


@pytest.mark.row("26-T8")
async def test_a_call_that_ends_while_its_task_is_begun_leaves_no_task() -> None:
    async with running_task_server(Settings(cancel_grace=60)) as stage:
        after: list[str] = []

        @stage.server.tool(task_support="optional", defer_task=True, timeout=5)
        async def later(ctx: Any) -> None:
            try:
                await ctx.start_task()
            except RequestCancelled as error:
                after.append(error.reason)
                raise

        held = HeldStore(stage.company.tasks.store)
        use_store(stage.company, held)
        answer = await StatelessClient(stage.company).call("later")
        assert "timed out after 5 s" in answer["content"][0]["text"]
        held.release()
        (record,) = stage.server.tasks.all()
        await until(lambda: stage.record(record.id).status == "cancelled")
        assert after == ["it took too long"]
        await until(lambda: stage.process(record.id) is None)


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
        _register_deferred(stage, "optional")
        stage.gate("g").set()
        answer = await StatelessClient(stage.company, capabilities=ABLE).call("later", gate="g")
        assert answer["content"][0]["text"] == "False False"
        player = await stage.player()
        assert texts(await reply_to(player, "tools/call", name="later", arguments={"gate": "g"})) == ["False False"]
        assert texts(await result(player, await start_task(player, "later", gate="g"))) == ["True True"]


def _without_context() -> None:
    """A handler that cannot start a task."""


def _with_context(ctx: Any) -> None:
    """A handler that could."""


@pytest.mark.row("26-T8")
async def test_a_deferred_task_needs_a_handler_that_can_start_it() -> None:
    async with running_task_server() as stage:
        with pytest.raises(Exception, match="with defer_task its handler starts the task"):
            stage.server.tool("no_context", task_support="optional", defer_task=True)(_without_context)
        with pytest.raises(Exception, match="with defer_task its handler starts the task"):
            stage.server.tool("no_task", defer_task=True)(_with_context)


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


def _register_composition(stage: TaskServer, support: TaskSupport = "required") -> None:
    @stage.server.tool(task_support=support, defer_task=True)
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
async def test_the_request_that_would_get_the_task_has_to_declare_the_extension_itself(
    support: TaskSupport,
) -> None:
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
