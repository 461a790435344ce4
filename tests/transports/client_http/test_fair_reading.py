"""Fair reading of large responses, in turns: nothing is lost or reordered, and other tasks run in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.transports.client import http_connection_pool, interfaces
from greenroom.transports.client.http_address import ServerUrl
from greenroom.transports.client.http_connection_pool import UNREAD_LIMIT, PooledConnection
from greenroom.transports.client.http_settings import HttpSettings

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
SLICE = 4096


class Transport:
    """The pausing methods of a transport, and a silent socket."""

    def __init__(self) -> None:
        self.reading = True
        self.closing = False

    def get_extra_info(self, _: str) -> None:
        return None

    def write(self, _: bytes) -> None: ...

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close


class FakePool:
    """Counts a connection's callbacks to its pool."""

    def __init__(self) -> None:
        self.settings = HttpSettings()
        self.crashes: list[BaseException] = []
        self.free = 0
        self.lost = 0

    def on_released(self, _: PooledConnection) -> None:
        self.free += 1

    def on_closed(self, _: PooledConnection) -> None:
        self.lost += 1

    def crashed(self, error: BaseException) -> None:
        self.crashes.append(error)


class FakeRequest:
    """Records the callbacks of a request."""

    def __init__(self) -> None:
        self.callbacks: list[Any] = []
        self.pieces: list[bytes] = []
        self.connection: PooledConnection | None = None
        self.pauses_after = -1

    def on_head(self, head: Any) -> None:
        self.callbacks.append(head.status)

    def on_body(self, data: bytes) -> None:
        self.pieces.append(data)
        if len(self.pieces) == self.pauses_after:
            assert self.connection is not None
            self.connection.pause()

    def on_end(self) -> None:
        self.callbacks.append("end")

    def on_failure(self, error: BaseException, *, unseen: bool) -> None:
        assert not unseen
        self.callbacks.append(type(error).__name__)


class Scene:
    def __init__(self) -> None:
        self.pool = FakePool()
        self.request = FakeRequest()
        self.transport = Transport()
        any_pool: Any = self.pool
        self.connection = PooledConnection(any_pool, ServerUrl.of("http://127.0.0.1:1/mcp"))
        self.connection._transport = self.transport
        self.request.connection = self.connection
        received: Any = self.request
        self.connection.send(b"", received)

    @property
    def body(self) -> bytes:
        return b"".join(self.request.pieces)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(http_connection_pool, "READ_TURN", -1.0)  # each slice takes longer than a turn
    return Scene()


def answer(body: bytes) -> bytes:
    return HEAD + b"content-length: %d\r\n\r\n" % len(body) + body


async def turns(scene: Scene) -> int:
    """Run the loop until the connection has nothing more to do; returns how many turns it took."""
    count = 0
    while scene.connection._continuation is not None:
        before = len(scene.body)
        await asyncio.sleep(0)
        assert len(scene.body) - before <= SLICE
        count += 1
        assert count < 1000
    return count


async def test_each_slice_has_its_own_turn(scene: Scene) -> None:
    body = b"x\n" * 32768
    scene.connection.data_received(answer(body))
    assert len(scene.body) == SLICE
    assert await turns(scene) >= len(body) // SLICE - 1
    assert scene.body == body
    assert scene.request.callbacks == [200, "end"]
    assert (scene.transport.reading, scene.pool.free) == (True, 1)
    assert not scene.pool.crashes


async def test_input_that_arrives_meanwhile_waits_behind_it(scene: Scene) -> None:
    body = bytes(range(256)) * 256
    whole = answer(body)
    scene.connection.data_received(whole[:30000])
    scene.connection.data_received(whole[30000:])
    await turns(scene)
    assert scene.body == body
    assert scene.request.callbacks == [200, "end"]


async def test_a_response_within_one_slice_is_read_at_once(scene: Scene) -> None:
    scene.connection.data_received(answer(b"x" * 1000))
    assert scene.request.callbacks == [200, "end"]
    assert scene.connection._continuation is None


async def test_a_cheap_response_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < interfaces.READ_TURN <= 0.001
    monkeypatch.setattr(http_connection_pool, "READ_TURN", 1000.0)
    scene = Scene()
    scene.connection.data_received(answer(b"x" * 20 * SLICE))
    assert scene.request.callbacks == [200, "end"]


@pytest.mark.parametrize("framed", [True, False], ids=["a length", "its end"])
async def test_the_end_of_the_connection_waits_for_buffered_input(scene: Scene, *, framed: bool) -> None:
    body = b"y" * 5 * SLICE
    scene.connection.data_received(answer(body) if framed else HEAD + b"\r\n" + body)
    scene.connection.eof_received()
    scene.transport.closing = True
    scene.connection.connection_lost(None)
    assert scene.request.callbacks == [200]
    await turns(scene)
    assert scene.body == body
    assert scene.request.callbacks == [200, "end"]
    assert scene.pool.lost
    assert not scene.pool.free


async def test_a_broken_connection_fails_an_incomplete_response(scene: Scene) -> None:
    scene.connection.data_received(answer(b"y" * 5 * SLICE)[:-1])
    scene.connection.connection_lost(ConnectionResetError())
    assert scene.request.callbacks == [200]
    await turns(scene)
    assert len(scene.body) == 5 * SLICE - 1
    assert scene.request.callbacks == [200, "ConnectionLost"]


async def test_a_pause_holds_back_buffered_input(scene: Scene) -> None:
    body = b"z" * 8 * SLICE
    scene.request.pauses_after = 2
    scene.connection.data_received(answer(body))
    await turns(scene)
    assert len(scene.request.pieces) == 2
    assert not scene.transport.reading
    scene.connection.resume()
    assert len(scene.request.pieces) == 2  # pause may be called from within a callback
    await turns(scene)
    assert scene.body == body
    assert scene.request.callbacks == [200, "end"]


async def test_a_dropped_request_gets_no_further_callback(scene: Scene) -> None:
    scene.connection.data_received(answer(b"z" * 8 * SLICE))
    pieces = len(scene.request.pieces)
    scene.connection.drop()
    await turns(scene)
    assert len(scene.request.pieces) == pieces
    assert scene.request.callbacks == [200]


async def test_a_socket_is_not_read_while_much_of_a_response_is_buffered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection_pool, "READ_TURN", 1000.0)  # the count of steps is what ends a turn here
    count = 3 * UNREAD_LIMIT // len(b"1\r\nx\r\n")
    scene.connection.data_received(HEAD + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * count + b"0\r\n\r\n")
    paused = 0
    while not scene.transport.reading:
        paused += 1
        assert scene.connection._continuation is not None
        await asyncio.sleep(0)
    assert paused > 1
    assert scene.connection._reader.buffered <= UNREAD_LIMIT
    await turns(scene)
    assert scene.body == b"x" * count
    assert scene.request.callbacks == [200, "end"]


async def test_chunks_smaller_than_a_slice_are_taken_in_turns_as_well(scene: Scene) -> None:
    chunk = b"3e8\r\n" + b"c" * 1000 + b"\r\n"
    scene.connection.data_received(HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunk * 30 + b"0\r\n\r\n")
    assert len(scene.request.pieces) <= 2
    while scene.connection._continuation is not None:
        before = len(scene.request.pieces)
        await asyncio.sleep(0)
        assert len(scene.request.pieces) <= before + 2
    assert scene.body == b"c" * 30_000
    assert scene.request.callbacks == [200, "end"]
