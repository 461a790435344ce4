"""HTTP/1.1 within TLS behaves as without: the same responses, limits and ends."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.transports.http.engine_driver import HELLO
from tests.transports.http.raw_http import RawClient, message, request, running_listener

from greenroom.transports import http1_connection
from greenroom.transports.http_config import HttpConfig
from greenroom.transports.http_listener import HttpListener
from greenroom.transports.open_connections import OpenConnections
from greenroom.transports.tls import RECORDS_PER_TURN, UNREAD_LIMIT, Certificates, TlsConnection

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from tests.transports.http.raw_http import RunningListener

    from greenroom.supervision import Ref
    from greenroom.transports.asgi import Receive, Scope, Send

    from .certificate_authority import CertificateAuthority


def now() -> float:
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], object]) -> None:
    """Check a condition repeatedly, at growing intervals."""
    pause = 0.0
    while not condition():
        await asyncio.sleep(pause)
        pause = min(pause * 2 + 0.001, 0.5)


async def connections(ref: Ref[HttpListener], count: int) -> None:
    """Wait until there are as few."""
    pause = 0.0
    while await ref.call(HttpListener.connections) > count:
        await asyncio.sleep(pause)
        pause = min(pause * 2 + 0.001, 0.5)


async def arrived(ref: Ref[HttpListener], count: int) -> None:
    """Wait until there are as many."""
    pause = 0.0
    while await ref.call(HttpListener.connections) < count:
        await asyncio.sleep(pause)
        pause = min(pause * 2 + 0.001, 0.5)


async def secured(opened: RunningListener, context: ssl.SSLContext) -> RawClient:
    client = RawClient(*await asyncio.open_connection("127.0.0.1", opened.port, ssl=context, limit=1 << 23))
    opened.clients.append(client)
    return client


@pytest.fixture
def context(authority: CertificateAuthority) -> ssl.SSLContext:
    return authority.client()


@pytest.fixture
def opened(secure: dict[str, Any], context: ssl.SSLContext) -> Any:
    """A listener, and a client of it with session s1."""

    @asynccontextmanager
    async def both(**settings: Any) -> AsyncGenerator[tuple[RunningListener, RawClient]]:
        async with running_listener(**secure, **settings) as found:
            client = await secured(found, context)
            assert (await client.ask("POST", body=json.dumps(HELLO).encode())).status == 200
            yield found, client

    return both


@pytest.mark.row("ST-12")
@pytest.mark.parametrize("hypercorn", [False, True])
async def test_a_session_is_served_over_https_from_start_to_end(
    opened: Any, context: ssl.SSLContext, hypercorn: Any
) -> None:
    async with opened(hypercorn=hypercorn) as (found, client):
        echo = await client.call("echo", id=1, text="hi")
        assert echo.json["result"]["params"] == {"text": "hi"}
        assert (await client.call("stream", id=2, events=2)).body.count(b"data: ") == 4
        listening = await secured(found, context)
        await listening.send(request("GET", accept="text/event-stream", mcp_session_id="s1"))
        assert (await listening.head()).status == 200
        assert (await listening.chunk()).startswith(b"id: ")
        assert (await client.ask("DELETE", mcp_session_id="s1")).status == 204
        assert await listening.chunk() == b""


async def test_large_bodies_pass_both_ways(opened: Any) -> None:
    async with opened() as (_, client):
        text = "x" * 4_000_000
        assert (await client.call("echo", text=text)).json["result"]["params"]["text"] == text


@pytest.mark.row("ST-12")
async def test_pages_of_this_machine_may_call_over_https(opened: Any) -> None:
    async with opened() as (_, client):
        for origin in ("https://localhost:3000", "https://127.0.0.1", "https://[::1]:8443", "http://localhost"):
            reply = await client.ask("POST", body=json.dumps(HELLO).encode(), origin=origin)
            assert reply.status == 200, origin
        assert (await client.ask("POST", body=json.dumps(HELLO).encode(), origin="https://evil.example")).status == 403


@pytest.mark.parametrize("hypercorn", [False, True])
async def test_an_application_sees_the_https_scheme(
    secure: dict[str, Any], context: ssl.SSLContext, hypercorn: Any
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body = scope["scheme"].encode()
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async with running_listener(app, **secure, hypercorn=hypercorn) as found:
        client = await secured(found, context)
        assert (await client.ask("GET")).body == b"https"


async def test_http2_is_refused_where_it_was_not_negotiated(secure: dict[str, Any], context: ssl.SSLContext) -> None:
    async with running_listener(**secure, http2=True) as found:
        client = await secured(found, context)
        await client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        assert (await client.rest()).startswith(b"HTTP/1.1 505 ")


# --- the handshake


@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
async def test_an_incomplete_handshake_times_out(secure: dict[str, Any], said: bytes) -> None:
    async with running_listener(**secure, handshake_timeout=3.0) as found:
        client = await found.client()
        began = now()
        await client.send(said)
        await until(lambda: client.reader.at_eof() or client.reader.exception())
        assert 3.0 <= now() - began < 4
        await connections(await found.listener(), 0)


async def test_a_peer_in_its_handshake_counts_as_a_connection(secure: dict[str, Any], context: ssl.SSLContext) -> None:
    async with running_listener(**secure, max_connections=2) as found:
        silent = [await found.client() for _ in range(2)]
        ref = await found.listener()
        await arrived(ref, 2)
        with pytest.raises(OSError):  # noqa: PT011 - however it is told
            await secured(found, context)
        silent[0].abort()
        await connections(ref, 1)
        await secured(found, context)


async def test_a_listener_that_stops_does_not_wait_for_handshakes(secure: dict[str, Any]) -> None:
    async with running_listener(**secure, drain_grace=10.0) as found:
        client = await found.client()
        ref = await found.listener()
        await arrived(ref, 1)
        began = now()
        await found.stop()
        assert now() - began < 1
        assert await client.rest() == b""


@pytest.mark.parametrize(
    "said",
    [b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", b"\x16\x03\x01\x00\x02\x01\x00" * 9, bytes(99)],
    ids=["http", "half a hello", "zeros"],
)
async def test_an_invalid_handshake_ends_the_connection(
    secure: dict[str, Any], said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "greenroom.http"):
        async with running_listener(**secure) as found:
            client = await found.client()
            await client.send(said)
            await until(lambda: client.reader.at_eof() or client.reader.exception())
            await connections(await found.listener(), 0)
    assert "greenroom.http" not in {
        record.name for record in caplog.records
    }  # any peer can do that, as often as it likes


async def test_invalid_tls_records_end_the_connection(opened: Any) -> None:
    async with opened() as (found, client):
        session = found.router.sessions["s1"]
        await client.send(request("POST", body=message("wait"), mcp_session_id="s1"))
        await until(lambda: session.waiting)
        client.writer.transport._ssl_protocol._transport.write(b"nonsense, for TLS")
        await until(lambda: session.given_up == 1)
        assert not session.ended


# --- slow and vanished peers


async def test_a_peer_that_does_not_read_over_https_is_cut_and_its_call_continues(opened: Any) -> None:
    async with opened(write_timeout=10.0, send_buffer=8192) as (found, client):
        session = found.router.sessions["s1"]
        client.writer.transport._ssl_protocol._transport.pause_reading()
        await client.send(request("POST", body=message("stream", events=200, size=100_000), mcp_session_id="s1"))
        await until(lambda: session.feeds)
        began = now()
        await until(lambda: session.feeds[0].left)
        assert now() - began < 25
        assert not session.ended
        await connections(await found.listener(), 0)


async def test_a_peer_that_reads_slowly_over_https_gets_everything(
    secure: dict[str, Any], opened: Any, context: ssl.SSLContext
) -> None:
    async with opened(write_timeout=10.0, send_buffer=8192) as (found, _):
        raw = socket.create_connection(("127.0.0.1", found.port))
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
        opening = asyncio.open_connection(sock=raw, ssl=context, server_hostname="localhost", limit=4096)
        client = RawClient(*await opening)
        found.clients.append(client)
        await client.send(request("POST", body=message("stream", events=1, size=2_000_000), mcp_session_id="s1"))
        began, size = now(), 0
        while not (data := await client.reader.read(65_536)).endswith(b"0\r\n\r\n"):
            assert data, size
            size += len(data)
            await asyncio.sleep(3)
        assert size + len(data) > 2_000_000
        assert now() - began > 20


@pytest.mark.parametrize("how", ["notify", "rst"])
async def test_a_disconnect_over_https_ends_the_wait_and_not_the_call(
    opened: Any, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1_connection, "PEER_CHECK", 0.01)
    async with opened() as (found, client):
        session = found.router.sessions["s1"]
        await client.send(request("POST", body=message("wait"), mcp_session_id="s1"))
        await until(lambda: session.waiting)
        raw = client.writer.get_extra_info("socket")
        if how == "notify":
            client.writer.close()
        else:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.abort()
        await until(lambda: not session.waiting)
        assert session.given_up == 1
        assert not session.ended
        await connections(await found.listener(), 0)


class Raw:
    """A TLS client by hand, which controls when its records and its ends are sent."""

    def __init__(self, raw: socket.socket, context: ssl.SSLContext) -> None:
        self.raw = raw
        self.loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    @classmethod
    async def to(cls, port: int, context: ssl.SSLContext) -> Raw:
        raw = socket.create_connection(("127.0.0.1", port))
        raw.setblocking(False)
        made = cls(raw, context)
        await made.step(made.tls.do_handshake)
        await made.flush()
        return made

    async def flush(self) -> None:
        if data := self._outgoing.read():
            await self.loop.sock_sendall(self.raw, data)

    async def step(self, what: Callable[[], Any]) -> Any:
        while True:
            try:
                return what()
            except ssl.SSLWantReadError:
                await self.flush()
                data = await self.loop.sock_recv(self.raw, 65_536)
                self._incoming.write(data) if data else self._incoming.write_eof()

    async def end(self, how: str) -> None:
        """Half-close."""
        if "notify" in how:
            with pytest.raises(ssl.SSLWantReadError):
                self.tls.unwrap()
        await self.flush()
        if "fin" in how:
            self.raw.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("how", ["notify", "fin", "notify, then fin"])
async def test_a_request_followed_by_a_close_notify_is_answered(
    secure: dict[str, Any], context: ssl.SSLContext, how: str
) -> None:
    heard, answer = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        heard.set()
        await answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"done"})

    async with running_listener(app, **secure) as found:
        client = await Raw.to(found.port, context)
        client.tls.write(request("POST", "/", b"abc"))
        await client.end(how)
        await heard.wait()
        answer.set()
        data = bytearray()
        while piece := await client.loop.sock_recv(client.raw, 65_536):
            data += piece
        if "notify" not in how:  # this side of OpenSSL reads no more; its arrival shows in its length
            client._incoming.write(bytes(data))
            assert client.tls.read(65_536).endswith(b"done")
        assert len(data) > 150
        client.raw.close()
        await connections(await found.listener(), 0)


async def test_tiny_records_let_other_connections_have_turns(secure: dict[str, Any], context: ssl.SSLContext) -> None:
    count, turns, done = 5_000, 0, asyncio.Event()

    def turn() -> None:
        nonlocal turns
        turns += 1
        if not done.is_set():
            asyncio.get_running_loop().call_soon(turn)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        done.set()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"done"})

    async with running_listener(app, **secure) as found:
        client = await Raw.to(found.port, context)
        client.tls.write(request("POST", "/", content_length=count))
        for _ in range(count):
            client.tls.write(b"x")
        asyncio.get_running_loop().call_soon(turn)
        await client.end("fin")
        assert (await client.step(lambda: client.tls.read(65_536))).endswith(b"done")
        assert turns > count / RECORDS_PER_TURN
        client.raw.close()


class Heard(asyncio.Protocol):
    """Counts its callbacks."""

    def __init__(self) -> None:
        self.count = 0

    def data_received(self, data: bytes) -> None:
        self.count += len(data)


async def test_a_socket_is_not_read_while_many_records_are_buffered(
    secure: dict[str, Any], context: ssl.SSLContext
) -> None:
    config, made, wires = HttpConfig(**secure), Heard(), list[TlsConnection]()
    connections, certificates = OpenConnections(no_application, config), Certificates(config)

    def begin() -> TlsConnection:
        wires.append(TlsConnection(connections, certificates, lambda _: made))
        return wires[0]

    async with await asyncio.get_running_loop().create_server(begin, "127.0.0.1", 0) as server:
        client = await Raw.to(server.sockets[0].getsockname()[1], context)
        client.tls.write(b"x")
        await client.flush()
        await until(lambda: made.count)
        wire, count = wires[0], UNREAD_LIMIT // 10  # a record has 22 bytes at least
        for _ in range(count):
            client.tls.write(b"x")
        wire.data_received(client._outgoing.read())
        assert not wire._raw.is_reading()
        while not wire._raw.is_reading():
            assert wire._continuation is not None
            await asyncio.sleep(0)
        assert wire._incoming.pending <= UNREAD_LIMIT
        await until(lambda: made.count == count + 1)
        client.raw.close()
        await until(wire._raw.is_closing)


class Late(asyncio.Protocol):
    """Sends something after the peer has half-closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, TlsConnection)
        self.transport = transport

    def eof_received(self) -> bool:
        asyncio.get_running_loop().call_later(5, self.speak)
        return True

    def speak(self) -> None:
        self.transport.write(b"late")
        self.transport.write(b"")
        self.transport.write_eof()
        self.transport.write(b"later")
        self.transport.close()


