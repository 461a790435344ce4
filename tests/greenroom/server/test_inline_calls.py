"""The inline path of a call through greenroom's own listener: one turn of the loop, and nothing left on the connection."""

from __future__ import annotations

import asyncio
import json
from contextvars import ContextVar
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from greenroom import HttpConfig, Server
from greenroom.auth import CustomAuth
from greenroom.transports.http1_connection import Http1Connection

if TYPE_CHECKING:
    from http.client import HTTPResponse

    import pytest

seen: ContextVar[str] = ContextVar("seen", default="nothing")


class Watcher:
    """Notes of each request that came in one piece whether it was answered before `data_received` returned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at_once: list[bool] = []
        self._writes = 0
        received, write = Http1Connection.data_received, Http1Connection.write

        def data_received(wire: Http1Connection, data: bytes) -> None:
            before = self._writes
            received(wire, data)
            if (
                b"\r\n\r\n{" in data
            ):  # else it is the head, or the body, which the standard library's client sends apart
                self.at_once.append(self._writes > before)

        def written(wire: Http1Connection, data: bytes) -> None:
            self._writes += 1
            write(wire, data)

        monkeypatch.setattr(Http1Connection, "data_received", data_received)
        monkeypatch.setattr(Http1Connection, "write", written)


class Peer:
    """A client that is not greenroom's, with a session on one connection. Its methods block."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._path = parts.path
        self.connection = HTTPConnection(parts.hostname or "", parts.port)
        self._headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "authorization": "Bearer token",
        }
        self._ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "t", "version": "1"})
        self._send({"method": "notifications/initialized"}).read()

    def call(self, a: int, b: int) -> Any:
        """The tool's return value."""
        return self._ask("tools/call", name="add", arguments={"a": a, "b": b})["result"]["structuredContent"]["result"]

    def _ask(self, method: str, **params: Any) -> Any:
        return json.loads(self._send({"id": 1, "method": method, "params": params}).read())

    def _send(self, message: dict[str, Any]) -> HTTPResponse:
        self.connection.request("POST", self._path, json.dumps({"jsonrpc": "2.0", **message}), self._headers)
        answer = self.connection.getresponse()
        self._headers.setdefault("mcp-session-id", answer.headers.get("mcp-session-id", ""))
        return answer


async def add(a: int, b: int) -> int:
    return a + b


async def test_a_call_is_answered_in_the_turn_in_which_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("straight")
    server.tool(add)
    async with server.started():
        peer = await asyncio.to_thread(Peer, await server.listen(config=HttpConfig(port=0)))
        try:
            watcher = Watcher(monkeypatch)
            while len(watcher.at_once) < 5:
                assert await asyncio.to_thread(peer.call, 1, 2) == 3
        finally:
            peer.connection.close()
    assert watcher.at_once == [True] * 5


async def test_a_request_leaves_nothing_in_the_context_of_the_next_one_on_its_connection() -> None:
    before: list[str] = []

    async def check(token: str) -> dict[str, str]:
        before.append(seen.get())
        seen.set(token)
        await asyncio.sleep(0)
        seen.set(f"{token} again")
        return {"subject": "one"}

    server = Server("straight", auth=CustomAuth(check))
    server.tool(add)
    async with server.started():
        peer = await asyncio.to_thread(Peer, await server.listen(config=HttpConfig(port=0)))
        try:
            assert await asyncio.to_thread(peer.call, 1, 2) == 3
            assert await asyncio.to_thread(peer.call, 1, 3) == 4
        finally:
            peer.connection.close()
    assert before == ["nothing"] * 4
