"""A request without a session over HTTP/2: a stream that its client resets, or a connection that it closes, cancels the request."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.transports.http.raw_http import running_listener

from greenroom import Context, Server
from greenroom.transports.asgi import AsgiEndpoint
from greenroom.transports.http_engine import HttpEngine

from .raw_http2 import http2_client

if TYPE_CHECKING:
    from .certificate_authority import CertificateAuthority

META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "progressToken": "p",
}


def call(tool: str, id: int) -> bytes:
    params = {"name": tool, "arguments": {}, "_meta": META}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).encode()


@pytest.mark.row("26-H9")
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("leaves", ["by a reset", "by closing"])
async def test_the_work_stops_when_the_client_leaves(
    secure: dict[str, Any], authority: CertificateAuthority, leaves: str, *, streamed: bool
) -> None:
    server, begun, stopped = Server("slow"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow(ctx: Context) -> None:
        if streamed:
            await ctx.progress(0, 1)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @server.tool
    async def quick() -> str:
        return "served"

    async with server.started() as company:
        app = AsgiEndpoint(HttpEngine(company))
        async with (
            running_listener(app, **secure, http2=True) as listener,
            http2_client(listener.port, authority.client(alpn=["h2"])) as frames,
        ):
            said = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call"}
            stream = frames.post(call("slow", 1), **said, mcp_name="slow")
            await begun.wait()
            if streamed:
                await frames.until(lambda: frames.answers[stream].body)
            if leaves == "by closing":
                frames.writer.close()
            else:
                before = frames.answers[stream].body
                frames.reset(stream)
                other = await frames.answer(frames.post(call("quick", 2), **said, mcp_name="quick"))
                assert other.json["result"]["content"][0]["text"] == "served"
                assert frames.answers[stream].body == before
            await stopped.wait()
            assert company.exchanges.open == 0
