"""The HTTP wire and our own server, over real sockets."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from greenroom import Context, HttpConfig, Server
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcResponse
from greenroom.transports.client.http_route import HttpRoute

from .wire_owner import WireOwner, open_wire, text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def company() -> Server:
    server = Server("ours", version="1.0")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    async def steps(count: int, ctx: Context) -> str:
        for number in range(count):
            await ctx.progress(number, count)
        return "done"

    return server


@asynccontextmanager
async def connected(server: Server, config: HttpConfig | None = None) -> AsyncGenerator[WireOwner]:
    async with server.started():
        url = await server.listen(config=config or HttpConfig(port=0))
        async with open_wire(HttpRoute(url)) as owner:
            await owner.greet()
            yield owner


@pytest.mark.row("CT-01", "CT-02", "CT-03", "CT-07")
async def test_a_handshake_and_a_call_work() -> None:
    async with connected(company()) as owner:
        assert text(await owner.answer(owner.call("echo", text="hello"))) == "hello"
        assert owner.wire.session


@pytest.mark.row("CT-03", "CT-06")
async def test_a_call_with_a_streamed_reply_works() -> None:
    async with connected(company()) as owner:
        id = owner.call("steps", count=3)
        heard = [await owner.hear() for _ in range(4)]
        assert [type(each) for each in heard] == [JsonRpcNotification] * 3 + [JsonRpcResponse]
        assert isinstance(heard[-1], JsonRpcResponse)
        assert heard[-1].id == id
