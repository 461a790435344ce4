"""The HTTP listener on real sockets: binding, limits, disconnects, and the end."""

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
from .raw_http import DEFAULTS, RawClient, message, request, running_listener

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from greenroom.supervision import Ref
    from greenroom.transports.asgi import Receive, Scope, Send


@pytest.fixture(params=[False, True], ids=["ours", "hypercorn"], autouse=True)
def by_either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests hold for our own HTTP/1.1 and for Hypercorn's."""
    monkeypatch.setitem(DEFAULTS, "hypercorn", request.param)


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


# --- addresses


@pytest.mark.row("ST-23")
async def test_port_0_is_resolved_before_anything_runs() -> None:
    binding = Binding("127.0.0.1", 0)
    assert binding.port > 0
    assert list(binding.addresses) == [("127.0.0.1", binding.port)]
    binding.close()


@pytest.mark.row("ST-23")
async def test_a_port_in_use_is_an_error_at_once_with_advice() -> None:
    first = Binding("127.0.0.1", 0)
    with pytest.raises(CannotListen, match=f"127.0.0.1:{first.port}: the port is in use"):
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
async def test_a_session_is_served_from_start_to_end() -> None:
    async with running_listener() as opened:
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


# --- Host


async def test_a_missing_host_is_refused_even_where_http_allows_it() -> None:
    async with running_listener() as opened:
        client = await opened.client()
        body = json.dumps(HELLO).encode()
        await client.send(b"POST /mcp HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        assert (await client.head()).status == 403
        client = await opened.client()
        await client.send(b"POST /mcp HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        assert (await client.head()).status == 400
        assert opened.router.sessions == {}


# --- other protocols


@pytest.mark.parametrize(
    "preface",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        b"GET /mcp HTTP/2.0\r\nhost: localhost\r\n\r\n",
    ],
)
async def test_http2_without_tls_is_refused(preface: bytes) -> None:
    async with running_listener() as opened:
        client = await opened.client()
        await client.send(preface)
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 505 ")


async def test_an_upgrade_to_http2_is_ignored() -> None:
    async with running_listener() as opened:
        client = await opened.entered()
        await client.send(
            request("OPTIONS", connection="upgrade, http2-settings", upgrade="h2c", http2_settings="AAMAAABkAAQAAP__")
        )
        assert (await client.reply()).status == 204
        assert (await client.call("echo")).status == 200


async def test_websockets_are_refused() -> None:
    async with running_listener() as opened:
        for origin in ("http://evil.example", "http://localhost"):
            client = await opened.client()
            handshake: dict[str, Any] = {"sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==", "sec_websocket_version": "13"}
            await client.send(request("GET", connection="Upgrade", upgrade="websocket", origin=origin, **handshake))
            assert (await client.head()).status == 403


# --- limits


@pytest.mark.row("ST-28")
async def test_connections_over_the_limit_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with running_listener(max_connections=2) as opened:
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
async def test_a_body_that_grows_over_the_limit_is_refused_and_the_refusal_arrives() -> None:
    async with running_listener(max_body=10_000) as opened:
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
        assert (
            await client.ask("OPTIONS")
        ).status == 204  # what was small enough to be read does not close the connection


async def test_a_missing_body_times_out() -> None:
    async with running_listener(body_timeout=5.0) as opened:
        client = await opened.client()
        began = now()
        await client.send(request("POST", body=b"{", content_length="100"))
        reply = await client.reply()
        assert reply.status == 408
        assert await client.rest() == b""
        assert 5.0 <= now() - began < 7


async def test_missing_headers_time_out() -> None:
    async with running_listener(header_timeout=3.0) as opened:
        silent, slow = await opened.client(), await opened.client()
        began = now()
        await slow.send(b"POST /mcp HTTP/1.1\r\nhost: loc")
        assert await silent.rest() == await slow.rest() == b""
        assert 3.0 <= now() - began < 4


async def test_headers_without_an_end_are_refused() -> None:
    async with running_listener(max_header=8192) as opened:
        client = await opened.client()
        await client.send(b"POST /mcp HTTP/1.1\r\nx: " + b"a" * 20_000)
        assert (await client.head()).status == 431


async def test_idle_connections_are_closed() -> None:
    async with running_listener(keep_alive=60.0) as opened:
        client = await opened.entered()
        began = now()
        assert await client.rest() == b""
        assert 60 <= now() - began < 61


async def test_a_peer_that_does_not_read_is_cut_and_its_call_goes_on() -> None:
    async with running_listener(write_timeout=10.0, send_buffer=8192) as opened:
        client = await opened.entered()
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(request("POST", body=message("stream", events=200, size=100_000), mcp_session_id="s1"))
        ref = await opened.listener()
        await until(lambda: opened.router.sessions["s1"].feeds)
        feed = opened.router.sessions["s1"].feeds[0]
        began = now()
        await until(lambda: feed.left)
        assert now() - began < 25
        assert not opened.router.sessions["s1"].ended
        await connections(ref, 0)


async def test_a_peer_that_reads_slowly_gets_it_all() -> None:
    async with running_listener(write_timeout=10.0, send_buffer=8192) as opened:
        await opened.entered()
        raw = socket.create_connection(("127.0.0.1", opened.port))
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
        client = RawClient(*await asyncio.open_connection(sock=raw, limit=4096))
        opened.clients.append(client)
        await client.send(request("POST", body=message("stream", events=1, size=600_000), mcp_session_id="s1"))
        began, size = now(), 0
        while not (data := await client.reader.read(65_536)).endswith(b"0\r\n\r\n"):
            assert data, size
            size += len(data)
            await asyncio.sleep(3)
        assert size + len(data) > 600_000
        assert now() - began > 20


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with running_listener() as opened:
        client = await opened.entered()
        await client.send(b"".join(request("POST", body=message("echo", n), mcp_session_id="s1") for n in range(20)))
        assert [(await client.reply()).json["id"] for _ in range(20)] == list(range(20))


# --- disconnects


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_disconnect_ends_the_wait_and_not_the_call(how: str) -> None:
    async with running_listener() as opened:
        client = await opened.entered()
        session = opened.router.sessions["s1"]
        await client.send(request("POST", body=message("wait"), mcp_session_id="s1"))
        await until(lambda: session.waiting)
        await hang_up(client, how)
        await until(lambda: not session.waiting)
        assert session.given_up == 1
        assert not session.ended


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_disconnect_from_a_stream_detaches_its_reader(how: str) -> None:
    async with running_listener() as opened:
        await opened.entered()
        client = await opened.stream()
        feed = opened.router.sessions["s1"].general
        assert feed is not None
        began = now()
        await hang_up(client, how)
        await until(lambda: feed.left)
        assert now() - began < 0.5


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_disconnect_of_a_pipelining_peer_is_noticed(how: str) -> None:
    async with running_listener() as opened:
        client = await opened.entered()
        session = opened.router.sessions["s1"]
        ahead = request("POST", body=message("echo"), mcp_session_id="s1")
        await client.send(request("POST", body=message("wait"), mcp_session_id="s1") + ahead)
        await until(lambda: session.waiting)
        await hang_up(client, how)
        await until(lambda: not session.waiting)
        await connections(await opened.listener(), 0)
        assert session.given_up == 1


async def hang_up(client: RawClient, how: str) -> None:
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
async def test_a_crash_of_the_listener_ends_connections_but_no_session_and_keeps_the_address(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async with running_listener() as opened:
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
        client_2 = await opened.client()  # the client may connect before the listener accepts again
        assert await listener.rest() == b""
        assert await client.rest() == b""
        assert (await client_2.call("echo")).status == 200
        assert (await opened.listener()).pid != pid


async def test_stopping_lets_calls_finish_ends_streams_and_accepts_no_connection() -> None:
    async with running_listener(drain_grace=10.0) as opened:
        caller, idle = await opened.entered(), await opened.entered()
        listener = await opened.stream()
        session = opened.router.sessions["s1"]
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


async def test_a_listener_without_a_program_lets_calls_finish_for_five_seconds() -> None:
    async with running_listener(drain_grace=None) as opened:
        caller = await opened.entered()
        session = opened.router.sessions["s1"]
        await caller.send(request("POST", body=message("wait", 7), mcp_session_id="s1"))
        await until(lambda: session.waiting)
        began = now()
        stopping = asyncio.create_task(opened.stop())
        await asyncio.sleep(4.9)
        session.go.set()
        assert (await caller.reply()).json["id"] == 7
        await stopping
        assert now() - began < 5


async def test_a_stopped_listener_can_be_started_again_at_its_address() -> None:
    async with running_listener() as opened:
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


async def test_calls_left_after_the_grace_are_answered_with_an_error() -> None:
    async with running_listener(drain_grace=2.0) as opened:
        caller = await opened.entered()
        streaming = await opened.entered()
        session = opened.router.sessions["s1"]
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
async def test_an_application_that_does_not_end_is_cut(stubborn: bool) -> None:  # noqa: FBT001
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

    async with running_listener(app, drain_grace=1.0) as opened:
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
    """Raise the limit of open files as far as this machine allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.deep
@pytest.mark.row("ST-28")
async def test_a_thousand_open_streams_end_within_the_grace(many_files: None) -> None:
    async with running_listener(drain_grace=3.0) as opened:
        caller = await opened.entered()
        streams: list[RawClient] = []
        for number in range(1000):
            assert (await caller.ask("POST", body=json.dumps(HELLO).encode())).status == 200
            streams.append(await opened.stream(f"s{number + 2}"))
        await caller.send(request("POST", body=message("wait"), mcp_session_id="s1"))
        session = opened.router.sessions["s1"]
        await until(lambda: session.waiting)
        began = now()
        await opened.stop()
        assert now() - began <= 3 + SLACK
        for stream in streams:
            assert await stream.rest() == b"0\r\n\r\n"
