"""HTTP to a complete server, from the bytes of a connection: every response is valid, and the next peer is served.

In an input, `$S` stands for the id of a session that is there, and `$L` for a body's length.
"""

from __future__ import annotations

import asyncio
import json
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.fuzz.fuzz_target import Target, numbers, pieces, seeded
from tests.fuzz.fuzzed_server import NAMES, PersistentServer
from tests.fuzz.memory_connection import Answer, Wire, answers

from greenroom.actors.session_supervisor import SessionSupervisor
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest
from greenroom.protocol.versions import LATEST
from greenroom.transports.asgi import AsgiEndpoint
from greenroom.transports.http1_connection import Http1Connection
from greenroom.transports.http_config import HttpConfig
from greenroom.transports.http_engine import HttpEngine
from greenroom.transports.hypercorn_connection import HypercornServer
from greenroom.transports.interfaces import Peer
from greenroom.transports.open_connections import OpenConnections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from greenroom.actors.company import Company
    from greenroom.transports.interfaces import SessionHandle


def hypercorned(hall: OpenConnections) -> asyncio.Protocol:
    loop = asyncio.get_running_loop()
    return asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), HypercornServer(hall).on_connect, loop=loop)


CONFIG = HttpConfig(max_body=4096, max_header=2048)
SPEAKERS: tuple[Callable[[OpenConnections], asyncio.Protocol], ...] = (Http1Connection, hypercorned)
"""The protocols that may read the bytes."""
STATUSES = {100, 200, 202, 204, 400, 403, 404, 405, 406, 408, 413, 415, 431, 501, 503, 505}
HELLO: dict[str, Any] = {
    "protocolVersion": LATEST,
    "capabilities": {"sampling": {}, "roots": {}},
    "clientInfo": {"name": "f", "version": "1"},
}
PATIENCE = 300.0

HEAD = b"host: localhost\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"


def post(message: object, more: bytes = b"mcp-session-id: $S\r\n", body: bytes | None = None) -> bytes:
    data = json.dumps(message).encode() if body is None else body
    return b"POST /mcp HTTP/1.1\r\n" + HEAD + more + b"content-length: %d\r\n\r\n" % len(data) + data


def call(name: str, id: object = 1, **arguments: object) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, "_meta": {"progressToken": id}}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


GOOD = post({"jsonrpc": "2.0", "id": "good", "method": "ping"})
GET = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nmcp-session-id: $S\r\n"


def texts() -> Iterable[bytes]:
    yield post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}, b"")
    yield post({"jsonrpc": "2.0", "method": "notifications/initialized"})
    for name in NAMES:
        yield post(call(name))
    yield post(call("add", 2, a=1)) + post(call("steps", 3)) + GOOD
    yield post(call("slow", 4)) + post(
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}}
    )
    yield GET + b"\r\n"
    yield GET + b"last-event-id: g0:0\r\nmcp-protocol-version: 2025-06-18\r\norigin: http://localhost:3\r\n\r\n"
    yield b"DELETE /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: $S\r\n\r\n" + GOOD
    yield b"OPTIONS / HTTP/1.1\r\nhost: localhost\r\norigin: http://localhost\r\n\r\nHEAD / HTTP/1.1\r\nhost: localhost\r\n\r\n"
    yield b"POST /mcp HTTP/1.1\r\n" + HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + GOOD
    yield b"POST /mcp HTTP/1.1\r\n" + HEAD + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n{}"
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    yield b"GET /mcp?a=%0d%0ab HTTP/1.0\r\n\r\n"
    yield post(call("steps", 3)).replace(b"HTTP/1.1", b"HTTP/1.0") + GOOD
    yield (
        b"GET / HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
        b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )


