"""HTTP/1.1 connections, byte by byte: the framing of responses, 100 Continue, and what an application cannot do to a connection."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.transports.asgi import AsgiEndpoint
from greenroom.transports.http1_connection import STEPS_PER_TURN, Http1Connection
from greenroom.transports.http1_request import UNREAD_LIMIT, Http1Request
from greenroom.transports.http_config import HttpConfig
from greenroom.transports.http_engine import HttpEngine, NoAuthentication
from greenroom.transports.http_listener import HttpListener
from greenroom.transports.interfaces import HttpRefusal

from .fake_sessions import FakeSessionRouter
from .raw_http import message, request, running_listener

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.transports.asgi import App, Receive, Scope, Send


def says(
    *bodies: bytes,
    status: int = 200,
    headers: Sequence[tuple[bytes, bytes]] = (),
    read: bool = True,
    fails: bool = False,
) -> App:
    """An application that answers so after it has read the body."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while read and (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        for number, body in enumerate(bodies):
            await send({"type": "http.response.body", "body": body, "more_body": fails or number + 1 < len(bodies)})
        if fails:
            raise LookupError("a fault of the application")

    return app


def lengthy(length: int) -> list[tuple[bytes, bytes]]:
    return [(b"content-length", b"%d" % length)]


async def test_a_response_of_known_length_is_one_write() -> None:
    async with running_listener(says(b"hel", headers=lengthy(3))) as opened:
        client = await opened.client()
        await client.send(request("GET", "/"))
        whole = await client.reader.read(1 << 16)
        assert whole.endswith(b"\r\n\r\nhel")


async def test_a_response_of_unknown_length_is_chunked() -> None:
    async with running_listener(says(b"a", b"", b"bc")) as opened:
        client = await opened.client()
        for _ in range(2):
            reply = await client.ask("GET", "/")
            assert (reply.body, reply.headers["transfer-encoding"]) == (b"abc", "chunked")


@pytest.mark.parametrize("length", [0, 3_000_001])
async def test_a_long_response_is_written_in_pieces_and_other_requests_are_answered_meanwhile(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    written: list[tuple[Http1Connection, int]] = []
    write = Http1Connection.write

    def noted(wire: Http1Connection, data: bytes) -> None:
        written.append((wire, len(data)))
        write(wire, data)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        long = scope["path"] == "/long"
        await says(body if long else b"short", headers=lengthy(length) if length and long else ())(scope, receive, send)

    monkeypatch.setattr(Http1Connection, "write", noted)
    body = bytes(range(251)) * 11_953
    body = body[:3_000_001].ljust(3_000_001)
    async with running_listener(app) as opened:
        client, other = await opened.client(), await opened.client()
        for _ in range(2):  # the connection can be used again
            await client.send(request("GET", "/long"))
            await other.send(request("GET", "/short"))
            assert (await other.reply()).body == b"short"
            assert (await client.reply()).body == body
    assert max(size for _, size in written) < 257 * 1024
    wires = [wire for wire, _ in written]
    first = wires.index(next(wire for wire, size in written if size > 64 * 1024))
    last = len(wires) - 1 - wires[::-1].index(wires[first])
    assert any(wire is not wires[first] for wire in wires[first:last])


async def test_a_disconnect_during_a_long_response_is_no_error_and_ends_its_application() -> None:
    ended = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await says(bytes(50_000_000), headers=lengthy(50_000_000))(scope, receive, send)
        ended.set()

    async with running_listener(app) as opened:
        client = await opened.client()
        await client.send(request("GET", "/"))
        await client.head()
        client.abort()
        await asyncio.wait_for(ended.wait(), 10)


async def test_an_http_1_0_response_ends_with_the_connection() -> None:
    async with running_listener(says(b"a", b"bc")) as opened:
        client = await opened.client()
        await client.send(b"GET / HTTP/1.0\r\nhost: x\r\nconnection: keep-alive\r\n\r\n")
        reply = await client.head()
        assert reply.headers["connection"] == "close"
        assert "transfer-encoding" not in reply.headers
        assert await client.rest() == b"abc"


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_bodiless_responses_have_no_body(method: str, status: int) -> None:
    async with running_listener(says(b"abc", status=status, headers=lengthy(3))) as opened:
        client = await opened.client()
        for _ in range(2):
            await client.send(request(method, "/"))
            assert (await client.head()).status == status
        await client.send(request("GET", "/", connection="close"))
        assert b"abc" in (rest := await client.rest()) or status != 200, rest


async def test_continue_is_sent_once_the_body_is_wanted() -> None:
    async with running_listener(says(b"", headers=lengthy(0))) as opened:
        client = await opened.client()
        await client.send(request("POST", "/", expect="100-continue", content_length="2"))
        assert (await client.head()).status == 100
        await client.send(b"{}")
        assert (await client.head()).status == 200
    async with running_listener(says(b"no", status=403, headers=lengthy(2), read=False)) as opened:
        client = await opened.client()
        await client.send(request("POST", "/", expect="100-continue", content_length="2"))
        reply = await client.reply()
        assert (reply.status, reply.headers["connection"]) == (403, "close")
        assert await client.rest() == b""


@pytest.mark.parametrize("how", ["close", "Keep-Alive, close"])
async def test_a_client_that_asks_to_close_is_closed_after_the_response(how: str) -> None:
    async with running_listener(says(b"a", headers=lengthy(1))) as opened:
        client = await opened.client()
        reply = await client.ask("GET", "/", connection=how)
        assert reply.headers["connection"] == "close"
        assert await client.rest() == b""


async def test_an_application_or_the_request_count_can_end_a_connection() -> None:
    async with running_listener(says(b"a", headers=[*lengthy(1), (b"Connection", b"Close")])) as opened:
        client = await opened.client()
        assert (await client.ask("GET", "/")).headers["connection"] == "close"
        assert await client.rest() == b""
    async with running_listener(says(b"a", headers=lengthy(1)), keep_alive_requests=3) as opened:
        client = await opened.client()
        said = [(await client.ask("GET", "/")).headers.get("connection") for _ in range(3)]
        assert said == [None, None, "close"]
        assert await client.rest() == b""


@pytest.mark.parametrize(
    "headers",
    [
        [(b"x", b"a\r\nset-cookie: b")],
        [(b"x", b"a\nb")],
        [(b"x", b"a\0b")],
        [(b"x: y\r\nz", b"a")],
        [(b"", b"a")],
        [(b"content-length", b"1"), (b"content-length", b"2")],
        [(b"content-length", b"-1")],
    ],
)
async def test_a_header_value_cannot_become_two_headers(headers: list[tuple[bytes, bytes]]) -> None:
    async with running_listener(says(b"a", headers=headers)) as opened:
        client = await opened.client()
        await client.send(request("GET", "/"))
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert b"cookie" not in answer


@pytest.mark.parametrize("length", [2, 4])
async def test_a_body_of_another_length_than_declared_is_an_error(length: int) -> None:
    async with running_listener(says(b"abc", headers=lengthy(length))) as opened:
        client = await opened.client()
        await client.send(request("GET", "/") * 2)
        assert (await client.rest()).count(b"HTTP/1.1") == 1


async def test_a_response_broken_off_by_the_application_looks_broken_off() -> None:
    async with running_listener(says(b"abc", fails=True)) as opened:
        client = await opened.client()
        await client.send(request("GET", "/"))
        assert (await client.head()).headers["transfer-encoding"] == "chunked"
        assert await client.rest() == b"3\r\nabc\r\n"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ValueError("x")])
