"""HTTP/2: no stream holds up, silences or ends another, and what costs a peer nothing is bounded."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest
from tests.transports.http.raw_http import running_listener

from greenroom.supervision import kill
from greenroom.transports.http2_connection import (
    CONNECTION_WINDOW,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADER_FRAME_STEPS,
    HEADERS,
    LINGER,
    PING,
    PRIORITY,
    SETTINGS,
    STEPS_PER_TURN,
    STREAM_WINDOW,
    WINDOW_UPDATE,
    Http2Connection,
)
from greenroom.transports.http_config import HttpConfig
from greenroom.transports.http_listener import HttpListener

from .raw_http2 import Http2Client, frame_header, http2_client

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable

    from tests.transports.http.raw_http import RunningListener

    from greenroom.transports.asgi import App, Receive, Scope, Send

    from .certificate_authority import CertificateAuthority

NO_ERROR, INTERNAL_ERROR, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 0, 2, 6, 7, 8, 11


def now() -> float:
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], object]) -> None:
    """Check a condition repeatedly, at growing intervals."""
    pause = 0.0
    while not condition():
        await asyncio.sleep(pause)
        pause = min(pause * 2 + 0.001, 0.5)


@pytest.fixture
def context(authority: CertificateAuthority) -> ssl.SSLContext:
    return authority.client(alpn=["h2"])


@pytest.fixture
def opened(secure: dict[str, Any], context: ssl.SSLContext) -> Any:
    """A listener, and a client of it with session s1."""

    @asynccontextmanager
    async def both(app: App | None = None, **settings: Any) -> AsyncGenerator[tuple[RunningListener, Http2Client]]:
        async with (
            running_listener(app, **secure, http2=True, **settings) as found,
            http2_client(found.port, context) as frames,
        ):
            if app is None:
                await frames.enter()
            yield found, frames

    return both


@pytest.mark.row("ST-12")
async def test_a_session_is_served_over_http2_from_start_to_end(opened: Any) -> None:
    async with opened() as (_, frames):
        echo = await frames.answer(frames.call("echo", text="hi"))
        assert (echo.status, echo.json["result"]["params"]) == (200, {"text": "hi"})
        assert {"content-type", "content-length", "date"} <= set(echo.headers)
        assert "connection" not in echo.headers
        streamed = await frames.answer(frames.call("stream", events=2))
        assert streamed.headers["content-type"] == "text/event-stream"
        assert streamed.body.count(b"data: ") == 4
        listening = frames.listen()
        await frames.until(lambda: frames.answers[listening].body)
        gone = await frames.answer(frames.begin("DELETE", end=True, mcp_session_id="s1"))
        assert (gone.status, "content-length" in gone.headers, gone.body) == (204, False, b"")
        assert (await frames.answer(listening)).reset is None
        assert (await frames.answer(frames.call("echo"))).status == 404


@pytest.mark.row("ST-12")
async def test_two_thousand_requests_beside_a_stream_lose_none_of_its_events(opened: Any) -> None:
    async with opened() as (found, frames):
        listening = frames.listen()
        await frames.until(lambda: frames.answers[listening].body)
        feed = found.router.sessions["s1"].general
        for batch in range(0, 2000, 50):
            streams = [frames.call("echo", id=batch + n, n=batch + n) for n in range(50)]
            feed.put(b'{"n":%d}' % batch)
            for n, stream in enumerate(streams):
                assert (await frames.answer(stream)).json["result"]["params"] == {"n": batch + n}
        feed.end()
        heard = (await frames.answer(listening)).body
        assert [heard.count(b'data: {"n":%d}' % batch) for batch in range(0, 2000, 50)] == [1] * 40
        assert frames.goodbye is None


async def test_the_asgi_scope_of_a_request(opened: Any) -> None:
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"X-Said", b"yes"), (b"Connection", b"x")]}
        )
        await send({"type": "http.response.body", "body": b"body"})

    async with opened(app) as (found, frames):
        answer = await frames.answer(frames.begin("GET", "/a%20b?c=d", end=True, host="127.0.0.1", cookie="a=b"))
        assert (answer.status, answer.body, answer.headers["x-said"]) == (200, b"body", "yes")
        assert "connection" not in answer.headers
        (scope,) = scopes
        assert (scope["http_version"], scope["method"], scope["scheme"]) == ("2", "GET", "https")
        assert (scope["path"], scope["raw_path"], scope["query_string"]) == ("/a b", b"/a%20b", b"c=d")
        assert [value for name, value in scope["headers"] if name == b"host"] == [b"127.0.0.1"]
        assert (b"cookie", b"a=b") in scope["headers"]
        assert scope["server"] == ("127.0.0.1", found.port)
        assert (await frames.answer(frames.begin("HEAD", end=True))).body == b""


async def test_an_application_that_fails_or_sends_nothing_ends_only_its_stream(
    opened: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/fails":
                raise RuntimeError("no_application thought of that")
            case "/silent":
                return
            case "/breaks":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"half", "more_body": True})
                raise RuntimeError("in the middle")
            case "/short":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"half", "more_body": True})
            case _:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"", "more_body": True})
                await asyncio.Event().wait()

    async with opened(app) as (_, frames):
        waiting = frames.begin("GET", "/waits", end=True)
        await frames.until(lambda: frames.answers[waiting].headers)
        with caplog.at_level(logging.ERROR):
            assert (await frames.answer(frames.begin("GET", "/fails", end=True))).status == 500
            assert (await frames.answer(frames.begin("GET", "/silent", end=True))).status == 500
        assert "GET '/fails' ended in an error of the server" in caplog.text
        assert "no_application thought of that" in caplog.text
        for path in ("/breaks", "/short"):  # half a response must not look like a whole one
            half = await frames.answer(frames.begin("GET", path, end=True))
            assert (half.status, half.ended, half.reset) == (200, False, INTERNAL_ERROR)
        assert not frames.answers[waiting].ended
        assert frames.answers[waiting].reset is None


async def test_the_error_response_of_a_failed_application_is_complete(opened: Any) -> None:
    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("no_application thought of that")

    async with opened(fails) as (_, frames):
        uploading = frames.begin("POST", "/fails")
        assert (await frames.answer(uploading)).status == 500
        answer = frames.answers[uploading]
        await frames.until(lambda: answer.reset is not None)
        assert (answer.ended, answer.reset) == (True, NO_ERROR)  # the rest of its body is not wanted, and that is all


# --- independence of streams


async def test_data_after_the_response_ends_nothing(opened: Any) -> None:
    async def early(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/early":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"enough"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"still here", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    async with opened(early) as (_, frames):
        sibling = frames.begin("GET", "/stream", end=True)
        late = frames.begin("POST", "/early")
        assert (await frames.answer(late)).body == b"enough"
        for _ in range(8):  # twice its window: late data is accepted and dropped
            frames.data(late, b"x" * 16_000)
            await frames.until(lambda: frames.windows.get(late, 0) >= 16_000)
            frames.windows[late] = 0
        began = now()
        await frames.until(lambda: frames.answers[late].reset is not None)
        assert frames.answers[late].reset == NO_ERROR
        assert now() - began <= LINGER
        frames.data(late, b"x" * 1000, end=True)
        again = await frames.answer(frames.begin("POST", "/early", end=True))
        assert again.body == b"enough"
        assert not frames.answers[sibling].ended
        assert frames.goodbye is None


async def test_an_unread_body_stalls_no_other_stream(opened: Any) -> None:
    hold = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/deaf":
            await hold.wait()
        size = 0
        while True:
            message = await receive()
            size += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % size})

    async with opened(app) as (_, frames):
        deaf = [frames.begin("POST", "/deaf") for _ in range(20)]
        for stream in deaf:  # 1.3 MB that the application does not read
            for _ in range(4):
                frames.data(stream, b"x" * (STREAM_WINDOW // 4))
            await frames.until(lambda: frames.windows.get(0, 0) >= 0)
        for size in (10, 60_000):
            stream = frames.begin("POST", "/reads")
            for at in range(0, size, 16_000):
                frames.data(stream, b"y" * min(16_000, size - at), end=at + 16_000 >= size)
            assert (await frames.answer(stream)).body == b"%d" % size
        assert all(
            frames.windows.get(stream, 0) == 0 for stream in deaf
        )  # the window stays closed until the application reads
        hold.set()
        for stream in deaf:
            frames.data(stream, b"z", end=True)
            assert (await frames.answer(stream)).body == b"%d" % (STREAM_WINDOW // 4 * 4 + 1)


async def test_the_connections_window_is_replenished_to_the_byte(opened: Any) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"read"})

    async with opened(app) as (_, frames):
        await frames.until(lambda: 0 in frames.windows)
        before = frames.windows[0]
        quarter, piece = CONNECTION_WINDOW // 4, 8192
        for turn in (
            1,
            2,
        ):  # each quarter is complete when its last byte has arrived, and the next one starts at zero
            stream = frames.begin("POST", "/reads")
            for at in range(0, quarter, piece):
                await frames.until(lambda: at + piece - frames.windows.get(stream, 0) <= STREAM_WINDOW)  # noqa: B023 - within this turn
                frames.data(stream, b"x" * piece, end=at + piece == quarter)
            assert (await frames.answer(stream)).body == b"read"
            assert frames.windows[0] - before == turn * quarter


async def test_opening_the_connections_window_alone_resumes_waiting_streams(opened: Any) -> None:
    async with opened(write_timeout=10.0) as (_, frames):
        frames.gives = False
        stream = frames.call("stream", events=1, size=200_000)
        frames.give(stream, 1 << 20)
        answer = frames.answers[stream]
        await frames.until(lambda: len(answer.body) >= 64_000)
        await asyncio.sleep(5)
        assert not answer.ended
        frames.give(0, 1 << 20)
        assert len((await frames.answer(stream)).body) > 200_000


async def test_a_body_over_its_window_is_a_protocol_error(opened: Any) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async with opened(app) as (_, frames):
        deaf = frames.begin("POST", "/deaf")
        for _ in range(5):
            frames.data(deaf, b"x" * 16_000)
        goodbye = await frames.end()
        assert goodbye is not None
        assert goodbye[1] == 3


async def test_a_missing_body_times_out_over_http2(opened: Any) -> None:
    async with opened(body_timeout=5.0) as (_, frames):
        began = now()
        stream = frames.begin("POST", content_type="application/json")
        assert (await frames.answer(stream)).status == 408
        assert 5.0 <= now() - began < 6
        assert (await frames.answer(frames.call("echo"))).status == 200


async def test_a_body_that_grows_over_the_limit_is_refused_without_effect_on_others(opened: Any) -> None:
    async with opened(max_body=10_000) as (_, frames):
        stream = frames.begin("POST", content_type="application/json")
        for _ in range(2):
            frames.data(stream, b" " * 8000)
        frames.data(stream, b"", end=True)
        assert (await frames.answer(stream)).status == 413
        assert (await frames.answer(frames.call("echo"))).status == 200


async def test_an_unread_stream_is_reset_and_its_call_and_siblings_continue(opened: Any) -> None:
    async with opened(write_timeout=10.0, heartbeat=3.0) as (found, frames):
        frames.give(0, 1 << 24)
        frames.gives = False
        began = now()
        stalled = frames.call("stream", events=20, size=20_000, finish=False)
        answer = frames.answers[stalled]
        await frames.until(lambda: len(answer.body) >= 65_000)
        assert (await frames.answer(frames.call("echo"))).status == 200
        assert (await frames.answer(stalled)).reset == CANCEL
        assert 10.0 <= now() - began < 15
        assert len(answer.body) == 65_535
        session = found.router.sessions["s1"]
        await until(lambda: session.feeds[0].left)
        assert not session.ended
        assert (await frames.answer(frames.call("echo"))).status == 200


async def test_a_slowly_read_stream_is_delivered_completely(opened: Any) -> None:
    async with opened(write_timeout=10.0) as (_, frames):
        frames.give(0, 1 << 24)
        frames.gives = False
        began = now()
        slow = frames.call("stream", events=1, size=200_000)
        answer = frames.answers[slow]
        given = 65_535
        while not answer.ended:
            await frames.until(lambda: answer.ended or len(answer.body) >= given)  # noqa: B023 - within this turn
            await asyncio.sleep(6)
            given += 30_000
            frames.give(slow, 30_000)
        assert len(answer.body) > 200_000
        assert now() - began > 24


async def test_a_peer_that_opens_no_window_is_cut_and_its_calls_continue(opened: Any) -> None:
    async with opened(write_timeout=10.0) as (found, frames):
        frames.gives = False
        streams = [frames.call("stream", id=n, events=20, size=20_000, finish=False) for n in range(3)]
        began = now()
        await frames.end()
        assert 10.0 <= now() - began < 15
        assert sum(len(frames.answers[stream].body) for stream in streams) <= 65_535
        session = found.router.sessions["s1"]
        await until(lambda: all(feed.left for feed in session.feeds))
        assert not session.ended


async def test_a_peer_that_does_not_read_its_socket_is_cut(opened: Any) -> None:
    async with opened(write_timeout=10.0, send_buffer=8192) as (found, frames):
        frames.give(0, 1 << 24)
        stream = frames.call("stream", events=200, size=100_000)
        frames.give(stream, 1 << 24)
        await frames.writer.drain()
        frames.writer.transport.pause_reading()
        session = found.router.sessions["s1"]
        await until(lambda: session.feeds)
        began = now()
        await until(lambda: session.feeds[0].left)
        assert now() - began < 25
        frames.writer.transport.resume_reading()
        await until(lambda: frames.reader.at_eof() or frames.reader.exception())


async def test_each_silent_stream_has_its_own_heartbeat(opened: Any) -> None:
    async with opened(heartbeat=5.0) as (_, frames):
        streams = [frames.call("stream", id=n, finish=False) for n in range(3)]
        began = now()
        for beats in range(1, 4):
            await frames.until(lambda: all(frames.answers[each].body.count(b"\n\n") > beats for each in streams))  # noqa: B023 - within this turn
            assert 5.0 * beats <= now() - began < 5.0 * beats + 1


# --- disconnects


async def test_resetting_a_stream_does_not_affect_its_call(opened: Any) -> None:
    async with opened() as (found, frames):
        session = found.router.sessions["s1"]
        waiting, listening = frames.call("wait"), frames.listen()
        await until(lambda: session.waiting)
        await frames.until(lambda: frames.answers[listening].body)
        frames.reset(waiting)
        await until(lambda: session.given_up == 1)
        frames.reset(listening)
        await until(lambda: session.general.left)
        assert (await frames.answer(frames.call("echo"))).status == 200
        assert not session.ended


async def test_a_disconnect_detaches_all_streams_of_the_connection(opened: Any) -> None:
    async with opened() as (found, frames):
        session = found.router.sessions["s1"]
        for n in range(3):
            frames.call("wait", id=n)
        await until(lambda: session.waiting == 3)
        frames.close()
        await until(lambda: session.given_up == 3)
        assert not session.ended


async def test_a_peer_that_sends_goaway_still_gets_its_responses(opened: Any) -> None:
    async with opened() as (found, frames):
        session = found.router.sessions["s1"]
        waiting = frames.call("wait")
        await until(lambda: session.waiting)
        frames.send(GOAWAY, 0, 0, bytes(8))
        session.go.set()
        assert (await frames.answer(waiting)).status == 200
        await frames.end()


# --- the end of a connection


async def test_the_last_allowed_request_does_not_silence_its_siblings(opened: Any) -> None:
    async with opened(keep_alive_requests=10, heartbeat=5.0) as (found, frames):
        listening = frames.listen()
        for n in range(8):
            assert (await frames.answer(frames.call("echo", id=n))).status == 200
        assert frames.goodbye == (19, NO_ERROR)
        refused = await frames.answer(frames.call("echo"))
        assert refused.reset == REFUSED_STREAM  # REFUSED_STREAM: it may be sent again on another connection
        heard = frames.answers[listening]
        await frames.until(lambda: heard.body.count(b"\n\n") >= 3)  # the first event, and two heartbeats
        feed = found.router.sessions["s1"].general
        feed.put(b'"late"')
        await frames.until(lambda: b'"late"' in heard.body)
        feed.end()
        assert (await frames.answer(listening)).ended
        await frames.end()


async def test_an_idle_connection_is_closed_with_goaway_and_a_busy_one_is_not(opened: Any) -> None:
    async with opened(keep_alive=60.0) as (found, frames):
        await asyncio.sleep(50)
        session = found.router.sessions["s1"]
        waiting = frames.call("wait")
        await until(lambda: session.waiting)
        await asyncio.sleep(200)
        session.go.set()
        assert (await frames.answer(waiting)).status == 200
        began = now()
        assert await frames.end() == (3, NO_ERROR)
        assert 59.9 <= now() - began < 63


@pytest.mark.parametrize("ending", [False, True])
async def test_a_closed_connection_is_read_a_little_longer_unless_its_listener_stops(*, ending: bool) -> None:
    class Wire:
        def __init__(self) -> None:
            self.said: list[str] = []

        def write_eof(self) -> None:
            self.said.append("eof")

        def close(self) -> None:
            self.said.append("close")

        def abort(self) -> None:
            self.said.append("abort")

        def set_write_buffer_limits(self, high: int) -> None:
            assert high == 0

        def get_write_buffer_size(self) -> int:
            return 0

        def is_closing(self) -> bool:
            return False

        def write(self, data: bytes) -> None:
            """Its last words are tested elsewhere."""

        def get_extra_info(self, name: str) -> Any:
            return Mock() if name == "socket" else None

    wire: Any = Wire()
    loop = asyncio.get_running_loop()
    connections: Any = SimpleNamespace(config=HttpConfig(), loop=loop, ending=ending, add=Mock())
    connection = Http2Connection(connections)
    connection.connection_made(wire)
    connection._finish()
    connection._finish()
    assert wire.said == (
        ["close"] if ending else ["eof"]
    )  # closing with unread bytes would reset the connection, and lose the GOAWAY
    await asyncio.sleep(LINGER - 0.1)
    assert "abort" not in wire.said
    await asyncio.sleep(0.2)
    assert wire.said == (["close"] if ending else ["eof", "abort"])
    assert connection._closing


async def test_a_connection_without_requests_is_closed(secure: dict[str, Any], context: ssl.SSLContext) -> None:
    async with (
        running_listener(**secure, http2=True, header_timeout=3.0) as found,
        http2_client(found.port, context) as frames,
    ):
        began = now()
        frames.send(HEADERS, 0, frames.open(), b"\x82")  # and never the rest
        await frames.end()
        assert 3.0 <= now() - began < 6


async def test_stopping_answers_running_requests_ends_streams_and_accepts_no_more(opened: Any) -> None:
    async with opened(drain_grace=5.0) as (found, frames):
        session = found.router.sessions["s1"]
        listening = frames.listen()
        await frames.until(lambda: frames.answers[listening].body)
        waiting = frames.call("wait")
        await until(lambda: session.waiting)
        stopping = asyncio.create_task(found.stop())
        await frames.until(lambda: frames.goodbye)
        assert frames.goodbye == (waiting, NO_ERROR)
        assert (await frames.answer(listening)).ended
        late = frames.call("echo")
        assert (await frames.answer(late)).reset == REFUSED_STREAM
        session.go.set()
        assert (await frames.answer(waiting)).status == 200
        await frames.end()
        await stopping


async def test_stopping_waits_for_the_grace_and_no_longer(opened: Any) -> None:
    async with opened(drain_grace=2.0) as (found, frames):
        session = found.router.sessions["s1"]
        waiting = frames.call("wait")
        await until(lambda: session.waiting)
        began = now()
        await found.stop()
        assert 2.0 <= now() - began < 3
        answer = await frames.answer(waiting)
        assert (answer.status, b'"error":{"code":-32603' in answer.body) == (200, True)
        await frames.end()
        assert session.given_up == 1


async def test_a_killed_listener_leaves_no_connection(opened: Any) -> None:
    async with opened() as (found, frames):
        session = found.router.sessions["s1"]
        frames.call("wait")
        await until(lambda: session.waiting)
        kill(await found.listener())
        await frames.end()
        await until(lambda: session.given_up == 1)


# --- limits


@pytest.mark.row("ST-28")
async def test_connections_of_all_protocols_are_counted_together(
    opened: Any, context: ssl.SSLContext, authority: CertificateAuthority
) -> None:
    async with opened(max_connections=2) as (found, frames):
        second = await asyncio.open_connection("127.0.0.1", found.port, ssl=authority.client())
        with pytest.raises(OSError):  # noqa: PT011 - however it is told
            await asyncio.open_connection("127.0.0.1", found.port, ssl=context)
        second[1].transport.abort()
        frames.close()


async def test_as_many_streams_as_announced_run_at_once(opened: Any) -> None:
    async with opened(max_streams=5) as (found, frames):
        assert frames.settings[3] == 5
        session = found.router.sessions["s1"]
        waiting = [frames.call("wait", id=n) for n in range(5)]
        await until(lambda: session.waiting == 5)
        frames.reset(waiting[0])
        await until(lambda: session.given_up == 1)
        another = frames.call("wait", id=5)
        await until(lambda: session.waiting == 5)
        session.go.set()
        for stream in [*waiting[1:], another]:
            assert (await frames.answer(stream)).status == 200


async def test_reset_requests_count_until_their_application_has_ended(opened: Any) -> None:
    running = 0
    most = 0

    async def stubborn(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        try:
            await asyncio.sleep(30)
        finally:
            running -= 1

    async with opened(stubborn, max_streams=5) as (_, frames):
        for _ in range(40):
            frames.reset(frames.begin("GET", end=True))
        last = frames.begin("GET", end=True)
        assert (await frames.answer(last)).reset == REFUSED_STREAM
        assert most <= 5


async def test_rapid_reset_is_bounded(opened: Any) -> None:
    async with opened() as (found, frames):
        session = found.router.sessions["s1"]
        for n in range(1000):
            frames.reset(frames.call("wait", id=n))
        goodbye = await frames.end()
        assert goodbye is not None
        assert goodbye[1] == ENHANCE_YOUR_CALM
        await until(lambda: not session.waiting)
        assert session.given_up <= 250


@pytest.mark.parametrize(
    ("kind", "payload", "count"),
    [
        (PING, bytes(8), 3000),
        (SETTINGS, b"", 600),
        (SETTINGS, b"\x00\x04\x00\x00\xff\xff", 600),
        (WINDOW_UPDATE, b"\x00\x00\x00\x01", 4000),
        (PRIORITY, b"\x00\x00\x00\x00\x10", 4000),
        (0xFA, b"", 4000),
    ],
    ids=["ping", "settings", "windows-by-settings", "window-update", "priority", "unknown"],
)
async def test_a_flood_of_cheap_frames_is_bounded(opened: Any, kind: int, payload: bytes, count: int) -> None:
    async with opened() as (_, frames):
        stream = 99 if kind == PRIORITY else 0
        frames.writer.write((frame_header(kind, 0, stream, len(payload)) + payload) * count)
        goodbye = await frames.end()
        assert goodbye is not None
        assert goodbye[1] == ENHANCE_YOUR_CALM


async def test_a_flood_of_empty_data_is_bounded(opened: Any) -> None:
    async with opened() as (_, frames):
        stream = frames.begin("POST", content_type="application/json")
        frames.writer.write(frame_header(DATA, 0, stream, 0) * 1000)
        goodbye = await frames.end()
        assert goodbye is not None
        assert goodbye[1] == ENHANCE_YOUR_CALM


async def test_endless_headers_are_bounded_while_they_arrive(opened: Any) -> None:
    async with opened(max_header=8192) as (_, frames):
        stream = frames.open()
        frames.send(HEADERS, 0, stream, b"")
        for _ in range(10):
            frames.send(CONTINUATION, 0, stream, b"\x00" * 1000)
        goodbye = await frames.end()
        assert goodbye is not None
        assert goodbye[1] == ENHANCE_YOUR_CALM


async def test_a_flood_of_empty_continuations_is_bounded(opened: Any) -> None:
    async with opened() as (_, frames):
        frames.send(HEADERS, 0, frames.open(), b"\x82")
        frames.writer.write(frame_header(CONTINUATION, 0, 3, 0) * 1000)
        goodbye = await frames.end()
        assert goodbye is not None
        assert goodbye[1] in (1, ENHANCE_YOUR_CALM)


async def test_an_hpack_bomb_is_refused(opened: Any) -> None:
    async with opened(max_header=8192) as (found, frames):
        # One long header, stored in the table, and then referenced by one byte each: 4 MB out of 5 KB.
        bomb = frames.block(x_big="a" * 3000)
        frames.send(HEADERS, END_HEADERS | END_STREAM, frames.open(), bomb + b"\xbe" * 1300)
        goodbye = await frames.end()
        assert goodbye is not None
        assert goodbye[1] == ENHANCE_YOUR_CALM
        assert len(found.router.sessions["s1"].heard) == 0


async def test_a_peer_cannot_grow_our_encoder_table(secure: dict[str, Any], context: ssl.SSLContext) -> None:
    async with (
        running_listener(**secure, http2=True) as found,
        http2_client(found.port, context, settings={1: 1 << 30}) as frames,
    ):
        await frames.enter()
        ref = await found.listener()
        assert await ref.call(HttpListener.connections) == 1
        assert (await frames.answer(frames.call("echo"))).status == 200
        assert frames._decoder.header_table_size == 4096


async def test_invalid_http2_ends_the_connection(opened: Any) -> None:
    async with opened() as (_, frames):
        frames.writer.write(b"GET / HTTP/1.1\r\n\r\n" * 3)
        assert await frames.end() == (1, FRAME_SIZE_ERROR)


async def test_an_oversized_frame_is_refused_by_its_header(opened: Any) -> None:
    async with opened() as (_, frames):
        frames.writer.write(frame_header(DATA, 0, frames.begin("POST"), 1 << 20) + bytes(100))
        goodbye = await frames.end()
        assert goodbye is not None
        assert goodbye[1] == FRAME_SIZE_ERROR


async def test_a_malformed_request_does_not_reach_the_application(opened: Any) -> None:
    async with opened() as (found, frames):
        for bad in ({"connection": "close"}, {"transfer_encoding": "chunked"}, {"Upper": "case"}, {":late": "x"}):
            async with http2_client(found.port, found_context(frames)) as other:
                other.begin("GET", end=True, **bad)
                goodbye = await other.end()
                assert goodbye is not None
                assert goodbye[1] == 1
        assert (await frames.answer(frames.begin("GET", "/mcp\xe9", end=True, mcp_session_id="s1"))).status == 400
        assert (await frames.answer(frames.call("echo"))).status == 200


def found_context(frames: Http2Client) -> ssl.SSLContext:
    context: ssl.SSLContext = frames.writer.get_extra_info("sslcontext")
    return context


# --- tiny frames


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


async def test_tiny_frames_let_other_connections_have_turns(opened: Any) -> None:
    size = 5_000

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        read, more = 0, True
        while more:
            got = await receive()
            read, more = read + len(got["body"]), got["more_body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % read})

    async with opened(app) as (_, frames):
        turns = Turns()
        stream = frames.begin("POST")
        for _ in range(size):
            frames.data(stream, b"x")
        frames.data(stream, b"", end=True)
        assert (await frames.answer(stream)).body == b"%d" % size
        assert turns.stop() > size / STEPS_PER_TURN


async def test_many_requests_in_one_read_let_other_connections_have_turns(opened: Any) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with opened(app) as (_, frames):
        turns = Turns()
        streams = [frames.begin("GET", end=True) for _ in range(100)]
        for stream in streams:
            assert (await frames.answer(stream)).status == 204
        assert turns.stop() > 100 * HEADER_FRAME_STEPS / STEPS_PER_TURN


async def test_a_socket_is_not_read_while_much_input_is_buffered(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[int] = []
    relax = Http2Connection._update_reading

    def noted(connection: Http2Connection) -> None:
        relax(connection)
        if not connection._reading:
            paused.append(len(connection._unread))

    monkeypatch.setattr(Http2Connection, "_update_reading", noted)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with opened(app) as (_, frames):
        stream = frames.begin("POST")
        frames.writer.write(
            (bytes(frame_header(DATA, 0, stream, 1)) + b"x") * 20_000
        )  # in large records, of which TLS delivers many at once
        frames.data(stream, b"", end=True)
        assert (await frames.answer(stream)).status == 204
        assert paused
        assert max(paused) < 1 << 20


# --- bodies


async def test_bodies_of_all_streams_share_one_budget(opened: Any) -> None:
    async with opened(max_body=12_000, max_bodies=24_000) as (found, frames):
        first = frames.begin("POST", content_type="application/json", mcp_session_id="s1")
        frames.data(first, b" " * 10_000)
        await until(lambda: found.engine.bodies.used == 10_000)
        refused = await frames.answer(frames.post(b" " * 10_000, mcp_session_id="s1"))
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        frames.reset(first)
        await until(lambda: found.engine.bodies.used == 0)
        assert (await frames.answer(frames.call("echo"))).status == 200