WORDS = (
    *(
        b"\r\n",
        b"\r\n\r\n",
        b"POST ",
        b"GET ",
        b"DELETE ",
        b"HEAD ",
        b"OPTIONS ",
        b" HTTP/1.1\r\n",
        b" HTTP/1.0\r\n",
        b"$S",
    ),
    *(
        b"host: localhost\r\n",
        b"content-length: ",
        b"transfer-encoding: chunked\r\n",
        b"connection: close\r\n",
        b"origin: ",
    ),
    *(
        b"connection: keep-alive\r\n",
        b"expect: 100-continue\r\n",
        b"upgrade: h2c\r\n",
        b"accept: */*\r\n",
        b"/mcp",
        b"0\r\n\r\n",
    ),
    *(
        b"mcp-session-id: $S\r\n",
        b"mcp-protocol-version: 2025-03-26\r\n",
        b"last-event-id: p1:0\r\n",
        b"content-encoding: gzip",
    ),
    *(
        f'"method":"{name}"'.encode()
        for name in ("ping", "tools/list", "resources/read", "prompts/get", "logging/setLevel")
    ),
    *(f'"{name}"'.encode() for name in NAMES),
    *(b'"id":1', b'"params":{', b'"result":{}', b'"jsonrpc":"2.0"', b"notifications/cancelled", b'"requestId":', b"{}"),
)


@cache
def standing() -> PersistentServer:
    return PersistentServer()


def check(data: bytes) -> None:
    front, sent = numbers(data, 4)

    async def scene(company: Company) -> None:
        await connected(company, sent, front[:3], front[3])

    standing().play(scene)


async def connected(company: Company, sent: bytes, steps: bytes, end: int) -> None:
    hall = OpenConnections(AsgiEndpoint(HttpEngine(company, CONFIG)), CONFIG)
    session = await entered(company)
    sent = sent.replace(b"$S", session.id.encode())
    wire = Wire(SPEAKERS[(end >> 2) % len(SPEAKERS)](hall))
    await wire.send(pieces(sent, steps))
    if end & 1:
        await asyncio.sleep(10 * (end & 2))
        wire.hang_up()
    elif end & 2:
        wire.lose()
    if not await wire.ended(PATIENCE):
        wire.lose()  # a stream does not end by itself
    found = answers(wire.heard, heads=b"HEAD" in sent)
    look_at(found)
    await check_still_there(company, Wire(SPEAKERS[(end >> 2) % len(SPEAKERS)](hall)))
    await hall.drain(0)
    assert not hall.open
    await leave(company)


async def entered(company: Company) -> SessionHandle:
    hello = await company.start_session(Peer("http"), JsonRpcRequest(0, "initialize", HELLO))
    assert hello.session is not None
    await hello.session.notify(JsonRpcNotification("notifications/initialized"))
    return hello.session


def look_at(found: list[Answer]) -> None:
    for answer in found:
        assert answer.status in STATUSES, answer
        if answer.headers.get("content-type") == "application/json" and answer.whole and answer.body:
            message = json.loads(answer.body)
            assert message["jsonrpc"] == "2.0"
            assert ("result" in message) != ("error" in message)
            assert answer.status in (200, *range(400, 506))


async def check_still_there(company: Company, wire: Wire) -> None:
    session = await entered(company)
    await wire.send([GOOD.replace(b"$S", session.id.encode())])
    await asyncio.sleep(1)
    (answer,) = answers(wire.heard)
    wire.hang_up()
    assert await wire.ended(PATIENCE)
    assert json.loads(answer.body) == {"jsonrpc": "2.0", "id": "good", "result": {}}


async def leave(company: Company) -> None:
    """Assert that all sessions and their tasks end, with a moment to do so."""
    for card in await company.sessions.call(SessionSupervisor.session_infos):
        await company.peers.end(card.id)
    await asyncio.sleep(10)


def fronted() -> list[bytes]:
    return seeded(texts(), b"\xff\xff\xff\3", b"\x07\x00\x20\4", b"\xff\xff\xff\7")


TARGET = Target("connections", check, fronted, WORDS, longest=3000)
