"""Half-closed peers, which send FIN after their request: a pending response is sent, and peers that have gone are detected."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.transports import http1_connection
from greenroom.transports.http1_request import UNREAD_LIMIT

from .raw_http import message, request, running_listener
from .test_listener import connections, until

if TYPE_CHECKING:
    from greenroom.transports.asgi import Receive, Scope, Send

    from .raw_http import RawClient


class App:
    """Answers when told to, and records its input."""

    def __init__(self, *headers: tuple[bytes, bytes], body: bytes = b"done") -> None:
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()
        self.disconnected = asyncio.Event()
        self.paths: list[str] = []
        self._headers = list(headers)
        self._body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        self.paths.append(scope["path"])
        self.asked.set()
        watching = asyncio.ensure_future(self._watch(receive))
        await self.answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._body})
        watching.cancel()

    async def _watch(self, receive: Receive) -> None:
        if (await receive())["type"] == "http.disconnect":
            self.disconnected.set()


LENGTH = (b"content-length", b"4")


def shut(client: RawClient) -> None:
    client.writer.get_extra_info("socket").shutdown(socket.SHUT_WR)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1_connection, "PEER_CHECK", 0.01)


@pytest.fixture
def noticed(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when a FIN was processed."""
    event, received = asyncio.Event(), http1_connection.Http1Connection.eof_received

    def noted(wire: http1_connection.Http1Connection) -> bool:
        event.set()
        return received(wire)

    monkeypatch.setattr(http1_connection.Http1Connection, "eof_received", noted)
    return event


@pytest.mark.parametrize("headers", [[LENGTH], []], ids=["of known length", "in chunks"])
@pytest.mark.parametrize("late", [True, False])
async def test_a_request_followed_by_a_fin_is_answered_and_then_closed(
    noticed: asyncio.Event, headers: Any, *, late: bool
) -> None:
    app = App(*headers)
    async with running_listener(app) as opened:
        client = await opened.client()
        if late:
            await client.send(request("POST", "/", b"abc"))
            await app.asked.wait()
            shut(client)
        else:
            client.writer.write(request("POST", "/", b"abc"))
            client.writer.write_eof()
        await noticed.wait()
        app.answer.set()
        reply = await client.reply()
        assert (reply.status, reply.body, reply.headers["connection"]) == (200, b"done", "close")
        assert await client.rest() == b""
        assert not app.disconnected.is_set()
        await connections(await opened.listener(), 0)


async def test_all_pipelined_requests_before_a_fin_are_answered(noticed: asyncio.Event) -> None:
    app = App(LENGTH)
    async with running_listener(app) as opened:
        client = await opened.client()
        client.writer.write(b"".join(request("GET", f"/{number}") for number in range(5)))
        client.writer.write_eof()
        await noticed.wait()
        app.answer.set()
        replies = [await client.reply() for _ in range(5)]
        assert [reply.headers.get("connection") for reply in replies] == [None] * 4 + ["close"]
        assert app.paths == [f"/{number}" for number in range(5)]
        assert await client.rest() == b""


@pytest.mark.parametrize("sent", [b"", b"POST / HTTP/1.1\r\nhost", request("GET", "/") + b"GET /"])
async def test_a_connection_without_a_whole_request_is_closed_by_a_fin(sent: bytes) -> None:
    app = App(LENGTH)
    app.answer.set()
    async with running_listener(app) as opened:
        client = await opened.client()
        client.writer.write(sent)
        if sent.startswith(b"GET"):
            assert (await client.reply()).body == b"done"
        client.writer.write_eof()
        assert await client.rest() == b""
        await connections(await opened.listener(), 0)


async def test_a_body_cut_off_by_a_fin_is_a_disconnect() -> None:
    app = App(LENGTH)
    async with running_listener(app) as opened:
        client = await opened.client()
        client.writer.write(request("POST", "/", b"abc", content_length="4"))
        client.writer.write_eof()
        assert await client.rest() == b""
        assert app.paths == ["/"]  # `receive` has ended
        app.answer.set()


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("late", [True, False])
async def test_an_endless_stream_ends_at_a_fin(*, late: bool) -> None:
    async with running_listener() as opened:
        await opened.entered()
        feed: Any = None
        if late:
            client = await opened.stream()
            shut(client)
        else:
            client = await opened.client()
            client.writer.write(request("GET", accept="text/event-stream", mcp_session_id="s1"))
            client.writer.write_eof()
        await client.rest()
        feed = opened.router.sessions["s1"].general
        await until(lambda: feed.left)


