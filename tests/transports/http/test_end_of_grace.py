"""Calls still running at the end of the grace are answered with an error before their connections close."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from .raw_http import message, request, running_listener

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.greenroom(clock="real")


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)


def error_in(body: bytes) -> Any:
    return json.loads(body)["error"]


async def test_a_waiting_call_is_answered_in_json() -> None:
    async with running_listener(drain_grace=0.1) as opened:
        client = await opened.entered()
        await client.send(request("POST", body=message("wait", 5), mcp_session_id="s1"))
        session = opened.router.sessions["s1"]
        await until(lambda: session.waiting)
        stopping = asyncio.create_task(opened.stop())
        reply = await client.reply()
        assert reply.status == 200
        assert (reply.json["id"], reply.json["error"]["code"]) == (5, -32603)
        assert "may have been done or not" in reply.json["error"]["message"]
        assert await client.rest() == b""
        await stopping


async def test_a_streaming_call_is_answered_on_its_stream() -> None:
    async with running_listener(drain_grace=0.1) as opened:
        client = await opened.entered()
        await client.send(request("POST", body=message("stream", 6, finish=False), mcp_session_id="s1"))
        assert (await client.head()).status == 200
        assert (await client.chunk()).startswith(b"id: p1:0")
        stopping = asyncio.create_task(opened.stop())
        last = await client.chunk()
        assert error_in(last.removeprefix(b"data: "))["code"] == -32603
        assert await client.rest() == b"0\r\n\r\n"
        await stopping


async def test_a_call_that_ends_within_the_grace_gets_its_own_reply() -> None:
    async with running_listener(drain_grace=30.0) as opened:
        client = await opened.entered()
        await client.send(request("POST", body=message("wait", 5), mcp_session_id="s1"))
        session = opened.router.sessions["s1"]
        await until(lambda: session.waiting)
        stopping = asyncio.create_task(opened.stop())
        await asyncio.sleep(0)
        session.go.set()
        assert "result" in (await client.reply()).json
        await stopping


async def test_a_restarted_listener_accepts_calls_again() -> None:
    async with running_listener() as opened:
        opened.engine.stop_listening()
        opened.engine.end_calls()
        opened.engine.start_listening()
        client = await opened.entered()
        assert "result" in (await client.call("echo")).json
