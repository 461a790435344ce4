"""Streams of the HTTP engine: heartbeats, their ends, and resumption."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.protocol.envelope import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY
from greenroom.protocol.jsonrpc import encode_notification, encode_request, encode_result
from greenroom.protocol.versions import STATELESS
from greenroom.supervision.testing import advance
from greenroom.transports.http_request import STREAM_WRITE_SIZE, Interruption, encode_event, encode_events
from greenroom.transports.interfaces import FeedEvent

from .engine_driver import EngineDriver, RecordedResponse, parse_events
from .fake_sessions import FakeFeed, FakeSessionRouter

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from greenroom.protocol.jsonrpc import JsonRpcRequest
    from greenroom.transports.interfaces import Peer, SessionReply

SOMETHING = encode_notification("notifications/tools/list_changed")


@asynccontextmanager
async def listening(
    driver: EngineDriver, last_event_id: str | None = None
) -> AsyncGenerator[tuple[RecordedResponse, asyncio.Task[None]]]:
    """A GET in progress."""
    response = RecordedResponse()
    headers = {"mcp-session-id": "s1", "accept": "text/event-stream", "last-event-id": last_event_id}
    task = asyncio.create_task(driver.begin(response, "GET", "/mcp", headers))
    while not response.said and not task.done():  # noqa: ASYNC110 - whichever comes first
        await asyncio.sleep(0)
    try:
        yield response, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.row("ST-08")
@pytest.mark.row("ST-09")
@pytest.mark.row("ST-10")
async def test_a_stream_begins_with_an_event_that_sets_the_mark() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    async with listening(driver) as (response, _):
        assert session.general is not None
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["mcp-session-id"] == "s1"
        assert await response.until(1) == b"id: g0:0\ndata: \n\n"
        session.general.put(SOMETHING)
        assert parse_events(await response.until(2))[-1] == {"id": "g0:1", "data": SOMETHING.decode()}


@pytest.mark.parametrize(
    "sizes",
    [
        [STREAM_WRITE_SIZE + 1],
        [STREAM_WRITE_SIZE + 1, 1],
        [1, STREAM_WRITE_SIZE + 1],
        [1, 1, STREAM_WRITE_SIZE],
        [STREAM_WRITE_SIZE // 2] * 5,
    ],
)
def test_no_write_of_a_stream_is_empty(sizes: list[int]) -> None:
    events = [FeedEvent(f"g0:{number}", b"x" * size) for number, size in enumerate(sizes)]
    pieces = list(encode_events(events))
    assert all(pieces)  # in HTTP/1.1 an empty chunk ends the response
    assert b"".join(pieces) == b"".join(encode_event(each) for each in events)
    assert all(len(piece) <= STREAM_WRITE_SIZE or piece.count(b"\n\n") == 1 for piece in pieces)


@pytest.mark.row("ST-11")
async def test_a_silent_stream_has_a_heartbeat() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    async with listening(driver) as (response, _):
        await response.until(1)
        await advance(29.9)
        assert len(response.chunks) == 1
        await advance(0.2)
        assert response.chunks[1:] == [b": keep-alive\n\n"]
        await advance(60)
        assert response.chunks[1:] == [b": keep-alive\n\n"] * 3
        assert session.general is not None
        session.general.put(SOMETHING)
        await response.until(5)
        await advance(29)
        assert len(response.chunks) == 5


async def test_many_events_are_sent_in_bounded_writes() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    async with listening(driver) as (response, _):
        assert session.general is not None
        await response.until(1)
        for size in (7_000, 7_000, 7_000, 50_000, 10, 10):
            session.general.put(b"x" * size)
        events = parse_events(await response.until(5))
        assert [len(event["data"]) for event in events] == [0, 7_000, 7_000, 7_000, 50_000, 10, 10]
        assert [len(chunk) // 7_000 for chunk in response.chunks] == [0, 2, 1, 7, 0]


@pytest.mark.row("ST-11")
async def test_the_first_event_may_carry_the_reconnection_delay() -> None:
    driver = EngineDriver(sse_retry=1.5)
    session = await driver.enter()
    async with listening(driver) as (response, _):
        assert session.general is not None
        assert await response.until(1) == b"id: g0:0\nretry: 1500\ndata: \n\n"
        session.general.put(SOMETHING)
        session.general.put(SOMETHING, retry=20)
        events = parse_events(await response.until(2))[1:]
        assert [event.get("retry") for event in events] == [None, "20"]


@pytest.mark.row("ST-15")
@pytest.mark.row("SE-15")
@pytest.mark.parametrize("how", ["delete", "die"])
async def test_a_stream_ends_with_its_session(how: str) -> None:
    driver = EngineDriver()
    session = await driver.enter()
    async with listening(driver) as (response, task):
        await response.until(1)
        assert not task.done()
        if how == "delete":
            assert (await driver.ask("DELETE", headers={"mcp-session-id": "s1"})).status == 204
        else:
            session.die()
        await task
        assert response.said == ["start", "chunk", "end"]
        assert session.general is not None
        assert session.general.left == 1


@pytest.mark.row("ST-11")
@pytest.mark.row("ST-15")
async def test_a_failed_write_ends_the_stream() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    async with listening(driver) as (response, task):
        await response.until(1)
        response.torn = True
        await advance(31)  # the heartbeat finds out
        assert task.done()
        assert "end" not in response.said
        assert session.general is not None
        assert session.general.left == 1


@pytest.mark.row("ST-15")
async def test_a_server_reports_a_disconnect_by_cancelling() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    async with listening(driver) as (response, task):
        await response.until(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.general is not None
        assert session.general.left == 1
        assert not session.ended


@pytest.mark.row("SE-06")
@pytest.mark.row("SE-07")
async def test_a_resuming_reader_names_its_last_event() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    async with listening(driver, "g0:17") as (_, __):
        assert session.resumed == ["g0:17"]


@pytest.mark.row("SE-16")
async def test_a_second_reader_replaces_the_first_in_the_engine() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    async with listening(driver) as (first, old), listening(driver) as (second, new):
        await old
        assert first.said == ["start", "chunk", "end"]
        assert not new.done()
        assert session.general is not None
        session.general.put(SOMETHING)
        await second.until(2)


async def test_stopping_ends_standalone_streams_and_no_waiting_call() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    call = RecordedResponse()
    body = b'{"jsonrpc":"2.0","id":1,"method":"stream","params":{"finish":false}}'
    headers = {"mcp-session-id": "s1", "content-type": "application/json"}
    asking = asyncio.create_task(driver.begin(call, "POST", "/mcp", headers, body))
    await call.until(1)
    async with listening(driver) as (response, task):
        await response.until(1)
        driver.engine.stop_listening()
        await task
        assert response.said == ["start", "chunk", "end"]
        assert not asking.done()
        assert session.general is not None
        assert session.general.left == 1
    async with listening(driver) as (response, task):
        await task
        assert response.error == (503, -32600, "The server is shutting down")
    session.feeds[0].put(b"{}", answers=1)
    session.feeds[0].end()
    await asking
    assert call.said[-1] == "end"


class SlowListens(FakeSessionRouter):
    """Opens listens when the event is set."""

    def __init__(self) -> None:
        super().__init__()
        self.opens = asyncio.Event()

    async def exchange(
        self, peer: Peer, request: JsonRpcRequest, headers: Mapping[str, str] | None = None, quiet: float | None = None
    ) -> SessionReply:
        self.exchanged.append(request)
        await self.opens.wait()
        return FinishingFeed(request.id)


class FinishingFeed(FakeFeed):
    """A listen feed that has its result when it is finished."""

    def __init__(self, id: str | int) -> None:
        super().__init__("changes")
        self._id = id

    def finish(self) -> None:
        self.put(encode_result(self._id, {}), answers=self._id)
        self.end()


@pytest.mark.row("26-L6")
async def test_a_listen_that_is_being_opened_when_the_server_stops_listening_gets_its_result() -> None:
    router = SlowListens()
    driver = EngineDriver(router=router)
    meta: dict[str, Any] = {PROTOCOL_VERSION_KEY: STATELESS, CLIENT_CAPABILITIES_KEY: {}}
    body = encode_request(7, "subscriptions/listen", {"notifications": {}, "_meta": meta})
    response = RecordedResponse()
    asking = asyncio.create_task(driver.begin(response, "POST", "/mcp", {"content-type": "application/json"}, body))
    while not router.exchanged:  # noqa: ASYNC110 - a few steps
        await asyncio.sleep(0)
    driver.engine.stop_listening()
    router.opens.set()
    await asyncio.wait_for(asking, 5)
    assert [json.loads(each["data"])["id"] for each in parse_events(b"".join(response.chunks))] == [7]


async def test_an_interruption_ends_its_block_and_nothing_else() -> None:
    reached: list[str] = []

    async def work(wait: Interruption) -> None:
        with wait:
            await asyncio.sleep(10)
            reached.append("in the block")
        reached.append("after it")
        await asyncio.sleep(10)
        reached.append("on")

    wait = Interruption()
    task = asyncio.create_task(work(wait))
    await asyncio.sleep(1)
    wait.interrupt()
    wait.interrupt()
    await asyncio.sleep(0)
    wait.interrupt()
    await task
    assert reached == ["after it", "on"]


async def test_a_real_cancellation_is_not_taken_for_an_interruption() -> None:
    async def work(wait: Interruption) -> None:
        with wait:
            await asyncio.sleep(10)

    for first, second in ((True, False), (False, True), (True, True)):
        wait = Interruption()
        task: asyncio.Task[Any] = asyncio.create_task(work(wait))
        await asyncio.sleep(1)
        if first:
            wait.interrupt()
        if second:
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() is second
