"""Clients of a company in this process, over memory and over real connections, that count every answer that they get."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from greenroom.supervision import Supervisor, start, stop, which_children
from greenroom.transports.http_config import HttpConfig
from greenroom.transports.http_listener import HttpListener
from greenroom.wire_probe import WireProbe

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom import Server

Wire: TypeAlias = Literal["memory", "http"]
Message: TypeAlias = dict[str, Any]

VERSION = "2025-11-25"


class Peer(Protocol):
    """A client with a session of its own."""

    async def begin(self, tool: str) -> int:
        """Call a tool, and go on; the request's id."""
        ...

    async def answer(self, request: int) -> Message:
        """Wait for the answer to that request."""
        ...

    def answers(self, request: int) -> list[Message]:
        """All answers to that request that have come."""
        ...

    async def cancel(self, request: int) -> None:
        """Say that its answer is not wanted any more."""

    def hang_up(self) -> None:
        """Be gone, without a word."""

    async def end(self) -> None:
        """End the session, where that is not the same as to be gone."""

    async def close(self) -> None:
        """Leave."""


class MemoryPeer:
    """Over memory."""

    def __init__(self, probe: WireProbe) -> None:
        self.probe = probe

    async def begin(self, tool: str) -> int:
        return await self.probe.ask("tools/call", {"name": tool, "arguments": {}})

    async def answer(self, request: int) -> Message:
        return await self.probe.answer(request, within=3600.0)

    def answers(self, request: int) -> list[Message]:
        return [each for each in self.probe.received if each.get("id") == request and "method" not in each]

    async def cancel(self, request: int) -> None:
        await self.probe.cancel(request)

    def hang_up(self) -> None:
        self.gone = asyncio.ensure_future(self.probe.close())

    async def end(self) -> None:
        pass

    async def close(self) -> None:
        await self.probe.close()


class HttpPeer:
    """Over HTTP: each call on a connection of its own."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.session = ""
        self.count = 0
        self.received: list[Message] = []
        self.calls: dict[int, asyncio.Task[None]] = {}
        self.writers: list[asyncio.StreamWriter] = []

    async def enter(self) -> None:
        info = {"name": "peer", "version": "1"}
        hello: Message = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": info}
        headers, _ = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        self.session = headers["mcp-session-id"]
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def begin(self, tool: str) -> int:
        self.count += 1
        params: Message = {"name": tool, "arguments": {}}
        message: Message = {"jsonrpc": "2.0", "id": self.count, "method": "tools/call", "params": params}
        self.calls[self.count] = asyncio.ensure_future(self._call(message))
        return self.count

    async def _call(self, message: Message) -> None:
        headers, body = await self.post(message)
        streamed = headers.get("content-type") == "text/event-stream"
        lines = [line[6:] for line in body.splitlines() if line.startswith(b"data: ")] if streamed else [body]
        self.received += [json.loads(line) for line in lines if line]

    async def answer(self, request: int) -> Message:
        await self.calls[request]
        (answer,) = self.answers(request)
        return answer

    def answers(self, request: int) -> list[Message]:
        return [each for each in self.received if each.get("id") == request]

    async def cancel(self, request: int) -> None:
        await self.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request}})

    def hang_up(self) -> None:
        for call in self.calls.values():
            call.cancel()
        for writer in self.writers:
            writer.transport.abort()

    async def end(self) -> None:
        _, body = await self.exchange("DELETE", b"")
        assert body == b""

    async def close(self) -> None:
        await asyncio.gather(*self.calls.values(), return_exceptions=True)
        for writer in self.writers:
            writer.close()
            await asyncio.gather(writer.wait_closed(), return_exceptions=True)

    async def post(self, message: Message) -> tuple[dict[str, str], bytes]:
        """Say something, and hear what comes back."""
        return await self.exchange("POST", json.dumps(message).encode())

    async def exchange(self, method: str, body: bytes) -> tuple[dict[str, str], bytes]:
        """One request on a connection of its own, and what comes back: headers and body."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        lines = [
            f"{method} /mcp HTTP/1.1",
            "host: 127.0.0.1",
            "accept: application/json, text/event-stream",
            "content-type: application/json",
            "connection: close",
            f"content-length: {len(body)}",
            f"mcp-protocol-version: {VERSION}",
        ]
        lines += [f"mcp-session-id: {self.session}"] if self.session else []
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        status, *pairs = head.decode("latin-1").split("\r\n")
        assert status.split(" ")[1] in {"200", "202", "204"}, status
        headers = {name.lower(): value for name, _, value in (pair.partition(": ") for pair in pairs)}
        return headers, unchunked(rest) if headers.get("transfer-encoding") == "chunked" else rest


def unchunked(data: bytes) -> bytes:
    """What was sent in chunks, whole; it has to have ended properly."""
    whole = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return whole
        whole, data = whole + data[:length], data[length + 2 :]


class House:
    """A running server, and how to come in."""

    def __init__(self, server: Server, wire: Wire, port: int) -> None:
        self.server = server
        self.wire = wire
        self.port = port
        self.peers: list[Peer] = []

    async def peer(self) -> Peer:
        """A new client, with a session."""
        peer: Peer
        if self.wire == "memory":
            probe = WireProbe(self.server.company)
            peer = MemoryPeer(await probe.__aenter__())
        else:
            peer = HttpPeer(self.port)
            await peer.enter()
        self.peers.append(peer)
        return peer


@asynccontextmanager
async def house(server: Server, wire: Wire) -> AsyncGenerator[House]:
    """Run a server in the test's node; afterwards every client has left, and it is stopped."""
    config = HttpConfig(port=0, drain_grace=1.0)
    spec = server.child_spec("http", config=config) if wire == "http" else server.child_spec()
    top = await start(Supervisor, [spec])
    port = 0
    if wire == "http":
        (child,) = await which_children(server.company.listeners)
        assert child.ref is not None
        ((_, port),) = await child.ref.call(HttpListener.addresses)
    opened = House(server, wire, port)
    try:
        yield opened
    finally:
        for peer in opened.peers:
            await peer.close()
        await stop(top, timeout=None)
