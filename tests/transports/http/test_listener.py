"""The listener on real sockets: it binds before it starts, bounds what it takes, and ends in order."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import ProcessExited, kill, restart_child, terminate_child, wait_down, which_children
from greenroom.transports.http_listener import SLACK, HttpListener
from greenroom.transports.listening_sockets import Binding, CannotListen

from .engine_driver import HELLO
from .raw_http import DEFAULTS, Client, house, message, request

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from greenroom.supervision import Ref
    from greenroom.transports.asgi import Receive, Scope, Send


@pytest.fixture(params=[False, True], ids=["ours", "hypercorn"], autouse=True)
def by_either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds for our own HTTP/1.1 holds for Hypercorn's, too."""
    monkeypatch.setitem(DEFAULTS, "hypercorn", request.param)


def now() -> float:
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], object]) -> None:
    """Look at it again and again, less and less often."""
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


# --- where


@pytest.mark.row("ST-23")
async def test_port_0_is_a_real_port_before_anything_runs() -> None:
    binding = Binding("127.0.0.1", 0)
    assert binding.port > 0
    assert list(binding.addresses) == [("127.0.0.1", binding.port)]
    binding.close()


@pytest.mark.row("ST-23")
async def test_a_port_that_is_taken_is_an_error_at_once_that_says_what_to_do() -> None:
    first = Binding("127.0.0.1", 0)
    with pytest.raises(CannotListen, match=f"127.0.0.1:{first.port}: somebody listens there already"):
        Binding("127.0.0.1", first.port)
    first.close()
    second = Binding("127.0.0.1", first.port)
    second.close()


async def test_a_name_with_several_addresses_has_one_port() -> None:
    binding = Binding("localhost", 0)
    assert {port for _, port in binding.addresses} == {binding.port}
    binding.close()
    assert list(binding.addresses) == []
    binding.open()
    assert {port for _, port in binding.addresses} == {binding.port}
    binding.close()


async def test_an_address_of_another_machine_is_an_error() -> None:
    with pytest.raises(CannotListen, match="no interface"):
        Binding("192.0.2.1", 0)


@pytest.mark.row("ST-01")
@pytest.mark.row("ST-04")
async def test_a_session_from_its_beginning_to_its_end() -> None:
    async with house() as opened:
        client = await opened.client()
        hello = await client.ask("POST", body=json.dumps(HELLO).encode())
        assert (hello.status, hello.headers["mcp-session-id"]) == (200, "s1")
        echo = await client.call("echo", id=1, text="hi")
        assert echo.json["result"]["params"] == {"text": "hi"}
        streamed = await client.call("stream", id=2, events=2)
        assert streamed.headers["content-type"] == "text/event-stream"
        assert streamed.body.count(b"data: ") == 4
        listener = await opened.stream()
        gone = await client.ask("DELETE", mcp_session_id="s1")
        assert (gone.status, "content-length" in gone.headers) == (204, False)
        assert await listener.chunk() == b""
        assert (await client.call("echo")).status == 404


# --- who


