"""A client of the stateless era cancels its request by leaving: the work stops, whether a stream has begun or nothing was sent."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Context, Server
from greenroom.cli.raw_peer import HttpPeer
from greenroom.supervision import current_node, kill
from greenroom.transports import http1_connection
from greenroom.transports.asgi import AsgiEndpoint
from greenroom.transports.http_engine import HttpEngine

if TYPE_CHECKING:
    from collections.abc import MutableMapping

pytestmark = pytest.mark.greenroom(clock="real")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1_connection, "PEER_CHECK", 0.01)


@pytest.mark.row("26-H9")
@pytest.mark.parametrize(("streamed", "leaves"), [(True, "by a FIN"), (True, "by closing"), (False, "by closing")])
async def test_the_work_stops_when_the_client_leaves(leaves: str, *, streamed: bool) -> None:
    server, begun, stopped = Server("slow"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow(ctx: Context) -> None:
        await ctx.progress(0, 1)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with server.started():
        peer = HttpPeer(await server.listen(port=0))
        line = await peer.connect()
        meta = {"progressToken": "p"} if streamed else {}
        call = await peer.open("tools/call", {"name": "slow", "arguments": {}}, meta=meta, line=line)
        if streamed:
            assert (await call.next() or {})["method"] == "notifications/progress"
        await begun.wait()
        if leaves == "by a FIN":
            line.writer.write_eof()
        else:
            await line.close()
        await stopped.wait()
        await line.close()


@pytest.mark.row("26-L7")
async def test_a_listen_whose_process_has_died_ends_with_an_error_that_says_what_to_do() -> None:
    server = Server("listened")
    server.tool(asyncio.sleep)
    async with server.started() as company:
        peer = HttpPeer(await server.listen(port=0))
        listen = await peer.open("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        assert (await listen.next() or {})["method"] == "notifications/subscriptions/acknowledged"
        supervisor = current_node().named(company.name("exchanges"))
        assert supervisor is not None
        kill(supervisor.pid)
        error = (await listen.finish()).error
        assert error["code"] == -32603
        assert "listen again" in error["message"]
        assert "initialize" not in error["message"]
        await listen.close()


@pytest.mark.row("26-H9")
@pytest.mark.parametrize("streamed", [False, True])
async def test_the_work_stops_when_another_http_server_reports_a_disconnect(*, streamed: bool) -> None:
    server, begun, stopped = Server("slow"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def slow(ctx: Context) -> None:
        if streamed:
            await ctx.progress(0, 1)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await ctx.progress(1, 1)
            stopped.set()

    meta: dict[str, Any] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": "p",
    }
    params = {"name": "slow", "arguments": {}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    said = {
        "host": "127.0.0.1",
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "slow",
    }
    headers = [(name.encode(), value.encode()) for name, value in said.items()]
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async with server.started() as company:
        scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers, "client": ("127.0.0.1", 50_000)}
        incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
        serving = asyncio.ensure_future(AsgiEndpoint(HttpEngine(company))(scope, incoming.get, send))
        await begun.wait()
        incoming.put_nowait({"type": "http.disconnect"})
        await serving
        await stopped.wait()
        assert company.exchanges.open == 0
    progress = [each for each in sent if b"notifications/progress" in each.get("body", b"")]
    assert len(progress) == (1 if streamed else 0)
    assert not any(b'"result"' in each.get("body", b"") for each in sent)
