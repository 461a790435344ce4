"""HTTP by hand, on a real socket: what is sent is what the test says, byte for byte, and what comes back is read strictly."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from greenroom.supervision import Ref, Supervisor, start, stop, which_children
from greenroom.transports.asgi import AsgiEndpoint
from greenroom.transports.http_config import HttpConfig
from greenroom.transports.http_engine import HttpEngine
from greenroom.transports.http_listener import HttpListener, listener
from greenroom.transports.listening_sockets import Binding

from .engine_driver import BOTH, HELLO
from .fake_sessions import FakeDoor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.transports.asgi import App


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, port: int) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 22))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, method: str, path: str = "/mcp", body: bytes | None = None, **headers: str) -> Reply:
        """Send a request, and take its answer, whole."""
        await self.send(request(method, path, body, **headers))
        return await (self.head() if method == "HEAD" else self.reply())

    async def call(self, method: str, id: Any = 1, session: str = "s1", **params: Any) -> Reply:
        return await self.ask("POST", body=message(method, id, **params), mcp_session_id=session)

    async def head(self) -> Reply:
        """The status line and headers of what comes next."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, status, _ = lines[0].split(" ", 2)
        assert version == "HTTP/1.1", lines
        headers: dict[str, str] = {}
        for line in lines[1:-2]:
            name, _, value = line.partition(": ")
            assert name.lower() not in headers, f"{name} twice"
            headers[name.lower()] = value
        return Reply(int(status), headers)

    async def reply(self) -> Reply:
        """A whole answer."""
        reply = await self.head()
        while reply.status == 100:
            reply = await self.head()
        if reply.headers.get("transfer-encoding") == "chunked":
            while chunk := await self.chunk():
                reply.body += chunk
        elif reply.status != 204:
            reply.body = await self.reader.readexactly(int(reply.headers["content-length"]))
        return reply

    async def chunk(self) -> bytes:
        """One chunk; empty at the proper end of a chunked answer."""
        size = int(await self.reader.readline(), 16)
        data = await self.reader.readexactly(size)
        assert await self.reader.readexactly(2) == b"\r\n"
        return data

    async def rest(self) -> bytes:
        """All until the connection ends, cleanly or not."""
        data = b""
        try:
            while more := await self.reader.read(1 << 16):
                data += more
        except ConnectionError:
            pass
        return data

    def abort(self) -> None:
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


def message(method: str, id: Any = 1, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


def request(method: str, path: str = "/mcp", body: bytes | None = None, **headers: Any) -> bytes:
    """A request as a well-behaved client writes it; a header's underscores are dashes."""
    said = {"host": "127.0.0.1", "accept": BOTH, **{name.replace("_", "-"): value for name, value in headers.items()}}
    if body is not None:
        said = {"content-type": "application/json", "content-length": str(len(body)), **said}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + (body or b"")


@dataclass
class House:
    """A listener under a supervisor, with a fake company behind it."""

    door: FakeDoor
    engine: HttpEngine
    binding: Binding
    supervisor: Ref[Any]
    clients: list[Client] = field(default_factory=list[Client])

    @property
    def port(self) -> int:
        return self.binding.port

    async def listener(self) -> Ref[HttpListener]:
        (child,) = await which_children(self.supervisor)
        assert child.ref is not None
        return child.ref

    async def client(self) -> Client:
        client = await Client.to(self.port)
        self.clients.append(client)
        return client

    async def entered(self) -> Client:
        """A client that has a session, s1 if it is the first."""
        client = await self.client()
        reply = await client.ask("POST", body=json.dumps(HELLO).encode())
        assert reply.status == 200, reply
        return client

    async def stream(self, session: str = "s1", **headers: Any) -> Client:
        """A client that listens, and has had the mark."""
        client = await self.client()
        await client.send(request("GET", accept="text/event-stream", mcp_session_id=session, **headers))
        assert (await client.head()).status == 200
        assert (await client.chunk()).startswith(b"id: ")
        return client

    async def stop(self) -> None:
        await stop(self.supervisor, timeout=None)


DEFAULTS: dict[str, Any] = {"port": 0, "drain_grace": 1.0}
"""How houses are set up, unless they say otherwise: a file of tests may add to it, to run on something else as well."""


@asynccontextmanager
async def house(app: App | None = None, **settings: Any) -> AsyncGenerator[House]:
    """Open one on a free port; afterwards nothing of it is left."""
    settings = DEFAULTS | settings
    config = HttpConfig(**settings)
    door = FakeDoor()
    engine = HttpEngine(door, config)
    binding = Binding(config.host, config.port, send_buffer=config.send_buffer)
    spec = listener(app or AsgiEndpoint(engine), binding, config, engine)
    opened = House(door, engine, binding, await start(Supervisor, [spec]))
    try:
        yield opened
    finally:
        if binding.addresses:
            await opened.stop()
        for client in opened.clients:
            client.abort()
        await asyncio.sleep(0)