@pytest.mark.usefixtures("quick")
async def test_a_streamed_reply_to_a_call_is_sent_after_a_fin(noticed: asyncio.Event) -> None:
    app = App((b"content-type", b"text/event-stream"), body=b"data: {}\n\n")
    async with running_listener(app) as opened:
        client = await opened.client()
        client.writer.write(request("POST", "/", b"{}"))
        client.writer.write_eof()
        await noticed.wait()
        app.answer.set()
        assert (await client.reply()).body == b"data: {}\n\n"


@pytest.mark.usefixtures("quick")
async def test_a_waiting_half_closed_peer_gets_interim_responses_first() -> None:
    app = App(LENGTH)
    async with running_listener(app) as opened:
        client = await opened.client()
        client.writer.write(request("POST", "/", b"abc"))
        client.writer.write_eof()
        assert (await client.head()).status == 100
        app.answer.set()
        assert (await client.reply()).body == b"done"
        assert await client.rest() == b""


@pytest.mark.usefixtures("quick")
async def test_an_http_1_0_peer_gets_only_its_response(noticed: asyncio.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = asyncio.Event()

    def is_broken(transport: object) -> bool:
        looked.set()
        return False

    monkeypatch.setattr(http1_connection, "has_socket_error", is_broken)
    app = App(LENGTH)
    async with running_listener(app) as opened:
        client = await opened.client()
        client.writer.write(b"GET / HTTP/1.0\r\nhost: x\r\n\r\n")
        client.writer.write_eof()
        await noticed.wait()
        await looked.wait()
        app.answer.set()
        assert (await client.rest()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.usefixtures("quick")
async def test_a_half_closed_peer_that_has_gone_is_detected_and_its_call_continues() -> None:
    async with running_listener() as opened:
        client = await opened.entered()
        session = opened.router.sessions["s1"]
        client.writer.write(request("POST", body=message("wait"), mcp_session_id="s1"))
        client.writer.write_eof()
        await until(lambda: session.waiting)
        client.writer.close()
        await until(lambda: not session.waiting)
        assert (session.given_up, session.ended) == (1, False)
        await connections(await opened.listener(), 0)


# --- bodies in tiny chunks


@pytest.mark.parametrize("hypercorn", [False, True])
async def test_a_body_in_tiny_chunks_lets_other_connections_have_turns(*, hypercorn: bool) -> None:
    chunks = 5_000 if hypercorn else 20_000
    turns, done = 0, asyncio.Event()

    def count() -> None:
        nonlocal turns
        turns += 1
        if not done.is_set():
            asyncio.get_running_loop().call_soon(count)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        size, more = 0, True
        while more:
            got = await receive()
            size, more = size + len(got["body"]), got["more_body"]
        done.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % size})

    async with running_listener(app, hypercorn=hypercorn) as opened:
        client = await opened.client()
        asyncio.get_running_loop().call_soon(count)
        body = b"1\r\nx\r\n" * chunks + b"0\r\n\r\n"
        reading = asyncio.ensure_future(client.reply())
        await client.send(request("POST", "/", transfer_encoding="chunked") + body)
        if not hypercorn:
            client.writer.write_eof()  # noticed while earlier input is still being parsed
        assert (await reading).body == b"%d" % chunks
        assert turns > 3 * chunks / http1_connection.STEPS_PER_TURN


async def test_a_disconnect_during_tiny_chunks_is_noticed() -> None:
    heard = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        heard.set()

    async with running_listener(app) as opened:
        client = await opened.client()
        await client.send(request("POST", "/", transfer_encoding="chunked") + b"1\r\nx\r\n" * 20_000)
        client.abort()
        await heard.wait()
        await connections(await opened.listener(), 0)


async def test_a_disconnect_is_noticed_while_reading_is_paused() -> None:
    app = App(LENGTH)
    async with running_listener(app, heartbeat=0.01, header_timeout=0.01) as opened:
        client = await opened.client()
        await client.send(request("GET", "/") + b"x" * 4 * UNREAD_LIMIT)
        await app.asked.wait()
        raw = client.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.abort()
        await app.disconnected.wait()
        app.answer.set()
        await connections(await opened.listener(), 0)
