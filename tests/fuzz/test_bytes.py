"""Bytes on real descriptors: connections that pipeline, trickle, break off and send garbage, and standard streams."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples
from tests.transports.http.raw_http import RawClient

from greenroom.protocol.sse import LineFramer
from greenroom.supervision import Supervisor, start, stop
from greenroom.supervision.testing import run
from greenroom.transports.http_config import HttpConfig
from greenroom.transports.stdio import StdioWire, stdio_child

from .fuzz_target import pieces
from .fuzzed_server import LONG, company, watched
from .memory_connection import answers
from .targets.channels import LIMIT, ChannelPeer, texts
from .targets.connections import HELLO, STATUSES, post

if TYPE_CHECKING:
    from greenroom.actors.company import Company


@dataclass(frozen=True)
class PeerConnection:
    """One connection: its pipelined requests, their pieces, the bytes after them, and whether it waits."""

    requests: int
    steps: bytes
    nonsense: bytes
    stays: bool


NONSENSE = st.sampled_from([b"", b"", b"\x00\r\n\r\n", b"POST /mcp HTTP/1.1\r\n", b"GET / HTTP/9\r\n\r\n"]) | st.binary(
    max_size=20
)
CONNECTIONS = st.builds(
    PeerConnection,
    requests=st.integers(0, 4),
    steps=st.lists(st.integers(20, 255), min_size=1, max_size=3).map(bytes),
    nonsense=NONSENSE,
    stays=st.booleans(),
)


async def play_connection(port: int, session: str, connection: PeerConnection) -> None:
    client = await RawClient.to(port)
    asked = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(connection.requests)]
    sent = b"".join(map(post, asked)).replace(b"$S", session.encode()) + connection.nonsense
    try:
        for piece in pieces(sent, connection.steps):
            await client.send(piece)
            await asyncio.sleep(0)
    except OSError:
        assert connection.nonsense
    if connection.stays:
        for message in asked:
            reply = await client.reply()
            assert (reply.status, reply.json["id"], reply.json["result"]) == (200, message["id"], {})
        if not connection.nonsense:
            client.abort()
        for answer in answers(await client.rest()):
            assert answer.status in STATUSES
    client.abort()


async def play_all(connections: list[PeerConnection]) -> None:
    server = company()
    async with server.started() as house, watched():
        url = await server.listen(config=HttpConfig(port=0, header_timeout=2.0, body_timeout=2.0, keep_alive=2.0))
        port = int(url.rpartition(":")[2].partition("/")[0])
        client = await RawClient.to(port)
        hello = await client.ask(
            "POST", body=json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}).encode()
        )
        session = hello.headers["mcp-session-id"]
        await asyncio.gather(*(play_connection(port, session, each) for each in connections))
        client.abort()
        another = await RawClient.to(port)
        assert (await another.call("ping", session=session)).json["result"] == {}
        another.abort()
        await house.peers.end(session)


@settings(max_examples=examples(25))
@given(connections=st.lists(CONNECTIONS, min_size=1, max_size=6))
def test_every_connection_is_served_in_order_whatever_the_others_send(connections: list[PeerConnection]) -> None:
    run(lambda: play_all(connections))


async def piped(house: Company, stream: bytes) -> bytes:
    """The standard output of a program with this input."""
    (reading, saying), (hearing, writing) = os.pipe(), os.pipe()
    try:
        os.write(saying, stream)
        os.close(saying)
        wire = StdioWire(house, reading, writing, line_limit=LIMIT)
        top = await start(Supervisor, [stdio_child(wire, grace=LONG)])
        await wire.finished.wait()
        await stop(top)
        wire.close()
        os.set_blocking(hearing, False)
        return os.read(hearing, 1 << 16)
    finally:
        for descriptor in (reading, hearing, writing):
            os.close(descriptor)


def damaged(stream: bytes, damage: list[tuple[int, int, bytes]]) -> bytes:
    for place, length, scrap in damage:
        at = place % (len(stream) + 1)
        stream = stream[:at] + scrap + stream[at + length :]
    return stream


SCRAPS = st.sampled_from([b"\n", b"\r\n", b"}", b'"', b'"id":1,', b"\xff", b"null"]) | st.binary(max_size=2)


@settings(max_examples=examples(40))
@given(
    stream=st.builds(
        damaged,
        st.sampled_from(list(texts())),
        st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 4), SCRAPS), max_size=5),
    )
)
def test_each_request_on_standard_streams_is_answered_once(stream: bytes) -> None:
    async def talk() -> None:
        async with company().started() as house, watched():
            books = ChannelPeer(house)
            framer = LineFramer(LIMIT)
            for line in [*framer.feed(stream), framer.end() or b""]:
                books.owe(line)
            for frame in (await piped(house, stream)).splitlines():
                books.hear(frame)
            books.compare()

    run(talk)
