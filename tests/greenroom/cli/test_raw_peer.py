"""The raw peers of `check --era modern`: whatever a server sends is an answer or a named failure, never a crash of the check."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from greenroom.cli import raw_peer
from greenroom.cli.raw_peer import CommandPeer, HttpPeer, PeerFailed, SeenMessage
from greenroom.cli.stateless_http_checks import CHECKS
from greenroom.cli.stateless_probe import CheckedServer, run_checks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.greenroom(clock="real")

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@asynccontextmanager
async def answering(answer: bytes) -> AsyncGenerator[HttpPeer]:
    """A server that answers each connection with these bytes."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        yield HttpPeer(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "the connection broke"),
        (b"hello\r\n\r\n", "no HTTP response"),
        (b"HTTP/1.1\r\n\r\n", "no HTTP response"),
        ("HTTP/1.1 ²00 OK\r\n\r\n".encode("latin-1"), "no HTTP response"),
        (b"HTTP/1.1 -20 OK\r\n\r\n", "no HTTP response"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\n\r\n", "is longer than 65536 bytes"),
        (HEAD + b"Content-Length: many\r\n\r\n", "no length of a body: 'many'"),
        (HEAD + b"Content-Length: -1\r\n\r\n", "no length of a body: '-1'"),
        (HEAD + b"Content-Length: 1_0\r\n\r\n", "no length of a body: '1_0'"),
        (HEAD + b"Content-Length: 99999999\r\n\r\n", "the answer is longer than"),
        (HEAD + b"Content-Length: 5\r\n\r\n{}", "the connection broke"),
        (HEAD + CHUNKED + b"-1\r\n", "no length of a body: '-1"),
        (HEAD + CHUNKED + b"zz\r\n", "no length of a body: 'zz"),
        (HEAD + CHUNKED + b"ffffffff\r\n", "the answer is longer than"),
        (STREAM + b"\r\ndata: [1]\n\n", "this event holds no JSON object"),
        (STREAM + b"\r\ndata: " + b"[" * 100_000 + b"\n\n", "this event holds no JSON object"),
    ],
)
async def test_an_answer_that_is_no_http_is_a_failure_that_says_what_came(answer: bytes, why: str) -> None:
    async with answering(answer) as peer:
        with pytest.raises(PeerFailed) as failed:
            await peer.ask("server/discover", within=5.0)
    assert why in str(failed.value)


async def test_an_answer_that_is_no_json_has_no_messages() -> None:
    for body in (b"", b"no JSON", b"[" * 100_000, b"7"):
        async with answering(HEAD + b"\r\n" + body) as peer:
            reply = await peer.ask("server/discover")
        assert (reply.messages, reply.body) == ([], body)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
async def test_an_event_that_comes_byte_by_byte_is_read_whole(end: bytes) -> None:
    lines = (b": a comment", b"event: message", b'data: {"id": 1,', b'data: "result": {}}', b"", b"")
    pieces = b"".join(b"1\r\n%c\r\n" % each for each in end.join(lines))
    async with answering(STREAM + CHUNKED + pieces + b"0\r\n\r\n") as peer:
        reply = await peer.ask("server/discover")
    assert reply.messages == [{"id": 1, "result": {}}]
    assert reply.frames[0].values("event") == ["message"]
    assert reply.ended


async def test_a_long_line_in_small_pieces_is_read_in_linear_time() -> None:
    text = b"x" * 100_000
    pieces = b"".join(b"1\r\n%c\r\n" % each for each in b'data: {"text": "%s"}\n\n' % text)
    async with answering(STREAM + CHUNKED + pieces + b"0\r\n\r\n") as peer:
        reply = await peer.ask("server/discover", within=5.0)
    assert reply.messages == [{"text": text.decode()}]


@pytest.mark.parametrize("url", ["http://", "http:///mcp", "http://[::1", "http://a:b/mcp", "ftp://a/mcp", "no URL"])
def test_a_url_without_a_host_is_refused(url: str) -> None:
    with pytest.raises(PeerFailed, match="is no URL"):
        HttpPeer(url)


@pytest.mark.parametrize(
    ("name", "value"), [("A", "geheim\r\nB: c"), ("A", "geheim 世"), ("A b", "geheim"), ("", "geheim")]
)
def test_a_header_that_cannot_be_sent_is_refused_without_its_value(name: str, value: str) -> None:
    with pytest.raises(PeerFailed, match="no header may have") as failed:
        HttpPeer("http://127.0.0.1:1/mcp", {name: value})
    assert "geheim" not in str(failed.value)


async def test_a_program_that_writes_too_long_a_line_is_still_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_peer, "_MOST_BYTES", 1000)
    program = """
        import sys
        sys.stdin.readline()
        print("x" * 5000)
        print('{"jsonrpc": "2.0", "id": 1, "result": {}}', flush=True)
        sys.stdin.read()
    """
    source = "\n".join(line.strip() for line in program.strip().splitlines())
    async with CommandPeer([sys.executable, "-S", "-c", source]) as peer:
        reply = await peer.ask("server/discover")
    assert reply.messages == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    assert peer.garbage[0] == b"a line of more than 1000 bytes\n"


async def test_codes_that_are_no_integers_fail_the_checks_of_codes() -> None:
    server = CheckedServer(HttpPeer("http://127.0.0.1:1/mcp"))
    for code in ([1], {"a": 1}, "-32002", None):
        server.peer.seen.append(SeenMessage("tools/call", True, {"id": 1, "error": {"code": code}}))  # noqa: FBT003 - of a tuple
    found = {each.id: each for each in await run_checks(CHECKS, server, ["M12", "M12.legacy"])}
    assert found["M12"].verdict == "failed"
    assert json.dumps("-32002") in found["M12"].evidence
    assert found["M12.legacy"].verdict == "passed"


async def test_tools_with_any_names_are_looked_through() -> None:
    server = CheckedServer(HttpPeer("http://127.0.0.1:1/mcp"))
    server.items["tools/list"] = [{"name": ["check_log"]}, {"name": {}}, {}, {"name": "check_log"}]
    assert server.tool("check_trace", "check_log") == "check_log"
