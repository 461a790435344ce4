"""A server that does what a test says, byte for byte, however wrong that is; for all else it behaves."""

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

    Handler = Callable[["Visit"], Awaitable[object]]

SESSION = "the-session"


@dataclass
class Visit:
    """One request, and the way back."""

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
        """A whole answer; a header's underscores are dashes."""
        lines = [f"HTTP/1.1 {status} So", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    async def json(self, value: Any, status: int = 200, **headers: str) -> None:
        await self.reply(status, json.dumps(value).encode(), content_type="application/json", **headers)

    async def result(self, result: Any = None, **headers: str) -> None:
        await self.json(answer(self.id, result), 200, **headers)

    async def stream(self, *pieces: bytes, **headers: str) -> None:
        """Begin a stream of events, with these in it. It ends with the connection."""
        lines = ["HTTP/1.1 200 OK", "content-type: text/event-stream"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + b"".join(pieces))

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        self.writer.transport.abort()

    def reset(self) -> None:
        """Hang up, and have the kernel say that nothing more is taken."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.abort()

    async def gone(self) -> None:
        """Wait for the client to hang up."""
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
class Scripted:
    """What came, and what to do with it: a handler by method of the message, or by verb; else it behaves."""

    port: int = 0
    visits: list[Visit] = field(default_factory=list[Visit])
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

    def seen(self, what: str) -> list[Visit]:
        """The visits of one kind."""
        return [each for each in self.visits if kind(each) == what]

    async def until(self, what: str, count: int = 1) -> list[Visit]:
        """Wait for so many visits of one kind."""
        while len(found := self.seen(what)) < count:
            self.news.clear()
            await self.news.wait()
        return found

    def refuse(self) -> None:
        """Take no more connections."""
        assert self.listening is not None
        self.listening.close()

    async def vanish(self) -> None:
        """Be gone altogether."""
        self.refuse()
        for visit in self.visits:
            visit.abort()
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
                visit = Visit(number, method, path, headers, body, writer, hung_up)
                self.visits.append(visit)
                self.news.set()
                await self.handlers.get(kind(visit), self.behave)(visit)
        writer.close()

    async def behave(self, visit: Visit) -> None:
        """What a decent server does."""
        match kind(visit):
            case "initialize":
                said: dict[str, Any] = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "s", "version": "1"},
                }
                headers = {"mcp_session_id": self.session} if self.session else {}
                await visit.result(said, **headers)
            case "GET":
                await visit.reply(405)
            case "DELETE":
                await visit.reply(204)
            case _:
                if visit.id is None or "method" not in visit.message:
                    await visit.reply(202)
                else:
                    await visit.result({"content": [{"type": "text", "text": "hi"}]})


def kind(visit: Visit) -> str:
    """The method of the message that came, or the verb if there was none."""
    return str(visit.message.get("method", "answer")) if visit.method == "POST" else visit.method


@asynccontextmanager
async def scripted(**handlers: Handler) -> AsyncGenerator[Scripted]:
    """One on a free port. A handler's name is the method that it is for, `tools/call` being `call`."""
    server = Scripted()
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
        for visit in server.visits:
            visit.abort()
        tasks = tuple(server.tasks)
        for task in tasks:
            task.cancel()
        failures = [
            each for each in await asyncio.gather(*tasks, return_exceptions=True) if isinstance(each, Exception)
        ]
        await asyncio.sleep(0)
        assert not failures, failures
