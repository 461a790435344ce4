"""Servers that break the rules of HTTP: each request is lost once, with a reason, and the wire continues."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
from typing import Any

import pytest

from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost, HttpError, NotMcp, ResponseTooLarge
from greenroom.transports.client.http_connection_pool import HttpConnectionPool
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.http_settings import HttpSettings
from greenroom.transports.client.interfaces import InvalidMessage, UnansweredRequest

from .scripted_server import ReceivedRequest, answer, scripted_server
from .wire_and_server import lost, responding, wire_and_server
from .wire_owner import open_wire, text

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("end", ["close", "abort"])
@pytest.mark.parametrize(
    "pieces",
    [
        (b"",),
        (b"HTTP/1.",),
        (HEAD,),
        (HEAD + b"content-length: 1000\r\n\r\n", b'{"jsonrpc"'),
        (CHUNKED, b"5\r\n{"),
        (CHUNKED, b"2\r\n{}\r\n"),
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", b'data: {"jsonrpc": "2.0", "id"'),
        (b"HTTP/1.1 100 Continue\r\n\r\n",),
    ],
    ids=["nothing", "start", "head", "body", "chunk", "no end", "event", "continue"],
)
@pytest.mark.row("CT-09")
async def test_a_server_that_disconnects_during_a_response_loses_the_request(
    pieces: tuple[bytes, ...], end: str
) -> None:
    async with wire_and_server(responding(*pieces, end=end)) as (owner, server):
        heard = await lost(owner)
        assert isinstance(heard.error, ConnectionLost)
        assert not heard.resend
        assert len(server.seen("tools/call")) == 1


@pytest.mark.parametrize(
    "answered",
    [
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"<html>nonsense</html>\n\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n",
        HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        HEAD + b"content-length: 2\r\ncontent-length: 2\r\n\r\n{}",
        HEAD + b"content-length: +2\r\n\r\n{}",
        HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n",
        HEAD + b" folded: yes\r\n\r\n",
        HEAD + b"name : value\r\n\r\n",
        HEAD + b"na\x00me: value\r\n\r\n",
        HEAD.replace(b"\r\n", b"\n") + b"\n{}",
        CHUNKED + b"zz\r\n{}\r\n",
        CHUNKED + b"-2\r\n{}\r\n",
        CHUNKED + b"1\r\n{}\r\n",
        CHUNKED + b"FFFFFFFFFFFFFFFFFF\r\n",
        CHUNKED + b"2\r\n{}\r\n0\r\nno trailer\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 1000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
    ],
)
async def test_a_server_that_does_not_speak_http_is_reported(answered: bytes) -> None:
    async with wire_and_server(responding(answered, end="wait")) as (owner, server):
        heard = await lost(owner)
        assert isinstance(heard.error, NotMcp), heard
        assert not heard.resend
        assert len(server.seen("tools/call")) == 1


async def test_endless_headers_are_read_up_to_the_limit() -> None:
    sent = 0

    async def endless(received: ReceivedRequest) -> None:
        nonlocal sent
        await received.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            await received.send(b"x-more: and more\r\n" * 100)
            sent += 1800

    async with wire_and_server(endless) as (owner, _):
        assert isinstance((await lost(owner)).error, NotMcp)
        assert sent < 8_000_000


async def test_a_second_response_is_not_taken_for_that_of_the_next_request() -> None:
    body = json.dumps(answer(7)).encode()

    async def twice(received: ReceivedRequest) -> None:
        await received.result({"content": [{"type": "text", "text": "true"}]})
        await received.send(HEAD + b"content-length: %d\r\n\r\n%b" % (len(body), body))
        await received.gone()

    async with wire_and_server(twice) as (owner, server):
        for _ in range(5):
            id = owner.call("any")
            assert text(await owner.answer(id)) == "true"
            assert await owner.answer(owner.ask("ping")) == {"content": [{"type": "text", "text": "hi"}]}
        calls = {each.connection for each in server.seen("tools/call")}
        assert len(calls) == 5


@pytest.mark.parametrize(
    "answered",
    [
        b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\nBODY",
        HEAD + b"connection: close\r\n\r\nBODY",
        HEAD + b"connection: close\r\ncontent-length: LEN\r\n\r\nBODY",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
        + HEAD
        + b"content-length: LEN\r\n\r\nBODY",
        HEAD + b"transfer-encoding: chunked\r\n\r\n1;x=y\r\n{\r\nHEX\r\nREST\r\n000\r\nx: y\r\n\r\n",
        b"HTTP/1.1 200\r\nContent-Type:application/json;charset=utf-8\r\nContent-Length:   LEN  \r\n\r\nBODY",
        b"HTTP/1.1 200 OK\r\ncontent-length: LEN\r\n\r\nBODY",
    ],
    ids=["1.0", "close", "close and length", "interim", "chunked", "terse", "no type"],
)
async def test_unusual_valid_responses_are_accepted(answered: bytes) -> None:
    async def handler(received: ReceivedRequest) -> None:
        body = json.dumps(answer(received.id, {"ok": True})).encode()
        data = answered.replace(b"LEN", b"%d" % len(body)).replace(b"HEX", b"%X" % (len(body) - 1))
        for byte in data.replace(b"REST", body[1:]).replace(b"BODY", body):
            await received.send(bytes([byte]))
            await asyncio.sleep(0)
        received.close()

    async with wire_and_server(handler) as (owner, _):
        assert await owner.answer(owner.call("any")) == {"ok": True}
        assert owner.silent()


# --- over the limits


@pytest.mark.row("CT-09")
async def test_a_response_with_a_length_over_the_limit_is_not_read() -> None:
    async with wire_and_server(responding(HEAD + b"content-length: 1073741824\r\n\r\n", b"[" * 1000, end="wait")) as (
        owner,
        _,
    ):
        heard = await lost(owner)
        assert isinstance(heard.error, ResponseTooLarge)
        assert heard.error.limit == 16 * 1024 * 1024


@pytest.mark.row("CT-09")
async def test_a_response_that_exceeds_the_limit_is_read_no_further() -> None:
    sent = 0

    async def endless(received: ReceivedRequest) -> None:
        nonlocal sent
        await received.send(CHUNKED)
        while True:
            await received.send(b"10000\r\n" + b" " * 65536 + b"\r\n")
            sent += 65536

    async with wire_and_server(endless, HttpSettings(max_response=1_000_000)) as (owner, _):
        heard = await lost(owner)
        assert isinstance(heard.error, ResponseTooLarge)
        assert sent < 10_000_000


async def test_a_compressed_response_is_refused() -> None:
    bomb = gzip.compress(b" " * 10_000_000)

    async def zipped(received: ReceivedRequest) -> None:
        await received.reply(200, bomb, content_type="application/json", content_encoding="gzip")

    async with wire_and_server(zipped) as (owner, server):
        assert isinstance((await lost(owner)).error, NotMcp)
        assert not any("accept-encoding" in each.headers for each in server.requests)


# --- invalid replies


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html>please sign in</html>", "text/html"),
        (b"hello", "text/plain"),
    ],
)
async def test_a_page_instead_of_a_reply_is_not_mcp(body: bytes, kind: str) -> None:
    async def page(received: ReceivedRequest) -> None:
        await received.reply(200, body, content_type=kind)

    async with wire_and_server(page) as (owner, _):
        assert isinstance((await lost(owner)).error, NotMcp)


@pytest.mark.parametrize(
    "body", [b"{", b"\xff\xfe", b"[" * 70 + b"]" * 70, b'{"jsonrpc": "2.0", "id": ID}', b'[{"id": ID}]']
)
async def test_a_broken_reply_names_its_request(body: bytes) -> None:
    async def broken(received: ReceivedRequest) -> None:
        await received.reply(200, body.replace(b"ID", str(received.id).encode()), content_type="application/json")

    async with wire_and_server(broken) as (owner, _):
        id = owner.call("any")
        heard = await owner.hear()
        assert isinstance(heard, InvalidMessage)
        assert heard.error.response_to == id
        assert "\n" not in heard.sample
        assert owner.silent()


async def test_a_reply_to_another_id_is_refused() -> None:
    async def other(received: ReceivedRequest) -> None:
        await received.json(answer(999))

    async with wire_and_server(other) as (owner, _):
        id = owner.call("any")
        assert getattr(await owner.hear(), "id", None) == 999
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert heard.id == id


async def test_a_notification_is_no_reply() -> None:
    async def other(received: ReceivedRequest) -> None:
        await received.json({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})

    async with wire_and_server(other) as (owner, _):
        id = owner.call("any")
        assert isinstance(await owner.hear(), JsonRpcNotification)
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert heard.id == id


@pytest.mark.row("CT-03")
async def test_an_empty_response_is_a_loss_unless_it_is_202() -> None:
    async def empty(received: ReceivedRequest) -> None:
        await received.reply(202 if received.message["params"]["name"] == "later" else 200)

    async with wire_and_server(empty) as (owner, _):
        assert isinstance((await lost(owner)).error, HttpError)
        owner.call("later")
        assert await owner.answer(owner.ask("ping"))
        assert owner.silent()


@pytest.mark.parametrize("status", [400, 403, 409, 413, 429, 500, 503])
@pytest.mark.row("CT-09")
async def test_a_refusal_concerns_one_request(status: int) -> None:
    async def refuse(received: ReceivedRequest) -> None:
        await received.reply(status, b"because\nof reasons" * 1000, content_type="text/plain")

    async with wire_and_server(refuse) as (owner, _):
        heard = await lost(owner)
        assert isinstance(heard.error, HttpError)
        assert heard.error.status == status
        assert heard.error.body.startswith("because of reasons")
        assert len(heard.error.body) <= 400


async def test_a_json_rpc_refusal_is_a_reply_if_it_names_the_request() -> None:
    async def refuse(received: ReceivedRequest) -> None:
        id: Any = received.id if received.message["params"]["name"] == "mine" else None
        await received.json({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "no"}}, status=400)

    async with wire_and_server(refuse) as (owner, _):
        id = owner.call("mine")
        heard = await owner.hear()
        assert isinstance(heard, JsonRpcError)
        assert (heard.id, heard.error.code) == (id, -32602)
        assert isinstance((await lost(owner)).error, HttpError)


async def test_an_error_without_an_id_in_a_response_is_the_reply() -> None:
    async def refuse(received: ReceivedRequest) -> None:
        await received.json({"jsonrpc": "2.0", "id": None, "error": {"code": -32603, "message": "no"}})

    async with wire_and_server(refuse) as (owner, _):
        id = owner.call("any")
        heard = await owner.hear()
        assert isinstance(heard, JsonRpcError)
        assert heard.id == id


# --- connections


async def test_a_missing_server_is_reported() -> None:
    async with scripted_server() as server:
        url = server.url
    async with open_wire(HttpRoute(url)) as owner:
        id = owner.ask("initialize")
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert (heard.id, heard.resend) == (id, True)
        assert isinstance(heard.error, ConnectFailed)
        assert "no server listens there" in str(heard.error)


async def test_a_vanished_server_ends_the_wire_and_unsent_requests_can_be_resent() -> None:
    async with scripted_server() as server, open_wire(HttpRoute(server.url)) as owner:
        await owner.greet()
        await owner.answer(owner.call("any"))
        await asyncio.sleep(10)
        await server.vanish()
        for _ in range(3):
            owner.call("any")
        owner.note("notifications/any")
        assert isinstance(await owner.end(), ConnectFailed)
        assert owner.passed == []


async def test_a_server_that_accepts_no_connections_and_still_answers_is_not_gone() -> None:
    async def slow(received: ReceivedRequest) -> None:
        await asyncio.sleep(5)
        await received.result({"ok": 1})

    async with scripted_server(call=slow) as server, open_wire(HttpRoute(server.url)) as owner:
        await owner.greet()
        await asyncio.sleep(10)
        first = owner.call("any")
        await server.until("tools/call")
        server.refuse()
        second = owner.call("any")
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert (heard.id, heard.resend) == (second, True)
        assert await owner.answer(first) == {"ok": 1}


async def test_one_connection_serves_sequential_requests() -> None:
    async with wire_and_server() as (owner, server):
        for _ in range(20):
            await owner.answer(owner.call("any"))
        assert server.connections <= 2


@pytest.mark.parametrize("end", ["close", "abort"])
async def test_a_connection_closed_by_the_server_is_not_used(end: str) -> None:
    async def once(received: ReceivedRequest) -> None:
        await received.result()
        received.close() if end == "close" else received.abort()

    async with wire_and_server(once) as (owner, server):
        for _ in range(10):
            await owner.answer(owner.call("any"))
            await server.seen("tools/call")[-1].gone()
            await asyncio.sleep(0.01)
        assert len(server.seen("tools/call")) == 10


async def test_a_connection_that_dies_during_a_request_loses_it_without_a_resend() -> None:
    seen = 0

    async def second(received: ReceivedRequest) -> None:
        nonlocal seen
        seen += 1
        if seen == 2:
            received.abort()
        else:
            await received.result()

    async with wire_and_server(second) as (owner, server):
        await owner.answer(owner.call("any"))
        heard = await lost(owner)
        assert isinstance(heard.error, ConnectionLost)
        assert not heard.resend
        assert len(server.seen("tools/call")) == 2


async def test_a_request_of_which_the_kernel_took_nothing_goes_on_another_connection() -> None:
    async with wire_and_server() as (owner, server):
        await owner.answer(owner.call("any"))
        pool = owner.wire.carrier
        assert isinstance(pool, HttpConnectionPool)
        for connection in pool._idle:
            with socket.socket(fileno=os.dup(connection.fileno)) as raw:
                raw.shutdown(socket.SHUT_RDWR)
            connection.idle_since = asyncio.get_running_loop().time()  # so recent that the kernel is not asked
        assert await owner.answer(owner.call("any"))
        assert len(server.seen("tools/call")) == 2


async def test_an_idle_connection_is_closed_before_the_server_does() -> None:
    async def kept(received: ReceivedRequest) -> None:
        await received.result(keep_alive="timeout=3, max=100")

    async with wire_and_server(kept) as (owner, server):
        await owner.answer(owner.call("any"))
        await asyncio.sleep(1.9)
        await owner.answer(owner.call("any"))
        await asyncio.sleep(2.1)
        await owner.answer(owner.call("any"))
        first, second, third = (each.connection for each in server.seen("tools/call"))
        assert first == second != third


async def test_forgetting_a_request_disconnects() -> None:
    async with wire_and_server(responding(b"", end="wait")) as (owner, server):
        id = owner.call("any")
        (received,) = await server.until("tools/call")
        owner.wire.forget(id)
        await received.gone()
        assert await owner.answer(owner.ask("ping"))
        assert owner.silent()


async def test_a_server_that_never_answers_does_not_delay_the_end() -> None:
    async with wire_and_server(responding(b"", end="wait"), DELETE=responding(b"", end="wait")) as (owner, server):
        owner.call("any")
        await server.until("tools/call")
        began = asyncio.get_running_loop().time()
        await owner.close()
        assert asyncio.get_running_loop().time() - began == pytest.approx(2.0, abs=0.2)
        assert len(server.seen("DELETE")) == 1


async def test_requests_over_the_limit_wait_and_answers_to_the_server_do_not() -> None:
    async with wire_and_server(responding(b"", end="wait"), HttpSettings(max_connections=4)) as (owner, server):
        ids = [owner.call("any") for _ in range(6)]
        await server.until("tools/call", 4)
        owner.note("notifications/cancelled", {"requestId": 99})
        await server.until("notifications/cancelled")
        assert len(server.seen("tools/call")) == 4
        owner.wire.forget(ids[0])
        await server.until("tools/call", 5)
        owner.wire.forget(ids[5])
        for id in ids[1:5]:
            owner.wire.forget(id)
        assert await owner.answer(owner.ask("ping"))
        assert len(server.seen("tools/call")) == 5