async def test_a_missing_host_is_refused_even_where_http_allows_it() -> None:
    async with house() as opened:
        client = await opened.client()
        body = json.dumps(HELLO).encode()
        await client.send(b"POST /mcp HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        assert (await client.head()).status == 403
        client = await opened.client()
        await client.send(b"POST /mcp HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        assert (await client.head()).status == 400
        assert opened.door.sessions == {}


# --- other protocols


@pytest.mark.parametrize(
    "preface",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        b"GET /mcp HTTP/2.0\r\nhost: localhost\r\n\r\n",
    ],
)
async def test_http2_is_refused_in_the_clear(preface: bytes) -> None:
    async with house() as opened:
        client = await opened.client()
        await client.send(preface)
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 505 ")


async def test_an_upgrade_to_http2_is_ignored() -> None:
    async with house() as opened:
        client = await opened.entered()
        await client.send(
            request("OPTIONS", connection="upgrade, http2-settings", upgrade="h2c", http2_settings="AAMAAABkAAQAAP__")
        )
        assert (await client.reply()).status == 204
        assert (await client.call("echo")).status == 200


async def test_websockets_are_refused() -> None:
    async with house() as opened:
        for origin in ("http://evil.example", "http://localhost"):
            client = await opened.client()
            handshake: dict[str, Any] = {"sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==", "sec_websocket_version": "13"}
            await client.send(request("GET", connection="Upgrade", upgrade="websocket", origin=origin, **handshake))
            assert (await client.head()).status == 403


# --- bounds


@pytest.mark.row("ST-28")
async def test_beyond_the_cap_connections_are_turned_away(caplog: pytest.LogCaptureFixture) -> None:
    async with house(max_connections=2) as opened:
        first, _ = await opened.entered(), await opened.entered()
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                third = await opened.client()
                assert (await third.rest()).startswith(b"HTTP/1.1 503 ")
        assert len([record for record in caplog.records if "max_connections" in record.message]) == 1
        assert (await first.call("echo")).status == 200
        await first.close()
        ref = await opened.listener()
        await connections(ref, 1)
        assert (await opened.entered()) is not None


@pytest.mark.row("ST-27")
async def test_a_body_that_grows_too_large_is_refused_and_the_refusal_arrives() -> None:
    async with house(max_body=10_000) as opened:
        client = await opened.client()
        await client.send(request("POST", content_type="application/json", transfer_encoding="chunked"))
        sending = asyncio.create_task(client.send(b"1000\r\n" + b" " * 4096 + b"\r\n"))
        for _ in range(30):
            await sending
            sending = asyncio.create_task(client.send(b"1000\r\n" + b" " * 4096 + b"\r\n"))
        await sending
        await client.send(b"0\r\n\r\n")
        reply = await client.reply()
        assert (reply.status, reply.json["error"]["code"]) == (413, -32600)
        client = await opened.client()
        assert (await client.ask("POST", body=b"x" * 20_000)).status == 413
        assert (await client.ask("OPTIONS")).status == 204  # what was small enough to be read is no reason to hang up


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with house(body_timeout=5.0) as opened:
        client = await opened.client()
        began = now()
        await client.send(request("POST", body=b"{", content_length="100"))
        reply = await client.reply()
        assert reply.status == 408
        assert await client.rest() == b""
        assert 5.0 <= now() - began < 7


async def test_headers_that_do_not_come_are_not_waited_for() -> None:
    async with house(header_timeout=3.0) as opened:
        silent, slow = await opened.client(), await opened.client()
        began = now()
        await slow.send(b"POST /mcp HTTP/1.1\r\nhost: loc")
        assert await silent.rest() == await slow.rest() == b""
        assert 3.0 <= now() - began < 4


async def test_headers_without_an_end_are_refused() -> None:
    async with house(max_header=8192) as opened:
        client = await opened.client()
        await client.send(b"POST /mcp HTTP/1.1\r\nx: " + b"a" * 20_000)
        assert (await client.head()).status == 431


async def test_idle_connections_are_closed() -> None:
    async with house(keep_alive=60.0) as opened:
        client = await opened.entered()
        began = now()
        assert await client.rest() == b""
        assert 60 <= now() - began < 61


async def test_a_peer_that_does_not_read_is_cut_and_its_call_goes_on() -> None:
    async with house(write_timeout=10.0, send_buffer=8192) as opened:
        client = await opened.entered()
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request("POST", body=message("stream", events=200, size=100_000), mcp_session_id="s1"))
        ref = await opened.listener()
        await until(lambda: opened.door.sessions["s1"].feeds)
        feed = opened.door.sessions["s1"].feeds[0]
        began = now()
        await until(lambda: feed.left)
        assert now() - began < 25
        assert not opened.door.sessions["s1"].ended
        await connections(ref, 0)


async def test_a_peer_that_reads_slowly_gets_it_all() -> None:
    async with house(write_timeout=10.0, send_buffer=8192) as opened:
        await opened.entered()
        raw = socket.create_connection(("127.0.0.1", opened.port))
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
        client = Client(*await asyncio.open_connection(sock=raw, limit=4096))
        opened.clients.append(client)
        await client.send(request("POST", body=message("stream", events=1, size=600_000), mcp_session_id="s1"))
        began, size = now(), 0
        while not (data := await client.reader.read(65_536)).endswith(b"0\r\n\r\n"):
            assert data, size
            size += len(data)
            await asyncio.sleep(3)
        assert size + len(data) > 600_000
        assert now() - began > 20


async def test_what_is_pipelined_is_answered_in_order() -> None:
    async with house() as opened:
        client = await opened.entered()
        await client.send(b"".join(request("POST", body=message("echo", n), mcp_session_id="s1") for n in range(20)))
        assert [(await client.reply()).json["id"] for _ in range(20)] == list(range(20))


# --- disconnects


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_peer_that_leaves_ends_the_wait_and_not_the_call(how: str) -> None:
    async with house() as opened:
        client = await opened.entered()
        session = opened.door.sessions["s1"]
        await client.send(request("POST", body=message("wait"), mcp_session_id="s1"))
        await until(lambda: session.waiting)
        await hang_up(client, how)
        await until(lambda: not session.waiting)
        assert session.given_up == 1
        assert not session.ended


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_peer_that_leaves_its_stream_leaves_the_feed(how: str) -> None:
    async with house() as opened:
        await opened.entered()
        client = await opened.stream()
        feed = opened.door.sessions["s1"].general
        assert feed is not None
        began = now()
        await hang_up(client, how)
        await until(lambda: feed.left)
        assert now() - began < 0.5


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_peer_that_has_sent_ahead_and_leaves_is_noticed(how: str) -> None:
    async with house() as opened:
        client = await opened.entered()
        session = opened.door.sessions["s1"]
        ahead = request("POST", body=message("echo"), mcp_session_id="s1")
        await client.send(request("POST", body=message("wait"), mcp_session_id="s1") + ahead)
        await until(lambda: session.waiting)
        await hang_up(client, how)
        await until(lambda: not session.waiting)
        await connections(await opened.listener(), 0)
        assert session.given_up == 1


async def hang_up(client: Client, how: str) -> None:
    if how == "rst":
        raw = client.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.abort()
    else:
        client.writer.close()


