"""A server that responds as a test says, byte for byte, however wrong that is; to everything else it responds properly."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    Handler = Callable[["ReceivedRequest"], Awaitable[object]]

SESSION = "the-session"


@dataclass
class ReceivedRequest:
    """One received request, and its connection for the response."""

    connection: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter
    hung_up: asyncio.Event

    @property
    def message(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> Any:
        return self.message.get("id")

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self, status: int = 200, body: bytes = b"", **headers: str) -> None:
        """Send a whole response; underscores in header names are dashes."""
        lines = [f"HTTP/1.1 {status} So", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    async def json(self, value: Any, status: int = 200, **headers: str) -> None:
        await self.reply(status, json.dumps(value).encode(), content_type="application/json", **headers)

    async def result(self, result: Any = None, **headers: str) -> None:
        await self.json(answer(self.id, result), 200, **headers)

    async def stream(self, *pieces: bytes, **headers: str) -> None:
        """Begin an event stream with these events. It ends with the connection."""
        lines = ["HTTP/1.1 200 OK", "content-type: text/event-stream"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + b"".join(pieces))

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        self.writer.transport.abort()

    def reset(self) -> None:
        """Close the connection, and reset what still arrives."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    async def gone(self) -> None:
        """Wait until the client has disconnected."""
        await self.hung_up.wait()


def _noticed(callback: Callable[..., Any], event: asyncio.Event) -> Callable[..., Any]:
    def noticed(*args: Any) -> Any:
        event.set()
        return callback(*args)

    return noticed


def answer(id: Any, result: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": {} if result is None else result}


def event(value: Any = None, id: str = "", retry: int | None = None) -> bytes:
    """An event as most servers write it."""
    lines = [f"id: {id}"] if id else []
    lines += [] if retry is None else [f"retry: {retry}"]
    lines.append("data: " + ("" if value is None else json.dumps(value)))
    return ("\n".join(lines) + "\n\n").encode()


@dataclass
class ScriptedServer:
    """The received requests and their handlers, by method of the message or by HTTP method; without one it responds properly."""

    port: int = 0
    requests: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])
    handlers: dict[str, Handler] = field(default_factory=dict[str, "Handler"])
    session: str = SESSION
    connections: int = 0
    listening: asyncio.Server | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def on(self, what: str, handler: Handler) -> None:
        self.handlers[what] = handler

    def seen(self, what: str) -> list[ReceivedRequest]:
        """The requests of one kind."""
        return [each for each in self.requests if kind(each) == what]

    async def until(self, what: str, count: int = 1) -> list[ReceivedRequest]:
        """Wait for so many requests of one kind."""
        while len(found := self.seen(what)) < count:
            self.news.clear()
            await self.news.wait()
        return found

    def refuse(self) -> None:
        """Accept no more connections."""
        assert self.listening is not None
        self.listening.close()

    async def vanish(self) -> None:
        """Close everything."""
        self.refuse()
        for received in self.requests:
            received.abort()
        await asyncio.sleep(1)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self.connections
        self.connections += 1
        hung_up = asyncio.Event()
        protocol: Any = writer.transport.get_protocol()
        for name in ("eof_received", "connection_lost"):
            setattr(protocol, name, _noticed(getattr(protocol, name), hung_up))
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, _ = lines[0].split(" ")
                headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:-2])}
                assert len(headers) == len(lines) - 3, f"a header twice: {lines}"
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                received = ReceivedRequest(number, method, path, headers, body, writer, hung_up)
                self.requests.append(received)
                self.news.set()
                await self.handlers.get(kind(received), self.behave)(received)
        writer.close()

    async def behave(self, received: ReceivedRequest) -> None:
        """A proper response."""
        match kind(received):
            case "initialize":
                said: dict[str, Any] = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "s", "version": "1"},
                }
                headers = {"mcp_session_id": self.session} if self.session else {}
                await received.result(said, **headers)
            case "GET":
                await received.reply(405)
            case "DELETE":
                await received.reply(204)
            case _:
                if received.id is None or "method" not in received.message:
                    await received.reply(202)
                else:
                    await received.result({"content": [{"type": "text", "text": "hi"}]})


def kind(received: ReceivedRequest) -> str:
    """The method of the message, or the HTTP method without one."""
    return str(received.message.get("method", "answer")) if received.method == "POST" else received.method


@asynccontextmanager
async def scripted_server(**handlers: Handler) -> AsyncGenerator[ScriptedServer]:
    """A scripted server on a free port. A handler's name is its method, `tools/call` being `call`."""
    server = ScriptedServer()
    for name, handler in handlers.items():
        server.on({"call": "tools/call"}.get(name, name), handler)

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(server._connected(reader, writer))
        server.tasks.add(task)
        task.add_done_callback(server.tasks.discard)

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    server.listening = listening
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for received in server.requests:
            received.abort()
        tasks = tuple(server.tasks)
        for task in tasks:
            task.cancel()
        failures = [
            each for each in await asyncio.gather(*tasks, return_exceptions=True) if isinstance(each, Exception)
        ]
        await asyncio.sleep(0)
        assert not failures, failures