@pytest.mark.parametrize("how", ["fin", "notify, then fin"])
async def test_a_half_closed_tls_peer_is_still_answered(
    secure: dict[str, Any], context: ssl.SSLContext, how: str
) -> None:
    config = HttpConfig(**secure)
    connections, certificates, made = OpenConnections(no_application, config), Certificates(config), Late()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: TlsConnection(connections, certificates, lambda _: made), "127.0.0.1", 0)
    raw = socket.create_connection(server.sockets[0].getsockname())
    raw.setblocking(False)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")

    async def step(what: Callable[[], Any]) -> Any:
        while True:
            try:
                return what()
            except ssl.SSLWantReadError:
                await loop.sock_sendall(raw, outgoing.read())
                data = await loop.sock_recv(raw, 65_536)
                incoming.write(data) if data else incoming.write_eof()

    await step(client.do_handshake)
    if "notify" in how:
        with pytest.raises(ssl.SSLWantReadError):
            client.unwrap()
    await loop.sock_sendall(raw, outgoing.read())
    raw.shutdown(socket.SHUT_WR)
    heard = bytearray()
    while data := await loop.sock_recv(raw, 65_536):
        heard += data
    incoming.write(bytes(heard))
    assert "notify" in how or client.read() == b"late"
    assert len(heard) > len(b"late")
    assert made.transport.is_closing()
    assert not connections.open
    raw.close()
    server.close()
    await server.wait_closed()


