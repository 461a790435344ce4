"""Sessions with the real workers and registry: what a tool says and asks on its way, and the deadline that it was registered with."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from greenroom.actors.company import Company
from greenroom.actors.context import Context  # noqa: TC001 - the registry reads the hints
from greenroom.actors.handler_options import ToolOptions
from greenroom.actors.settings import Settings
from greenroom.protocol.jsonrpc import JsonRpcResponse
from greenroom.supervision.testing import start_supervised

from .session_client import SessionClient, join, messages_in, read, turns


async def begin(*tools: Any, settings: Settings | None = None, **options: Any) -> tuple[Company, SessionClient]:
    """A company with these tools, each with these options, and a client."""
    company = Company(settings)
    await start_supervised(company.child_spec())
    for tool in tools:
        await company.registry.register_tool(tool.__name__, tool, ToolOptions(**options))
    return company, await join(company)


@pytest.mark.row("TF-20")
@pytest.mark.row("TF-22")
async def test_progress_and_log_messages_precede_the_result_on_the_calls_own_stream() -> None:
    async def climb(ctx: Context) -> str:
        for step in range(3):
            await ctx.progress(step, 2, f"step {step}")
        await ctx.warning("thin air")
        return "up"

    _, player = await begin(climb)
    feed = await player.reply("tools/call", id="c", name="climb", _meta={"progressToken": "t"})
    messages = messages_in(await read(feed))
    assert [each.get("params", {}).get("progress") for each in messages] == [0, 1, 2, None, None]
    assert messages[0]["params"] == {"progressToken": "t", "progress": 0, "total": 2, "message": "step 0"}
    assert messages[3]["params"] == {"level": "warning", "data": "thin air"}
    assert messages[4]["result"]["content"][0]["text"] == "up"


@pytest.mark.row("SC-11")
async def test_a_tool_asks_the_clients_model_and_user() -> None:
    async def ask(ctx: Context) -> str:
        sampled = await ctx.sample("hello")
        roots = await ctx.roots()
        return f"{sampled.text} {[root.uri for root in roots]}"

    _, player = await begin(ask)
    feed = await player.reply("tools/call", id="c", name="ask")
    (first,) = messages_in(await read(feed))
    assert first["method"] == "sampling/createMessage"
    sampled = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}
    await player.session.respond(JsonRpcResponse(first["id"], sampled))
    (second,) = messages_in(await read(feed))
    assert second["method"] == "roots/list"
    await player.session.respond(JsonRpcResponse(second["id"], {"roots": [{"uri": "file:///x"}]}))
    (answer,) = messages_in(await read(feed))
    assert answer["result"]["content"][0]["text"] == "hi ['file:///x']"


@pytest.mark.row("TF-21")
async def test_a_tools_own_deadline_is_not_extended_by_messages() -> None:
    async def talk(ctx: Context) -> str:
        while True:
            await ctx.info("still here")
            await asyncio.sleep(1)

    _, player = await begin(talk, timeout=5)
    began = asyncio.get_running_loop().time()
    feed = await player.reply("tools/call", id="c", name="talk")
    messages = messages_in(await read(feed, 100))
    assert asyncio.get_running_loop().time() - began == 5
    assert messages[-1]["result"]["content"][0]["text"] == "Tool 'talk' timed out after 5 s"


@pytest.mark.row("TF-21")
async def test_a_tools_own_deadline_may_be_longer_than_the_general_one() -> None:
    async def slow() -> str:
        await asyncio.sleep(100)
        return "done"

    _, player = await begin(slow, timeout=200, settings=Settings(call_timeout=5))
    assert (await player.call("slow"))["result"]["content"][0]["text"] == "done"


@pytest.mark.row("TF-23")
@pytest.mark.greenroom(clock="real")
async def test_a_thread_sees_that_it_is_cancelled_and_is_left_to_end_by_itself() -> None:
    seen: list[str] = []
    begun, over = threading.Event(), threading.Event()

    def work(ctx: Context) -> str:
        begun.set()
        ctx.cancelled.wait_in_thread(10)
        seen.append(ctx.cancelled.reason or "")
        over.set()
        return "too late"

    _, player = await begin(work)
    waiting = player.later("work", id=1)
    await asyncio.to_thread(begun.wait, 10)
    await player.cancel(1)
    assert await waiting is None
    await asyncio.to_thread(over.wait, 10)
    assert seen == ["changed my mind"]


@pytest.mark.row("TF-23")
@pytest.mark.greenroom(clock="real")
async def test_a_thread_sees_that_its_session_has_ended() -> None:
    begun, over = threading.Event(), threading.Event()

    def work(ctx: Context) -> str:
        begun.set()
        if ctx.cancelled.wait_in_thread(10):
            over.set()
        return "too late"

    company, player = await begin(work)
    waiting = player.later("work", id=1)
    await asyncio.to_thread(begun.wait, 10)
    await company.peers.end(player.session.id)
    await asyncio.wait([waiting])
    assert await asyncio.to_thread(over.wait, 10)


async def test_a_cancelled_tool_cleans_up() -> None:
    cleaned: list[str] = []

    async def careful() -> str:
        try:
            await asyncio.sleep(1000)
        finally:
            cleaned.append("up")
        return ""

    _, player = await begin(careful)
    waiting = player.later("careful", id=1)
    await turns()
    await player.cancel(1)
    assert await waiting is None
    await asyncio.sleep(2)
    assert cleaned == ["up"]


@pytest.mark.row("SX-07")
async def test_a_tools_crash_is_reported_with_its_request_and_hidden_from_the_peer(reports: Any) -> None:
    async def leaky() -> str:
        raise ValueError("the password is 12345")

    _, player = await begin(leaky)
    answer = await player.ask("tools/call", id="request-77", name="leaky")
    assert "12345" not in str(answer)
    assert answer["result"]["isError"] is True
    told = "\n".join(str(each) for each in reports)
    assert "12345" in told
    assert "request-77" in told
