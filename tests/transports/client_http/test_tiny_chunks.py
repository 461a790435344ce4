"""Responses in tiny chunks: other tasks get turns while they are read, and later input keeps its order."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.protocol.jsonrpc import JsonRpcResponse
from greenroom.transports.client import fetch, http_connection_pool
from greenroom.transports.client.errors import ConnectionLost
from greenroom.transports.client.fetch import Fetcher
from greenroom.transports.client.http_address import Guard
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.interfaces import UnansweredRequest

from .wire_owner import HELLO, open_wire

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.greenroom(clock="real")

SIZE = 20_000
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n"


def in_chunks(body: bytes) -> bytes:
    return b"".join(b"1\r\n%c\r\n" % each for each in body)


class Turns:
    """Counts the turns of the loop until stopped."""

    def __init__(self) -> None:
        self.count = 0
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self.count += 1
        self._handle = asyncio.get_running_loop().call_soon(self._next)

    def stop(self) -> int:
        self._handle.cancel()
        return self.count


@asynccontextmanager
async def server(answer: bytes, how: str = "fin") -> AsyncGenerator[int]:
    """A port where each request gets these bytes, and then a FIN or a reset."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((line for line in head.split(b"\r\n") if line.startswith(b"content-length")), b"x: 0")
        body = await reader.readexactly(int(length.split(b":")[1]))
        id = json.loads(body)["id"] if body else 0
        writer.write(answer.replace(b"#", b"%d" % id))
        await writer.drain()
        if how == "rst":
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        else:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1]


async def asked(port: int) -> tuple[Any, int]:
    """The outcome of the first request, and how many turns of the loop it took."""
    async with open_wire(HttpRoute(f"http://127.0.0.1:{port}/mcp")) as owner:
        turns = Turns()
        owner.ask("initialize", HELLO)
        return await owner.hear(), turns.stop()


BODY = b'{"jsonrpc":"2.0","id":1,"result":{"text":"%b"}}' % (b"x" * SIZE)


@pytest.mark.parametrize("end", [b"connection: close\r\n", b""], ids=["the last one", "one of several"])
async def test_a_response_in_chunks_of_one_byte_is_read_in_many_turns(end: bytes) -> None:
    async with server(CHUNKED + end + b"\r\n" + in_chunks(BODY) + b"0\r\n\r\n") as port:
        heard, turns = await asked(port)
    assert isinstance(heard, JsonRpcResponse)
    assert heard.result == {"text": "x" * SIZE}
    assert turns > 3 * SIZE / http_connection_pool.STEPS_PER_TURN


async def test_a_response_that_ends_with_its_connection_is_complete() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
    async with server(head + BODY) as port:
        heard, _ = await asked(port)
    assert isinstance(heard, JsonRpcResponse)


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_response_that_breaks_off_is_lost(how: str) -> None:
    async with server(CHUNKED + b"\r\n" + in_chunks(BODY), how) as port:
        heard, _ = await asked(port)
    assert isinstance(heard, UnansweredRequest)
    assert isinstance(heard.error, ConnectionLost)
    assert not heard.resend


async def test_a_document_in_chunks_of_one_byte_is_fetched_in_many_turns() -> None:
    async with server(CHUNKED + b"\r\n" + in_chunks(b"x" * SIZE) + b"0\r\n\r\n") as port:
        turns = Turns()
        found = await Fetcher(Guard(loopback=True))(f"http://127.0.0.1:{port}/x")
        assert found.body == b"x" * SIZE
        assert turns.stop() > 3 * SIZE / fetch._STEPS