async def no_application(scope: Scope, receive: Receive, send: Send) -> None:
    """Is never called."""


async def test_the_end_is_announced_by_close_notify(opened: Any) -> None:
    async with opened(keep_alive=60.0) as (_, client):
        assert await client.rest() == b""  # asyncio would raise for an unannounced end
        assert client.reader.exception() is None


async def test_stopping_over_tls_answers_running_requests_and_closes(opened: Any) -> None:
    async with opened(drain_grace=5.0) as (found, client):
        session = found.router.sessions["s1"]
        await client.send(request("POST", body=message("wait"), mcp_session_id="s1"))
        await until(lambda: session.waiting)
        stopping = asyncio.create_task(found.stop())
        await asyncio.sleep(0.1)
        session.go.set()
        reply = await client.reply()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert await client.rest() == b""
        await stopping


class Curious(asyncio.Protocol):
    """Calls every method of its transport, and records the results."""

    def __init__(self, successor: asyncio.Protocol | None = None) -> None:
        self.successor = successor

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        transport = self.transport
        tls = transport.get_extra_info("ssl_object")
        transport.set_write_buffer_limits(high=1000)
        transport.pause_reading()
        paused = transport.is_reading()
        transport.resume_reading()
        told = [
            transport.get_extra_info("sslcontext") is tls.context,
            transport.get_extra_info("peercert", "no_application's"),
            transport.get_extra_info("cipher") == tls.cipher(),
            transport.get_extra_info("peername")[0],
            transport.get_extra_info("no such thing", "none"),
            (paused, transport.is_reading()),
            transport.get_write_buffer_limits()[1],
            transport.get_protocol() is self,
            transport.can_write_eof(),
        ]
        transport.write(json.dumps(told).encode() + b"\n")
        if self.successor is not None:
            self.successor.connection_made(transport)
            transport.set_protocol(self.successor)


async def test_the_protocol_inside_tls_can_use_its_transport_and_be_replaced(
    secure: dict[str, Any], context: ssl.SSLContext
) -> None:
    config = HttpConfig(**secure)
    connections, certificates, made = OpenConnections(no_application, config), Certificates(config), Curious(Curious())
    loop = asyncio.get_running_loop()
    async with await loop.create_server(
        lambda: TlsConnection(connections, certificates, lambda _: made), "127.0.0.1", 0
    ) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        for _ in range(2):  # the second time the other protocol answers
            writer.write(b"well?")
            told = json.loads(await reader.readline())
            assert told == [True, "no_application's", True, "127.0.0.1", "none", [False, True], 1000, True, True]
        writer.close()
        await writer.wait_closed()