# --- the end


def _fault(listener: HttpListener) -> int:
    raise OSError("a fault")


@pytest.mark.row("ST-23")
@pytest.mark.parametrize("how", ["kill", "fault"])
async def test_a_crash_costs_connections_and_no_session_and_no_address(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with house() as opened:
        client = await opened.entered()
        listener = await opened.stream()
        ref = await opened.listener()
        pid = ref.pid
        if how == "kill":
            kill(pid)
            await wait_down(pid)
        else:
            with monkeypatch.context() as patch:
                patch.setattr(HttpListener, "connections", _fault)
                with pytest.raises(ProcessExited, match="a fault"):
                    await ref.call(HttpListener.connections)
        client_2 = await opened.client()  # it may connect before there is a listener to accept it
        assert await listener.rest() == b""
        assert await client.rest() == b""
        assert (await client_2.call("echo")).status == 200
        assert (await opened.listener()).pid != pid


async def test_stopping_lets_calls_finish_ends_streams_and_accepts_nobody() -> None:
    async with house(drain_grace=10.0) as opened:
        caller, idle = await opened.entered(), await opened.entered()
        listener = await opened.stream()
        session = opened.door.sessions["s1"]
        await caller.send(request("POST", body=message("wait", 7), mcp_session_id="s1"))
        await until(lambda: session.waiting)
        began = now()
        stopping = asyncio.create_task(opened.stop())
        assert await listener.chunk() == b""
        assert await idle.rest() == b""
        with pytest.raises(OSError):  # noqa: PT011 - refused, or reset
            await (await opened.client()).ask("OPTIONS")
        await asyncio.sleep(5)
        session.go.set()
        reply = await caller.reply()
        assert (reply.status, reply.json["id"], reply.headers["connection"]) == (200, 7, "close")
        assert await caller.rest() == b""
        await stopping
        assert 5 <= now() - began < 6


async def test_a_listener_of_no_program_lets_calls_finish_for_five_seconds() -> None:
    async with house(drain_grace=None) as opened:
        caller = await opened.entered()
        session = opened.door.sessions["s1"]
        await caller.send(request("POST", body=message("wait", 7), mcp_session_id="s1"))
        await until(lambda: session.waiting)
        began = now()
        stopping = asyncio.create_task(opened.stop())
        await asyncio.sleep(4.9)
        session.go.set()
        assert (await caller.reply()).json["id"] == 7
        await stopping
        assert now() - began < 5


async def test_a_listener_that_was_stopped_can_be_started_again_where_it_was() -> None:
    async with house() as opened:
        await opened.entered()
        (child,) = await which_children(opened.supervisor)
        port = opened.port
        await terminate_child(opened.supervisor, child.id)
        with pytest.raises(ConnectionRefusedError):
            await opened.client()
        await restart_child(opened.supervisor, child.id)
        assert opened.port == port
        assert (await (await opened.client()).call("echo")).status == 200
        await opened.stream()


async def test_what_is_left_after_the_grace_is_answered_with_an_error() -> None:
    async with house(drain_grace=2.0) as opened:
        caller = await opened.entered()
        streaming = await opened.entered()
        session = opened.door.sessions["s1"]
        await caller.send(request("POST", body=message("wait"), mcp_session_id="s1"))
        await streaming.send(request("POST", body=message("stream", finish=False), mcp_session_id="s2"))
        await streaming.head()
        await until(lambda: session.waiting)
        began = now()
        await opened.stop()
        assert 2 <= now() - began <= 2 + SLACK
        assert not session.waiting
        for client in (streaming, caller):
            assert b'"error":{"code":-32603' in await client.rest()


@pytest.mark.parametrize("stubborn", [False, True])
async def test_an_application_that_does_not_end_is_not_waited_for(stubborn: bool) -> None:  # noqa: FBT001
    release = asyncio.Event()
    stuck = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        stuck.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                if not stubborn:
                    raise

    async with house(app, drain_grace=1.0) as opened:
        client = await opened.client()
        await client.send(request("POST", body=b"{}"))
        await stuck.wait()
        began = now()
        await opened.stop()
        assert now() - began <= 1 + SLACK
        assert await client.rest() == b""
        release.set()


@pytest.fixture
def many_files() -> Generator[None]:
    """As many open files as this machine lets a program have, if it has to ask."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.deep
@pytest.mark.row("ST-28")
async def test_a_thousand_open_streams_end_within_the_grace(many_files: None) -> None:
    async with house(drain_grace=3.0) as opened:
        caller = await opened.entered()
        streams: list[Client] = []
        for number in range(1000):
            assert (await caller.ask("POST", body=json.dumps(HELLO).encode())).status == 200
            streams.append(await opened.stream(f"s{number + 2}"))
        await caller.send(request("POST", body=message("wait"), mcp_session_id="s1"))
        session = opened.door.sessions["s1"]
        await until(lambda: session.waiting)
        began = now()
        await opened.stop()
        assert now() - began <= 3 + SLACK
        for stream in streams:
            assert await stream.rest() == b"0\r\n\r\n"
