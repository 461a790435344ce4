"""HTTP by hand on a real socket: sends exactly the bytes of the test, and reads responses strictly."""

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
from .fake_sessions import FakeSessionRouter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.transports.asgi import App


@dataclass
class HttpResponse:
    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, port: int) -> RawClient:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 22))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, method: str, path: str = "/mcp", body: bytes | None = None, **headers: str) -> HttpResponse:
        """Send a request, and read the whole response."""
        await self.send(request(method, path, body, **headers))
        return await (self.head() if method == "HEAD" else self.reply())

    async def call(self, method: str, id: Any = 1, session: str = "s1", **params: Any) -> HttpResponse:
        return await self.ask("POST", body=message(method, id, **params), mcp_session_id=session)

    async def head(self) -> HttpResponse:
        """Read a status line and headers."""
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, status, _ = lines[0].split(" ", 2)
        assert version == "HTTP/1.1", lines
        headers: dict[str, str] = {}
        for line in lines[1:-2]:
            name, _, value = line.partition(": ")
            assert name.lower() not in headers, f"{name} twice"
            headers[name.lower()] = value
        return HttpResponse(int(status), headers)

    async def reply(self) -> HttpResponse:
        """Read a whole response."""
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
        """Read one chunk; empty at the proper end of a chunked response."""
        size = int(await self.reader.readline(), 16)
        data = await self.reader.readexactly(size)
        assert await self.reader.readexactly(2) == b"\r\n"
        return data

    async def rest(self) -> bytes:
        """Read until the connection ends, cleanly or not."""
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
    """Encode a request as a well-behaved client would; underscores in header names are dashes."""
    said = {"host": "127.0.0.1", "accept": BOTH, **{name.replace("_", "-"): value for name, value in headers.items()}}
    if body is not None:
        said = {"content-type": "application/json", "content-length": str(len(body)), **said}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + (body or b"")


@dataclass
class RunningListener:
    """A listener under a supervisor, with fake sessions behind it."""

    router: FakeSessionRouter
    engine: HttpEngine
    binding: Binding
    supervisor: Ref[Any]
    clients: list[RawClient] = field(default_factory=list[RawClient])

    @property
    def port(self) -> int:
        return self.binding.port

    async def listener(self) -> Ref[HttpListener]:
        (child,) = await which_children(self.supervisor)
        assert child.ref is not None
        return child.ref

    async def client(self) -> RawClient:
        client = await RawClient.to(self.port)
        self.clients.append(client)
        return client

    async def entered(self) -> RawClient:
        """A client with a session, s1 if it is the first."""
        client = await self.client()
        reply = await client.ask("POST", body=json.dumps(HELLO).encode())
        assert reply.status == 200, reply
        return client

    async def stream(self, session: str = "s1", **headers: Any) -> RawClient:
        """A client with an open standalone stream, past its first event."""
        client = await self.client()
        await client.send(request("GET", accept="text/event-stream", mcp_session_id=session, **headers))
        assert (await client.head()).status == 200
        assert (await client.chunk()).startswith(b"id: ")
        return client

    async def stop(self) -> None:
        await stop(self.supervisor, timeout=None)


DEFAULTS: dict[str, Any] = {"port": 0, "drain_grace": 1.0}
"""The settings of running listeners; a test file may add to them, to run on another implementation as well."""


@asynccontextmanager
async def running_listener(app: App | None = None, **settings: Any) -> AsyncGenerator[RunningListener]:
    """Run a listener on a free port, and stop it afterwards."""
    settings = DEFAULTS | settings
    config = HttpConfig(**settings)
    router = FakeSessionRouter()
    engine = HttpEngine(router, config)
    binding = Binding(config.host, config.port, send_buffer=config.send_buffer)
    spec = listener(app or AsgiEndpoint(engine), binding, config, engine)
    opened = RunningListener(router, engine, binding, await start(Supervisor, [spec]))
    try:
        yield opened
    finally:
        if binding.addresses:
            await opened.stop()
        for client in opened.clients:
            client.abort()
        await asyncio.sleep(0)
