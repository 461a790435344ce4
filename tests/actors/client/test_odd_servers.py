"""A client of servers that break the protocol: lists that go round, tools that are in no list, tasks without an envelope, wires that break."""

from __future__ import annotations

import asyncio
import random
import sys
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import BadAnswer, Client, Hooks, McpError, PeerError, RequestLost, Server, ToolFailed, TooManyPages
from greenroom.transports import ConnectionLost

from .fake_server import Stage

if TYPE_CHECKING:
    from pathlib import Path

TOOL = {"name": "t", "inputSchema": {"type": "object"}}
WORKING = {"taskId": "t1", "status": "working", "createdAt": "", "lastUpdatedAt": "", "ttl": None, "pollInterval": 10}


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_a_list_that_goes_round_is_given_up_at_once(stage: Stage) -> None:
    stage.answers["tools/list"] = lambda _: {"tools": [TOOL], "nextCursor": "again"}
    async with Client(stage) as client:
        with pytest.raises(TooManyPages, match="in a circle"):
            await client.list_tools()
    assert len(stage.asked("tools/list")) == 2


async def test_an_empty_cursor_is_a_cursor(stage: Stage) -> None:
    pages: list[dict[str, Any]] = [{"tools": [TOOL], "nextCursor": ""}, {"tools": [TOOL]}]
    stage.answers["tools/list"] = lambda _: pages.pop(0)
    async with Client(stage) as client:
        assert len(await client.list_tools()) == 2
    assert [request.params for request in stage.asked("tools/list")][1] == {"cursor": ""}


async def test_a_broken_entry_is_left_out_and_logged(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    stage.answers["tools/list"] = lambda _: {"tools": [TOOL, {"name": "half"}]}
    async with Client(stage, name="odd") as client:
        assert [tool.name for tool in await client.list_tools()] == ["t"]
    assert "odd lists an invalid entry, which is left out: tools[1] (half)" in caplog.text


async def test_a_server_that_lists_no_tools_promises_nothing(stage: Stage) -> None:
    stage.answers["tools/list"] = McpError(-32601, "Method not found")
    stage.answers["tools/call"] = lambda _: {"content": [], "structuredContent": {"result": 1}}
    async with Client(stage) as client:
        assert await client.call("t") == {"result": 1}
    assert len(stage.asked("tools/list")) == 1


async def test_an_answer_that_is_none_is_a_bad_answer(stage: Stage) -> None:
    stage.answers["tools/call"] = lambda _: {"content": "text"}
    stage.answers["resources/read"] = lambda _: {}
    async with Client(stage) as client:
        for ask in (client.call("t"), client.read_resource("a:b")):
            with pytest.raises(BadAnswer):
                await ask


async def test_a_failure_without_a_word_is_said_to_have_none(stage: Stage) -> None:
    stage.answers["tools/call"] = lambda _: {"content": [], "isError": True}
    async with Client(stage) as client:
        with pytest.raises(ToolFailed, match="t: it failed without a message"):
            await client.call("t")


@pytest.mark.row("CL-10", "TF-13")
async def test_a_flat_task_is_waited_for_and_its_news_are_heard(stage: Stage) -> None:
    states = [WORKING, {**WORKING, "status": "completed"}]
    stage.answers["tools/call"] = lambda _: WORKING
    stage.answers["tasks/get"] = lambda _: states.pop(0)
    async with Client(stage) as client:
        reply = await client.call_tool("t", task=1.5)
        assert reply.task is not None
        waiting = asyncio.ensure_future(client.tasks_wait(reply.task))
        assert (await waiting).status == "completed"
    assert stage.asked("tools/call")[0].params["task"] == {"ttl": 1500}


async def test_a_call_that_was_lost_is_told_and_not_made_twice(stage: Stage) -> None:
    calls: list[int] = []

    def answer(_: Any) -> Any:
        calls.append(1)
        return ConnectionLost("pulled out") if len(calls) != 3 else {"content": []}

    stage.answers["tools/call"] = answer
    async with Client(stage) as client:
        with pytest.raises(RequestLost, match="pulled out"):
            await client.call("t")
        assert len(calls) == 1
        with pytest.raises(RequestLost):
            await client.call("t")
        await client.call("t")


@pytest.mark.row("CL-25")
async def test_other_roots_are_told() -> None:
    changed = asyncio.Event()
    server = Server("roots", hooks=Hooks(roots_changed=lambda params, facts: changed.set()))
    async with Client(server, roots=[], mode="legacy") as client:
        await client.set_roots(["file:///x"])
        await asyncio.wait_for(changed.wait(), 5)


async def test_clients_over_sockets_and_of_programs_come_and_go_in_any_order(tmp_path: Path) -> None:
    program = tmp_path / "child.py"
    program.write_text(
        "from greenroom import Server\ns = Server('c')\n@s.tool\ndef echo(text: str) -> str: return text\ns.run()\n"
    )
    server = Server("far")

    @server.tool
    async def echo(text: str) -> str:
        return text

    chance = random.Random(5)
    async with server.started():
        url = await server.listen(port=0)
        clients = [Client(url) for _ in range(12)] + [Client([sys.executable, str(program)]) for _ in range(3)]
        for step in ("open", "call", "close"):
            chance.shuffle(clients)
            work = [client.call("echo", text="x") if step == "call" else getattr(client, step)() for client in clients]
            await asyncio.wait_for(asyncio.gather(*work), 30)
    assert [client.line.pid for client in clients] == [None] * 15


async def test_an_error_has_the_servers_own_words(stage: Stage) -> None:
    stage.answers["prompts/get"] = McpError(-32602, "no such prompt", {"name": "x"})
    async with Client(stage) as client:
        with pytest.raises(PeerError, match="no such prompt") as failed:
            await client.get_prompt("x")
        assert failed.value.data == {"name": "x"}