async def test_an_exception_in_the_application_is_a_500(error: BaseException) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise error

    async with running_listener(app) as opened:
        for _ in range(2):
            client = await opened.client()
            await client.send(request("GET", "/"))
            assert (await client.rest()).startswith(b"HTTP/1.1 500 ")


async def test_an_unread_body_is_not_buffered_without_limit() -> None:
    go = asyncio.Event()
    sizes: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        more = True
        while more:
            message = await receive()
            sizes.append(len(message["body"]))
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": lengthy(0)})
        await send({"type": "http.response.body", "body": b""})

    async with running_listener(app, send_buffer=8192) as opened:
        client = await opened.client()
        size = 64 * UNREAD_LIMIT
        sending = asyncio.create_task(client.send(request("POST", "/", body=b"x" * size)))
        await asyncio.sleep(1)
        assert not sending.done()
        go.set()
        await sending
        assert (await client.reply()).status == 200
        assert sum(sizes) == size
        assert max(sizes) < 8 * UNREAD_LIMIT


async def test_pipelined_input_is_not_buffered_without_limit() -> None:
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        await says(b"a", headers=lengthy(1))(scope, receive, send)

    async with running_listener(app) as opened:
        client = await opened.client()
        one = request("GET", "/", x="y" * 1000)
        count = 16 * 1024 * 1024 // len(one)
        sending = asyncio.create_task(client.send(one * count))
        await asyncio.sleep(1)
        assert not sending.done()
        go.set()
        answered = 0
        while answered < count:
            answered += (await client.reader.read(1 << 16)).count(b"\r\n\r\na")
        await sending


async def test_receive_after_the_response_reports_the_disconnect() -> None:
    heard: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await says(b"a", headers=lengthy(1))(scope, receive, send)
        heard.append(await receive())

    async with running_listener(app) as opened:
        client = await opened.client()
        for _ in range(2):
            assert (await client.ask("GET", "/")).body == b"a"
        assert {each["type"] for each in heard} == {"http.disconnect"}


