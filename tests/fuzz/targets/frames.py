"""HTTP/2 to a complete server, from the bytes of a connection: all output is valid frames, and the next peer is served.

An input is what comes behind the preface, and is cut anywhere. `$S` stands for the id of a session that is there, inside of headers that are
not packed; frames say their own lengths, which may be wrong.
"""

from __future__ import annotations

import asyncio
import json
from functools import cache
from typing import TYPE_CHECKING

from hpack import Decoder, Encoder
from tests.fuzz.fuzz_target import Target, numbers, pieces, seeded
from tests.fuzz.fuzzed_server import NAMES, PersistentServer
from tests.fuzz.memory_connection import Wire
from tests.fuzz.targets.connections import CONFIG, HELLO, PATIENCE, STATUSES, call, entered, leave

from greenroom.transports.asgi import AsgiEndpoint
from greenroom.transports.http2_connection import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Http2Connection,
)
from greenroom.transports.http_engine import HttpEngine
from greenroom.transports.open_connections import OpenConnections

if TYPE_CHECKING:
    from collections.abc import Iterable

    from greenroom.actors.company import Company

ACK = 0x1
PADDED = 0x8
SESSION = "mcp_" + "$" * 32
"""As long as a real id, since the length precedes it."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def block(method: str = "POST", path: str = "/mcp", *, session: bool = True, **more: str) -> bytes:
    """Headers without HPACK tables and Huffman codes, which a fuzzer can read and write."""
    headers = {":method": method, ":scheme": "https", ":authority": "localhost", ":path": path}
    headers |= {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    if session:
        headers["mcp-session-id"] = SESSION
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    return bytes(Encoder().encode([(name, value, True) for name, value in headers.items()], huffman=False))


def post(stream: int, message: object, flags: int = END_STREAM) -> bytes:
    body = json.dumps(message).encode()
    return frame(HEADERS, END_HEADERS, stream, block()) + frame(DATA, flags, stream, body)


def listen(stream: int) -> bytes:
    return frame(HEADERS, END_HEADERS | END_STREAM, stream, block("GET", accept="text/event-stream"))


READY = frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0)


def number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def texts() -> Iterable[bytes]:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    yield READY + post(1, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO})
    for name in NAMES:
        yield READY + post(1, call(name, 1, seconds=2, count=3, a=1, text="x"))
    yield READY + post(1, call("slow", 1)) + frame(RST_STREAM, 0, 1, number(8)) + post(3, ping)
    yield READY + listen(1) + post(3, call("steps", 3)) + frame(WINDOW_UPDATE, 0, 0, number(100)) + post(5, ping)
    yield READY + listen(1) + frame(RST_STREAM, 0, 1, number(8)) + frame(GOAWAY, 0, 0, number(1) + number(0))
    yield READY + frame(PING, 0, 0, b"12345678") + frame(PRIORITY, 0, 3, number(0) + b"\x10") + post(3, ping)
    yield frame(SETTINGS, 0, 0, b"\0\4" + number(1) + b"\0\5" + number(16_384) + b"\0\1" + number(0)) + post(1, ping)
    yield READY + frame(HEADERS, 0, 1, block()[:20]) + frame(CONTINUATION, END_HEADERS, 1, block()[20:])
    yield READY + post(1, ping, 0) + frame(DATA, END_STREAM | PADDED, 1, b"\x03  \0\0\0")
    yield READY + frame(HEADERS, END_HEADERS | END_STREAM, 1, block("DELETE")) + post(3, ping)
    yield READY + frame(HEADERS, END_HEADERS, 1, block(content_length="5")) + frame(DATA, END_STREAM, 1, b"{}")
    yield READY + frame(HEADERS, END_HEADERS, 2, block()) + frame(0xFF, 0xFF, 0x7FFFFFFF, b"?")
    yield READY + frame(
        HEADERS, END_HEADERS | END_STREAM, 1, b"\x82\x87\x84\x41\x8a\x08\x9d\x5c\x0b\x81\x70\xdc\x78\x0f\x03"
    )
    yield READY + frame(WINDOW_UPDATE, 0, 0, number(0x7FFFFFFF)) + frame(WINDOW_UPDATE, 0, 1, number(0))
    yield b"GET / HTTP/1.1\r\n\r\n"


WORDS = (
    *(frame(kind, flags, stream)[3:] for kind in range(10) for flags in (0, 1, 4, 5) for stream in (0, 1)),
    *(frame(kind, 0, 1, number(1)) for kind in (RST_STREAM, WINDOW_UPDATE)),
    *(READY, frame(SETTINGS, 0, 0, b"\0\4" + number(0)), frame(PING, 0, 0, b"12345678"), block("GET"), block()),
    *(b"\x82", b"\x83", b"\x84", b"\x86", b"\x87", b"\x3f\xe1\x1f", b"\x20", b"$", SESSION.encode(), b"\x0f\x0d\x011"),
    *(
        b":path",
        b":method",
        b":authority",
        b"te",
        b"connection",
        b"content-length",
        b"{}",
        b'"id":1',
        b'"method":"ping"',
    ),
    *(f'"{name}"'.encode() for name in NAMES),
)


class FrameChecker:
    """The output, frame by frame."""

    def __init__(self, heard: bytes) -> None:
        """Raise AssertionError for frames that HTTP/2 forbids."""
        self.statuses: dict[int, int] = {}
        self.bodies: dict[int, bytes] = {}
        self.goodbye: int | None = None
        ended: set[int] = set()
        decoder = Decoder()
        at = 0
        while at < len(heard):
            assert at + 9 <= len(heard), "a frame is cut"
            size, kind, flags = int.from_bytes(heard[at : at + 3], "big"), heard[at + 3], heard[at + 4]
            stream = int.from_bytes(heard[at + 5 : at + 9], "big")
            payload = heard[at + 9 : at + 9 + size]
            at += 9 + size
            assert len(payload) == size, "a frame is cut"
            assert size <= 16_384
            if kind in (HEADERS, DATA):
                assert stream not in ended, "something comes after the end"
            if kind == HEADERS:
                assert flags & END_HEADERS
                assert stream not in self.statuses, "two answers"
                headers = {str(name): str(value) for name, value in decoder.decode(payload)}
                self.statuses[stream] = int(headers[":status"])
                assert self.statuses[stream] in STATUSES
            elif kind == DATA:
                assert stream in self.statuses, "a body without a head"
                self.bodies[stream] = self.bodies.get(stream, b"") + payload
            elif kind == GOAWAY:
                self.goodbye = int.from_bytes(payload[4:8], "big")
            if (kind in (HEADERS, DATA) and flags & END_STREAM) or kind == RST_STREAM:
                ended.add(stream)


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
    assert len(session.id) == len(SESSION)
    wire = Wire(Http2Connection(hall))
    await wire.send(pieces((b"" if end & 4 else PREFACE) + sent.replace(SESSION.encode(), session.id.encode()), steps))
    if end & 1:
        await asyncio.sleep(10 * (end & 2))
        wire.hang_up()
    elif end & 2:
        wire.lose()
    if not await wire.ended(PATIENCE):
        wire.lose()  # a stream does not end by itself
    FrameChecker(wire.heard)
    await check_still_there(company, hall)
    await hall.drain(0)
    assert not hall.open
    await leave(company)


async def check_still_there(company: Company, hall: OpenConnections) -> None:
    session = await entered(company)
    wire = Wire(Http2Connection(hall))
    good = PREFACE + READY + post(1, {"jsonrpc": "2.0", "id": "good", "method": "ping"})
    await wire.send([good.replace(SESSION.encode(), session.id.encode())])
    await asyncio.sleep(1)
    books = FrameChecker(wire.heard)
    assert books.statuses == {1: 200}
    assert json.loads(books.bodies[1]) == {"jsonrpc": "2.0", "id": "good", "result": {}}
    wire.lose()


def fronted() -> list[bytes]:
    return seeded(texts(), b"\xff\xff\xff\0", b"\x07\x00\x20\1", b"\xff\xff\xff\2")


TARGET = Target("frames", check, fronted, WORDS, longest=3000)
