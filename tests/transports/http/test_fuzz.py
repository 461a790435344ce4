"""Malformed requests, whole and in pieces: each gets a response or a clean end, and other clients are served as before."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.supervision.testing import run as run_virtual

from .engine_driver import HELLO, EngineDriver, RecordedResponse
from .raw_http import RawClient, RunningListener, message, request, running_listener

if TYPE_CHECKING:
    from collections.abc import Sequence

GOOD = request("POST", body=json.dumps(HELLO).encode())
ECHO = request("POST", body=message("echo"), mcp_session_id="s1")

BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "a line end": b"\r\n",
    "no HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40,
    "zeros": b"\x00" * 1000,
    "bytes above 127": b"POST /mcp\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "non-UTF-8 header": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: \xff\xfe\r\n\r\n",
    "control byte in a header": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: a\x00b\r\n\r\n",
    "no method": b" /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "no version": b"GET /mcp\r\nhost: localhost\r\n\r\n",
    "space before colon": b"GET /mcp HTTP/1.1\r\nhost : localhost\r\n\r\n",
    "folded header": b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: a\r\n b\r\n\r\n",
    "bare carriage returns": b"GET /mcp HTTP/1.1\rhost: localhost\r\r",
    "two hosts": b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n",
    "two lengths": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "negative length": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
    "no length": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: many\r\n\r\n",
    "huge length": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: " + b"9" * 100 + b"\r\n\r\n",
    "length and chunks": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4\r\n"
    b"transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /secret HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "unknown transfer encoding": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip\r\n\r\n",
    "chunk of no size": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    "chunk without its end": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}XX",
    "expectation": b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n{}",
    "doubled session": b"DELETE /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: a\r\nmcp-session-id: b\r\n\r\n",
    "absolute target": b"GET http://evil.example/mcp HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "target with a break": b"GET /mcp%0d%0aset-cookie:%20a HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "target of no escape": b"GET /%zz%ff HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "endless header": b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 100_000,
    "many headers": b"GET /mcp HTTP/1.1\r\nhost: localhost\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
    "WebSocket of no ASCII": b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: up\x9e\r\nupgrade: websocket\r\n"
    b"connection: upgrade\r\nsec-websocket-version: 13\r\n\r\n",
    "a good one and garbage": GOOD + b"\x00\x01\x02\r\n\r\n",
}


async def played(client: RawClient, pieces: Sequence[bytes]) -> bytes:
    """Send these bytes and an end, and read until the server has closed."""
    answer = asyncio.create_task(client.rest())
    try:
        for piece in pieces:
            client.writer.write(piece)
            await client.writer.drain()
            await asyncio.sleep(0)
        client.writer.write_eof()
    except (ConnectionError, OSError):
        pass
    return await answer


def check(answer: bytes) -> None:
    """Check that the output consists of whole responses, and that no part of a request became a header."""
    assert answer == b"" or answer.startswith(b"HTTP/1.1 "), answer[:80]
    assert b"\r\nset-cookie" not in answer.lower()
    assert b"HTTP/1.1 5" not in answer.replace(b"HTTP/1.1 505 ", b"").replace(b"HTTP/1.1 501 ", b""), answer[:80]


async def still_there(opened: RunningListener) -> None:
    client = await opened.client()
    assert (await client.call("echo")).status == 200
    client.abort()


@pytest.mark.parametrize("name", BROKEN)
async def test_a_malformed_request_gets_a_response_or_a_clean_end(name: str) -> None:
    async with running_listener(body_timeout=2.0, header_timeout=2.0) as opened:
        await opened.entered()
        check(await played(await opened.client(), [BROKEN[name]]))
        await still_there(opened)


@pytest.mark.parametrize(
    "name",
    ["no HTTP", "two hosts", "chunk of no size", "huge length", "expectation", "no length", "WebSocket of no ASCII"],
)
async def test_a_malformed_request_is_refused_before_its_end(name: str) -> None:
    async with running_listener(body_timeout=2.0, header_timeout=2.0) as opened:
        client = await opened.client()
        await client.send(BROKEN[name])
        answer = await client.rest()
        assert b"HTTP/1.1 4" in answer
        check(answer)


async def test_a_request_cannot_hide_in_another() -> None:
    async with running_listener() as opened:
        client = await opened.client()
        answer = await played(client, [BROKEN["length and chunks"]])
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("at", range(0, len(GOOD), 7))
async def test_a_request_may_be_cut_off_anywhere(at: int) -> None:
    async with running_listener() as opened:
        await opened.entered()
        check(await played(await opened.client(), [GOOD[:at]]))
        await still_there(opened)


async def test_a_request_may_come_byte_by_byte() -> None:
    async with running_listener() as opened:
        await opened.entered()
        client = await opened.client()
        for byte in ECHO:
            await client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.reply()).status == 200


async def test_random_damage_to_requests_does_not_affect_other_clients() -> None:
    """Valid requests, damaged at random, over many connections at once, while another client works."""
    source = random.Random(20251125)
    async with running_listener(body_timeout=1.0, header_timeout=1.0, drain_grace=0.1) as opened:
        worker = await opened.entered()
        for _ in range(12):
            damaged: list[list[bytes]] = []
            for _ in range(25):
                data = bytearray(source.choice([GOOD, ECHO, request("GET", mcp_session_id="s1"), request("OPTIONS")]))
                for _ in range(source.randrange(1, 6)):
                    place = source.randrange(len(data))
                    match source.randrange(3):
                        case 0:
                            data[place] = source.randrange(256)
                        case 1:
                            del data[place : place + source.randrange(1, 9)]
                        case _:
                            data[place:place] = source.randbytes(source.randrange(1, 9))
                cut = source.randrange(len(data) + 1)
                damaged.append([bytes(data[:cut]), bytes(data[cut:])])
            answers = await asyncio.gather(*[played(await opened.client(), pieces) for pieces in damaged])
            for answer in answers:
                check(answer)
            assert (await worker.call("echo")).status == 200


TEXTS = st.text(st.characters(codec="latin-1", exclude_characters="\r\n\x00"), max_size=30)
HEADERS = st.dictionaries(
    st.sampled_from(
        [
            "host",
            "origin",
            "accept",
            "content-type",
            "content-length",
            "content-encoding",
            "mcp-session-id",
            "mcp-protocol-version",
            "last-event-id",
            "authorization",
            "x-other",
        ]
    ),
    TEXTS | st.sampled_from(["s1", "localhost", "*/*", "null", "application/json", "http://localhost", "2025-06-18"]),
)


@settings(max_examples=examples(300))
@given(
    method=st.sampled_from(["POST", "GET", "DELETE", "OPTIONS", "PUT"]) | TEXTS,
    path=st.sampled_from(["/mcp", "/", "/mcp?x"]) | TEXTS,
    headers=HEADERS,
    body=st.binary(max_size=200) | st.sampled_from([json.dumps(HELLO).encode(), message("echo"), message("stream")]),
)
def test_the_engine_answers_every_request_exactly_once(
    method: str, path: str, headers: dict[str, str], body: bytes
) -> None:
    async def ask() -> None:
        driver = EngineDriver()
        await driver.enter()
        response = RecordedResponse()
        listening = asyncio.create_task(driver.begin(response, method, path, {"host": "localhost", **headers}, body))
        await asyncio.sleep(1)
        driver.router.sessions["s1"].die()
        await listening
        assert response.said.count("reply") + response.said.count("start") == 1
        assert response.said[-1] in ("reply", "end")
        assert 200 <= response.status < 500
        assert all("\n" not in value and "\r" not in value for value in response.headers.values())

    run_virtual(ask)