async def test_a_disconnect_before_the_end_of_the_response_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[asyncio.BaseTransport] = []

    def write_eof(transport: asyncio.BaseTransport) -> None:
        ended.append(transport)
        raise OSError(107, "Transport endpoint is not connected")

    async with running_listener(says(b"abc", headers=lengthy(3))) as opened:
        client = await opened.client()
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        monkeypatch.setattr("asyncio.selector_events._SelectorSocketTransport.write_eof", write_eof)
        await client.send(request("GET", "/", connection="close"))
        whole = await client.reader.read()
        assert whole.endswith(b"abc")
        gc.collect()
        assert (len(ended), faults) == (1, [])


async def test_many_chunks_of_one_read_are_parsed_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    wires: list[Http1Connection] = []
    taken: list[bytes] = []
    begin, made, take = asyncio.Event(), Http1Connection.connection_made, Http1Request.feed

    def noted(wire: Http1Connection, transport: asyncio.BaseTransport) -> None:
        wires.append(wire)
        made(wire, transport)

    def counted(turn: Http1Request, piece: bytes) -> None:
        taken.append(piece)
        take(turn, piece)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begin.set()
        await says(b"a", headers=lengthy(1))(scope, receive, send)

    monkeypatch.setattr(Http1Connection, "connection_made", noted)
    monkeypatch.setattr(Http1Request, "feed", counted)
    async with running_listener(app) as opened:
        client = await opened.client()
        await client.send(request("POST", "/", transfer_encoding="chunked"))
        await begin.wait()
        for _ in range(20):
            wires[0].data_received(b"1\r\nx\r\n" * STEPS_PER_TURN)
        assert 0 < len(taken) <= STEPS_PER_TURN
        wires[0].data_received(b"0\r\n\r\n")
        assert (await client.reply()).body == b"a"
    assert b"".join(taken) == b"x" * 20 * STEPS_PER_TURN


async def test_a_pipelining_peer_lets_other_connections_have_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[Http1Connection] = []
    write = Http1Connection.write

    def noted(wire: Http1Connection, data: bytes) -> None:
        order.append(wire)
        write(wire, data)

    async with running_listener() as opened:
        first, second = await opened.entered(), await opened.client()
        await second.call("echo")
        monkeypatch.setattr(Http1Connection, "write", noted)
        first.writer.write(100 * request("POST", body=message("echo"), mcp_session_id="s1"))
        second.writer.write(request("POST", body=message("echo"), mcp_session_id="s1"))
        for _ in range(100):
            assert (await first.reply()).status == 200
        assert (await second.reply()).status == 200
    assert len(order) == 101
    others = next(wire for wire in order if order.count(wire) == 1)
    assert order.index(others) < 50


async def test_a_page_that_ends_cancelled_does_not_lose_the_next_request() -> None:
    served: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        served.append(scope["path"])
        await says(b"ok", headers=lengthy(2))(scope, receive, send)
        if scope["path"] == "/1":
            raise asyncio.CancelledError

    async with running_listener(app) as opened:
        client = await opened.client()
        await client.send(request("GET", "/1") + request("GET", "/2"))
        assert (await client.reply()).body == b"ok"
        assert (await client.reply()).body == b"ok"
        assert served == ["/1", "/2"]
        assert (await client.ask("GET", "/3")).body == b"ok"


async def test_a_page_that_cancels_its_own_task_affects_no_other_request() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await says(b"ok", headers=lengthy(2))(scope, receive, send)
        if scope["path"] == "/1":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()

    async with running_listener(app) as opened:
        client = await opened.client()
        await client.send(request("GET", "/1") + request("GET", "/2"))
        assert (await client.reply()).body == b"ok"
        assert (await client.reply()).body == b"ok"
        await client.close()
        listener = await opened.listener()
        while await listener.call(HttpListener.connections):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("said", "body"),
    [((("connection", "close"), ("transfer-encoding", "chunked")), b"told"), ((("x-y", "z"),), "no bytes")],
)
async def test_an_authenticators_response_is_framed_by_the_server_or_an_error(
    said: tuple[tuple[str, str], ...], body: Any
) -> None:
    class Teller(NoAuthentication):
        async def authenticate(self, method: str, path: str, headers: Any, peer: Any) -> Any:
            return HttpRefusal(200, said, body)

    config = HttpConfig(port=0)
    async with running_listener(AsgiEndpoint(HttpEngine(FakeSessionRouter(), config, Teller()))) as opened:
        client = await opened.client()
        reply = await client.ask("POST", body=message("ping"))
        assert "transfer-encoding" not in reply.headers
        assert (reply.status, reply.headers.get("connection")) == ((200 if body == b"told" else 500), "close")
