"""Questions of a task: they go to the call that waits for its result, and URL elicitations end as for any other call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom import Accepted, Context, PeerError, ToolResult, UrlElicitation, UrlElicitationRequired
from greenroom.supervision import CallTimeout

from .question_server import result_text, running_question_server
from .test_sampling import WEATHER, answered, use, words
from .test_url_elicitations import DONE, URL, accepts, out

RELATED = "io.modelcontextprotocol/related-task"


async def begin(probe: Any, tool: str) -> str:
    """Call a tool as a task: the task's id."""
    created = await probe.request("tools/call", {"name": tool, "arguments": {}, "task": {"ttl": 60_000}})
    id: str = created["task"]["taskId"]
    return id


async def test_a_task_can_elicit_a_url() -> None:
    visited: list[str] = []

    async def pay(ctx: Context) -> str:
        answer = await ctx.elicit_url("Please pay.", URL)
        assert isinstance(answer, Accepted)
        visited.append(answer.value)
        return answer.action

    async with running_question_server() as stage:
        stage.server.tool(task_support="optional")(pay)
        probe = await stage.probe({"elicitation/create": accepts})
        task = await begin(probe, "pay")
        assert result_text(await probe.request("tasks/result", {"taskId": task})) == "accept"
        [asked] = probe.notifications("elicitation/create")
        assert (asked["mode"], asked["_meta"][RELATED]) == ("url", {"taskId": task})
        [id] = visited
        assert out(stage) == [asked["elicitationId"]] == [id]
        assert stage.server.elicitation_complete(id)
        assert await probe.wait_for_notifications(DONE) == [{"elicitationId": id}]


@pytest.mark.row("WC-25")
async def test_a_task_may_end_with_a_url_elicitation_required_error() -> None:
    async def enter() -> str:
        raise UrlElicitationRequired(UrlElicitation("Connect.", URL))

    async with running_question_server() as stage:
        stage.server.tool(task_support="optional")(enter)
        probe = await stage.probe()
        task = await begin(probe, "enter")
        with pytest.raises(PeerError) as refused:
            await probe.request("tasks/result", {"taskId": task})
        assert refused.value.code == -32042
        [page] = refused.value.data["elicitations"]
        assert stage.server.elicitation_complete(page["elicitationId"])
        assert await probe.wait_for_notifications(DONE) == [{"elicitationId": page["elicitationId"]}]


async def test_a_task_has_the_model_use_tools() -> None:
    async def travel(ctx: Context) -> str:
        first = await ctx.sample("Where to?", tools=[WEATHER])
        [used] = first.tool_uses
        results = {"role": "user", "content": [ToolResult.of(used, "sunny")]}
        return (await ctx.sample(["Where to?", first, results], tools=[WEATHER])).text

    turns = iter([answered(use("c", city="Paris"), stop="toolUse"), answered(words("Paris."))])
    async with running_question_server() as stage:
        stage.server.tool(task_support="optional")(travel)
        probe = await stage.probe({"sampling/createMessage": lambda _: next(turns)})
        task = await begin(probe, "travel")
        assert result_text(await probe.request("tasks/result", {"taskId": task})) == "Paris."
        assert {each["_meta"][RELATED]["taskId"] for each in probe.notifications("sampling/createMessage")} == {task}


@pytest.mark.row("SC-11")
async def test_a_task_that_stops_waiting_takes_its_question_back() -> None:
    async def impatient(ctx: Context) -> str:
        try:
            async with asyncio.timeout(3):
                await ctx.elicit_url("Please pay.", URL)
        except TimeoutError:
            pass
        try:
            await ctx.elicit("Who?", int, timeout=2)
        except CallTimeout:
            return "never mind"
        return "never"

    async with running_question_server() as stage:
        stage.server.tool(task_support="optional")(impatient)
        probe = await stage.probe({"elicitation/create": lambda _: asyncio.sleep(60)})
        task = await begin(probe, "impatient")
        assert result_text(await probe.request("tasks/result", {"taskId": task}, within=10)) == "never mind"
        assert len(probe.notifications("notifications/cancelled")) == 2
        assert out(stage) == []
        assert await stage.questions() == []


@pytest.mark.row("SC-11")
async def test_a_task_that_is_cancelled_while_the_user_thinks_takes_its_question_back() -> None:
    async def pay(ctx: Context) -> str:
        return (await ctx.elicit_url("Please pay.", URL)).action

    async with running_question_server() as stage:
        stage.server.tool(task_support="optional")(pay)
        probe = await stage.probe({"elicitation/create": lambda _: asyncio.sleep(60)})
        task = await begin(probe, "pay")
        waiting = await probe.ask("tasks/result", {"taskId": task})
        await probe.wait_for_notifications("elicitation/create")
        assert len(out(stage)) == 1
        await probe.request("tasks/cancel", {"taskId": task})
        await probe.answer(waiting)
        assert len(await probe.wait_for_notifications("notifications/cancelled")) == 1
        assert out(stage) == []
        assert await stage.questions() == []
