"""A cancelled call on real sockets: its response is complete, contains no JSON, and the connection stays open."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from greenroom import HttpConfig, Server

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


class Raw:
    """A connection with sequential requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, accept: str) -> None:
        self._reader = reader
        self._writer = writer
        self._accept = accept
        self.session = ""

    def send(self, method: str, params: Any, id: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params, **({} if id is None else {"id": id})}
        body = json.dumps(message).encode()
        head = f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: {self._accept}\r\ncontent-type: application/json\r\n"
        head += f"mcp-session-id: {self.session}\r\n" if self.session else ""
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Read the next response, which has a content length."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        status = int(head[0].split()[1])
        body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        return status, headers, body


@pytest.mark.greenroom(clock="real")
@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "application/json"])
async def test_a_cancelled_call_gets_a_response_and_its_connection_stays_open(accept: str) -> None:
    server, begun = Server("patient"), asyncio.Event()

    @server.tool
    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with server.started():
        port = httpx.URL(await server.listen(config=HttpConfig(port=0, accept="either"))).port
        calling, other = [Raw(*await asyncio.open_connection("127.0.0.1", port), accept) for _ in range(2)]
        calling.send("initialize", HELLO, 1)
        calling.session = other.session = (await calling.answer())[1]["mcp-session-id"]
        calling.send("notifications/initialized", {})
        assert (await calling.answer())[0] == 202
        calling.send("tools/call", {"name": "wait", "arguments": {}}, 2)
        await begun.wait()
        other.send("notifications/cancelled", {"requestId": 2})
        assert (await other.answer())[0] == 202
        status, headers, body = await calling.answer()
        if "event-stream" in accept:
            assert (status, headers["content-type"]) == (200, "text/event-stream")
            assert all(line.startswith(b":") for line in body.splitlines() if line), "no event"
        else:
            assert (status, body) == (202, b"")
            assert "content-type" not in headers
        calling.send("ping", {}, 3)
        status, _, body = await calling.answer()
        assert (status, json.loads(body)["result"]) == (200, {})
        for each in (calling, other):
            await each.close()
