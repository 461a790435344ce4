"""The time of a served call by layer, in one process: each benchmark includes one layer more than the one before.

Only the HTTP server is missing: a call in the contest costs its floor plus the last of these.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.benchmark_types import Run, benchmark
from greenroom import Server
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest, parse
from greenroom.transports.asgi import AsgiEndpoint
from greenroom.transports.http_engine import HttpEngine
from greenroom.transports.interfaces import EncodedReply, Peer

from .sessions import VERSION, encoded

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.actors.company import Company
    from greenroom.transports.interfaces import SessionHandle

FIRST = 100_000_000
TEXT = "Curtain up: two hours of traffic on the stage."
INFO = {"name": "load", "version": "1"}
HELLO = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": INFO}
ADDRESS = ("127.0.0.1", 50_000)


def call(number: int, tool: str = "echo") -> bytes:
    """The body of a call."""
    params = {"name": tool, "arguments": {"text": TEXT}}
    return encoded({"jsonrpc": "2.0", "id": FIRST + number, "method": "tools/call", "params": params})


@asynccontextmanager
async def entered() -> AsyncGenerator[tuple[Company, SessionHandle]]:
    """A running company with a ready session."""
    server = Server("echo")

    @server.tool
    async def echo(text: str) -> str:  # pyright: ignore[reportUnusedFunction] - called over the wire
        return text

    @server.tool
    def echo_def(text: str) -> str:  # pyright: ignore[reportUnusedFunction] - same
        return text

    async with server.started() as company:
        session, _ = await company.start_session(
            Peer("http", "127.0.0.1:50000"), JsonRpcRequest(0, "initialize", dict(HELLO))
        )
        assert session is not None
        await session.notify(JsonRpcNotification("notifications/initialized", {}))
        yield company, session


@benchmark("served: parse", count=20_000)
def parse_call(run: Run) -> None:
    """Parsing and checking a call's body."""
    bodies = [call(number) for number in range(run.count)]
    with run.measured():
        for body in bodies:
            parse(body)


@benchmark("served: session, worker", count=5_000)
async def through_the_door(run: Run) -> None:
    """The parsed call passes its session, a worker starts, runs the echo, and encodes the answer."""
    async with entered() as (_, session):
        messages = [parse(call(number)) for number in range(run.count)]
        with run.measured():
            for message in messages:
                assert isinstance(message, JsonRpcRequest)
                assert isinstance(await session.request(message), EncodedReply)


@benchmark("served: the same, def", count=5_000)
async def through_the_door_to_a_thread(run: Run) -> None:
    """The same for a plain function, which runs in a thread."""
    async with entered() as (_, session):
        messages = [parse(call(number, "echo_def")) for number in range(run.count)]
        with run.measured():
            for message in messages:
                assert isinstance(message, JsonRpcRequest)
                assert isinstance(await session.request(message), EncodedReply)


class Sink:
    """A responder that receives one reply."""

    http_version = "1.1"
    around: dict[str, str] | None = None

    def __init__(self) -> None:
        """Begin without a reply."""
        self.status = 0

    async def reply(self, status: int, headers: Any, body: bytes) -> None:  # noqa: ARG002 - the engine's interface
        """Receive the reply."""
        self.status = status

    async def stream_start(self, status: int, headers: Any, *, until_eof: bool = False) -> None:
        """Unused."""
        raise NotImplementedError

    async def stream_chunk(self, data: bytes) -> bool:
        """Unused."""
        raise NotImplementedError

    async def stream_end(self) -> None:
        """Unused."""
        raise NotImplementedError


def headers(session: SessionHandle, body: bytes) -> list[tuple[bytes, bytes]]:
    """The headers of a request in ASGI's form."""
    return [
        (b"host", b"127.0.0.1:9090"),
        (b"accept", b"application/json, text/event-stream"),
        (b"mcp-protocol-version", VERSION.encode()),
        (b"mcp-session-id", session.id.encode()),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
    ]


@benchmark("served: + engine", count=5_000)
async def through_the_engine(run: Run) -> None:
    """The same with the HTTP engine's checks, the parsing and the reply."""
    async with entered() as (company, session):
        engine = HttpEngine(company)
        bodies = [call(number) for number in range(run.count)]
        with run.measured():
            for body in bodies:
                sink = Sink()
                await engine.handle("POST", "/mcp", headers(session, body), body, sink, address="127.0.0.1:50000")
                assert sink.status == 200  # noqa: PLR2004 - HTTP's own


async def deliver(endpoint: AsgiEndpoint, named: list[tuple[bytes, bytes]], body: bytes) -> None:
    """Have the ASGI application answer a request."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "headers": named,
        "client": ADDRESS,
        "state": {"greenroom.patient": True},
    }
    await endpoint(scope, receive, send)
    assert sent[0]["status"] == 200  # noqa: PLR2004 - HTTP's own


@benchmark("served: + ASGI", count=5_000)
async def through_asgi(run: Run) -> None:
    """The same with the ASGI application: a whole call except for the HTTP server."""
    async with entered() as (company, session):
        endpoint = AsgiEndpoint(HttpEngine(company))
        bodies = [call(number) for number in range(run.count)]
        with run.measured():
            for body in bodies:
                await deliver(endpoint, headers(session, body), body)
