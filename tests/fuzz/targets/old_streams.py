"""HTTP+SSE of 2024-11-05 to a complete server, from the bytes of two connections: one has the stream, the other posts anything.

In an input, `$S` stands for the id of the session whose stream is open. A request there is answered on the stream, once.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.fuzz.fuzz_target import Target, numbers, pieces, seeded
from tests.fuzz.fuzzed_server import LONG, NAMES, PersistentServer
from tests.fuzz.memory_connection import Wire, answers
from tests.fuzz.targets.channels import ask, cancel
from tests.fuzz.targets.connections import CONFIG, HEAD, HELLO, PATIENCE, call, leave, look_at
from tests.fuzz.targets.connections import WORDS as OTHERS

from greenroom.transports.asgi import AsgiEndpoint
from greenroom.transports.http1_connection import Http1Connection
from greenroom.transports.http_config import HttpConfig
from greenroom.transports.http_engine import HttpEngine
from greenroom.transports.open_connections import OpenConnections

if TYPE_CHECKING:
    from collections.abc import Iterable

    from greenroom.actors.company import Company

OLD = HttpConfig(max_body=CONFIG.max_body, max_header=CONFIG.max_header, old_sse=True)
GET = b"GET /sse HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n"
BEGIN: list[dict[str, Any]] = [
    {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {**HELLO, "protocolVersion": "2024-11-05"}},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]
LAST = "last of all"


def post(*messages: object, where: bytes = b"session_id=$S") -> bytes:
    requests: list[bytes] = []
    for message in messages:
        body = json.dumps(message).encode()
        requests.append(
            b"POST /messages?" + where + b" HTTP/1.1\r\n" + HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
        )
    return b"".join(requests)


def texts() -> Iterable[bytes]:
    yield post(*BEGIN)
    for name in NAMES:
        yield post(*BEGIN, call(name, 1, seconds=2, count=3, a=1, text="x"))
    yield post(*BEGIN, call("slow", 1), cancel(1), call("slow", 1), BEGIN[0], ask("tools/list", 2), ask("ping", "2"))
    yield post(
        *BEGIN, call("ask", 1), {"jsonrpc": "2.0", "id": 1, "result": {"roots": []}}, ask("ping", 1), 5, [ask("ping")]
    )
    yield (
        post(*BEGIN, where=b"session_id=missing")
        + post(*BEGIN, where=b"")
        + post(*BEGIN, where=b"session_id=$S&session_id=$S")
    )
    yield post(*BEGIN, where=b"sessionId=%24S&session_id=%20$S") + GET + b"\r\n"
    yield GET + b"last-event-id: g0:0\r\nmcp-session-id: $S\r\n\r\n" + post(*BEGIN)
    yield (
        b"POST /sse HTTP/1.1\r\n"
        + HEAD
        + b"content-length: 0\r\n\r\nGET /messages?session_id=$S HTTP/1.1\r\nhost: localhost\r\n\r\n"
    )
    yield (
        b"POST /messages?session_id=$S HTTP/1.1\r\n" + HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    )
    yield b"DELETE /sse HTTP/1.1\r\nhost: localhost\r\n\r\nOPTIONS /messages HTTP/1.1\r\nhost: localhost\r\norigin: http://a\r\n\r\n"
    yield post(*BEGIN) + b"POST /mcp HTTP/1.1\r\n" + HEAD + b"mcp-session-id: $S\r\ncontent-length: 2\r\n\r\n{}"


WORDS = (*OTHERS, b"GET /sse", b"POST /messages", b"?session_id=", b"$S", b"session_id=$S", b"&", b"%00", b"endpoint")


class Reader:
    """A client with an open stream."""

    def __init__(self, hall: OpenConnections) -> None:
        """Open the connection."""
        self.wire = Wire(Http1Connection(hall))
        self.session = b""

    async def begin(self) -> None:
        """Request the stream, and read the URL for posting."""
        await self.wire.send([GET + b"\r\n"])
        await asyncio.sleep(0.5)
        (first, *_) = self.events()
        assert first[0] == b"endpoint"
        self.session = first[1].partition(b"session_id=")[2]
        assert self.session

    def events(self) -> list[tuple[bytes, bytes]]:
        """All complete messages."""
        (answer,) = answers(self.wire.heard)
        assert answer.status == 200
        found: list[tuple[bytes, bytes]] = []
        for event in answer.body.split(b"\n\n")[:-1]:
            fields = dict(line.split(b": ", 1) for line in event.split(b"\n") if not line.startswith(b":"))
            if fields:
                found.append((fields[b"event"], fields[b"data"]))
        return found

    def check(self) -> list[dict[str, Any]]:
        """Assert that only messages came, with at most one answer to each request."""
        messages: list[dict[str, Any]] = []
        for kind, data in self.events()[1:]:
            assert kind == b"message"
            messages.append(json.loads(data))
            assert messages[-1]["jsonrpc"] == "2.0"
        return messages


@cache
def standing() -> PersistentServer:
    return PersistentServer()


def check(data: bytes) -> None:
    front, sent = numbers(data, 4)

    async def scene(company: Company) -> None:
        await connected(company, sent, front[:3], front[3])

    standing().play(scene)


async def connected(company: Company, sent: bytes, steps: bytes, end: int) -> None:
    hall = OpenConnections(AsgiEndpoint(HttpEngine(company, OLD)), OLD)
    reader = Reader(hall)
    await reader.begin()
    sent = sent.replace(b"$S", reader.session)
    wire = Wire(Http1Connection(hall))
    await wire.send(pieces(sent, steps))
    if end & 1:
        reader.wire.lose()
    if end & 2:
        wire.hang_up()
    if not await wire.ended(PATIENCE):
        wire.lose()  # a stream does not end by itself
    look_at(answers(wire.heard, heads=b"HEAD" in sent))
    if not reader.wire.transport.closed:
        await look_again(hall, reader, sent)
    reader.wire.lose()
    await check_still_there(hall)
    await hall.drain(0)
    assert not hall.open
    await leave(company)


async def look_again(hall: OpenConnections, reader: Reader, sent: bytes) -> None:
    """Assert that a connected client gets exactly one answer to each request."""
    wire = Wire(Http1Connection(hall))
    last = post({"jsonrpc": "2.0", "id": LAST, "method": "ping"}).replace(b"$S", reader.session)
    await wire.send([last])
    await asyncio.sleep(LONG)
    messages = reader.check()
    (answer,) = answers(wire.heard)
    ended = reader.wire.transport.closed
    assert answer.status == 202 or ended or b"DELETE" in sent, answer
    heard = Counter(json.dumps(each["id"]) for each in messages if "method" not in each)
    if answer.status == 202 and LAST.encode() not in sent:
        assert heard[json.dumps(LAST)] == 1, heard
    wire.lose()


async def check_still_there(hall: OpenConnections) -> None:
    reader, wire = Reader(hall), Wire(Http1Connection(hall))
    await reader.begin()
    await wire.send([post(*BEGIN, ask("ping", "good")).replace(b"$S", reader.session)])
    await asyncio.sleep(1)
    assert {"jsonrpc": "2.0", "id": "good", "result": {}} in reader.check()
    reader.wire.lose()
    wire.lose()


def fronted() -> list[bytes]:
    return seeded(texts(), b"\xff\xff\xff\0", b"\x07\x00\x20\2", b"\xff\xff\xff\1")


TARGET = Target("old_streams", check, fronted, WORDS, longest=3000)
