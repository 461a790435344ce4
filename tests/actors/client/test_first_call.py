"""The connection to a company in the same loop, from the first word to the last."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.connections import start_connection

from greenroom import Server
from greenroom.actors.client.connection_line import ConnectionLine, connection_spec
from greenroom.actors.client.errors import ClientClosed
from greenroom.actors.client.interfaces import Phase
from greenroom.protocol.errors import PeerError
from greenroom.supervision import Supervisor, kill, start
from greenroom.transports.client.memory_route import MemoryRoute

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def server() -> Server:
    made = Server("stage")

    @made.tool
    async def echo(text: str) -> str:
        return text

    return made


@asynccontextmanager
async def connected(**options: Any) -> AsyncGenerator[ConnectionLine]:
    async with server().started() as company:
        line = await start_connection(MemoryRoute(company), **options)
        try:
            yield line
        finally:
            await line.close()


@pytest.mark.row("CL-01", "CL-03", "CL-05")
async def test_a_connection_greets_asks_and_closes() -> None:
    async with connected() as line:
        assert line.status.phase is not Phase.READY
        welcome = await line.ready()
        assert welcome.server_info["name"] == "stage"
        result = await line.request("tools/call", {"name": "echo", "arguments": {"text": "hello"}})
        assert result["content"] == [{"type": "text", "text": "hello"}]
        await line.notify("notifications/roots/list_changed")
        with pytest.raises(PeerError):
            await line.request("tools/call", {"name": "missing", "arguments": {}})
        await line.close()
        await line.close()
        assert line.status.phase is Phase.CLOSED
        with pytest.raises(ClientClosed):
            await line.request("tools/list")


async def test_a_request_before_the_handshake_waits_for_it() -> None:
    async with connected() as line:
        results = await asyncio.gather(*(line.request("tools/list") for _ in range(20)))
        assert all(result["tools"][0]["name"] == "echo" for result in results)


async def test_a_line_outlives_its_connection() -> None:
    async with server().started() as company:
        line = ConnectionLine("stage")
        top = await start(Supervisor, [connection_spec(MemoryRoute(company), line=line)])
        await line.ready()
        before = line.pid
        kill(before)
        async for status in line.watch():
            if status.phase is Phase.READY and line.pid != before:
                break
        assert line.status.generation == 2
        assert await line.request("ping") == {}
        del top
