"""Tools that can only be called as tasks: a call of one makes a task, and returns the task's result."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from greenroom import Client, Host, PeerError, RequestTimeout, Server
from greenroom.actors.client.errors import ClientClosed
from greenroom.actors.client.pending_requests import PendingRequest
from greenroom.actors.client.task_only_tools import call_as_task
from greenroom.protocol.errors import ErrorCode


def research() -> tuple[Server, dict[str, Any]]:
    server = Server("s")
    seen: dict[str, Any] = {"began": asyncio.Event(), "ended": asyncio.Event()}

    @server.tool(task_support="required")
    async def research(topic: str) -> str:
        if topic == "long":
            seen["began"].set()
            try:
                await asyncio.Event().wait()
            finally:
                seen["ended"].set()
        if topic == "bad":
            raise ValueError("no such topic")
        return f"found {topic}"

    @server.tool
    async def plain() -> str:
        return "plain"

    return server, seen


async def test_a_host_calls_it_as_a_task_for_a_program_and_for_its_model() -> None:
    server, _ = research()
    async with Host({"s": server}) as host:
        assert await host.call("s:research", topic="x") == "found x"
        assert (await host.call_tool("s:research", {"topic": "y"})).text == "found y"
        assert await host.server("s").call("research", topic="z") == "found z"
        block = {"type": "tool_use", "id": "1", "name": "s__research", "input": {"topic": "x"}}
        assert (await host.run(block))["content"] == [{"type": "text", "text": "found x"}]
        block["input"] = {"topic": "bad"}
        assert (await host.run(block))["is_error"]


async def test_a_client_calls_it_as_a_task_once_the_server_has_refused_a_call() -> None:
    server, _ = research()
    async with Client(server, mode="legacy") as client:
        assert await client.call("research", topic="x") == "found x"
        assert (await client.call_tool("research", {"topic": "y"})).text == "found y"
        assert (await client.call_tool("research", {"topic": "z"}, task=True)).task is not None
        assert await client.call("plain") == "plain"
        with pytest.raises(PeerError) as refused:
            await client.start_tool("research", {"topic": "x"})
        assert refused.value.code == ErrorCode.METHOD_NOT_FOUND


@pytest.mark.row("26-T11")
async def test_in_the_stateless_era_such_a_tool_is_called_like_any_other() -> None:
    server, _ = research()
    async with Client(server) as client:
        assert await client.call("research", topic="x") == "found x"
        assert (await client.call_tool("research", {"topic": "z"}, task=True)).task is not None
        assert (await client.start_tool("research", {"topic": "y"})).text == "found y"
        result = await call_as_task(client.line, {"name": "research", "arguments": {"topic": "w"}})
        assert result["content"] == [{"type": "text", "text": "found w"}]


async def test_a_task_that_is_not_waited_for_any_more_is_cancelled() -> None:
    server, seen = research()
    async with Host({"s": server}) as host:
        await host.call("s:plain")
        with pytest.raises(RequestTimeout):
            await host.call_tool("s:research", {"topic": "long"}, timeout=5.0)
        await asyncio.wait_for(seen["ended"].wait(), 30)
        seen["began"].clear()
        seen["ended"].clear()
        call = asyncio.ensure_future(host.call("s:research", topic="long"))
        await seen["began"].wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(seen["ended"].wait(), 30)


async def test_an_error_that_comes_after_its_caller_has_left_is_not_logged() -> None:
    loop = asyncio.get_running_loop()
    logged: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: logged.append(context))
    begun: list[PendingRequest] = []

    class Silent:
        def begin(self, method: str, params: dict[str, Any], *, as_task: bool) -> PendingRequest:
            assert as_task
            begun.append(PendingRequest(loop, 1, method, params))
            return begun[0]

    line: Any = Silent()
    call = asyncio.ensure_future(call_as_task(line, {"name": "slow"}))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    begun.pop().settle(None, ClientClosed())
    for _ in range(3):
        await asyncio.sleep(0)
    del call
    gc.collect()
    assert logged == []
