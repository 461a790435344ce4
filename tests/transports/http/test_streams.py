"""Streams through the engine: heartbeats by the clock, what ends them, and what a reader that comes back is given."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.protocol.jsonrpc import encode_notification
from greenroom.supervision.testing import advance
from greenroom.transports.http_request import STREAM_WRITE_SIZE, Interruption, encode_event, encode_events
from greenroom.transports.interfaces import FeedEvent

from .engine_driver import Desk, Paper, sse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

SOMETHING = encode_notification("notifications/tools/list_changed")


@asynccontextmanager
async def listening(desk: Desk, last_event_id: str | None = None) -> AsyncGenerator[tuple[Paper, asyncio.Task[None]]]:
    """A GET that has begun."""
    paper = Paper()
    headers = {"mcp-session-id": "s1", "accept": "text/event-stream", "last-event-id": last_event_id}
    task = asyncio.create_task(desk.begin(paper, "GET", "/mcp", headers))
    while not paper.said and not task.done():  # noqa: ASYNC110 - whichever comes first
        await asyncio.sleep(0)
    try:
        yield paper, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.row("ST-08")
@pytest.mark.row("ST-09")
@pytest.mark.row("ST-10")
async def test_a_get_is_a_stream_that_begins_with_a_mark() -> None:
    desk = Desk()
    session = await desk.enter()
    async with listening(desk) as (paper, _):
        assert session.general is not None
        assert paper.status == 200
        assert paper.headers["content-type"] == "text/event-stream"
        assert paper.headers["mcp-session-id"] == "s1"
        assert await paper.until(1) == b"id: g0:0\ndata: \n\n"
        session.general.put(SOMETHING)
        assert sse(await paper.until(2))[-1] == {"id": "g0:1", "data": SOMETHING.decode()}


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
def test_no_piece_of_a_stream_is_empty(sizes: list[int]) -> None:
    events = [FeedEvent(f"g0:{number}", b"x" * size) for number, size in enumerate(sizes)]
    pieces = list(encode_events(events))
    assert all(pieces)  # to HTTP/1.1 an empty one is the end of the answer
    assert b"".join(pieces) == b"".join(encode_event(each) for each in events)
    assert all(len(piece) <= STREAM_WRITE_SIZE or piece.count(b"\n\n") == 1 for piece in pieces)


@pytest.mark.row("ST-11")
async def test_a_silent_stream_has_a_heartbeat() -> None:
    desk = Desk()
    session = await desk.enter()
    async with listening(desk) as (paper, _):
        await paper.until(1)
        await advance(29.9)
        assert len(paper.chunks) == 1
        await advance(0.2)
        assert paper.chunks[1:] == [b": keep-alive\n\n"]
        await advance(60)
        assert paper.chunks[1:] == [b": keep-alive\n\n"] * 3
        assert session.general is not None
        session.general.put(SOMETHING)
        await paper.until(5)
        await advance(29)
        assert len(paper.chunks) == 5


async def test_what_has_piled_up_is_sent_in_pieces() -> None:
    desk = Desk()
    session = await desk.enter()
    async with listening(desk) as (paper, _):
        assert session.general is not None
        await paper.until(1)
        for size in (7_000, 7_000, 7_000, 50_000, 10, 10):
            session.general.put(b"x" * size)
        events = sse(await paper.until(5))
        assert [len(event["data"]) for event in events] == [0, 7_000, 7_000, 7_000, 50_000, 10, 10]
        assert [len(chunk) // 7_000 for chunk in paper.chunks] == [0, 2, 1, 7, 0]


@pytest.mark.row("ST-11")
async def test_the_first_event_may_ask_for_a_pause_before_a_reader_comes_back() -> None:
    desk = Desk(sse_retry=1.5)
    session = await desk.enter()
    async with listening(desk) as (paper, _):
        assert session.general is not None
        assert await paper.until(1) == b"id: g0:0\nretry: 1500\ndata: \n\n"
        session.general.put(SOMETHING)
        session.general.put(SOMETHING, retry=20)
        events = sse(await paper.until(2))[1:]
        assert [event.get("retry") for event in events] == [None, "20"]


@pytest.mark.row("ST-15")
@pytest.mark.row("SE-15")
@pytest.mark.parametrize("how", ["delete", "die"])
async def test_a_stream_ends_with_its_session(how: str) -> None:
    desk = Desk()
    session = await desk.enter()
    async with listening(desk) as (paper, task):
        await paper.until(1)
        assert not task.done()
        if how == "delete":
            assert (await desk.ask("DELETE", headers={"mcp-session-id": "s1"})).status == 204
        else:
            session.die()
        await task
        assert paper.said == ["start", "chunk", "end"]
        assert session.general is not None
        assert session.general.left == 1


@pytest.mark.row("ST-11")
@pytest.mark.row("ST-15")
async def test_a_write_that_fails_ends_the_stream() -> None:
    desk = Desk()
    session = await desk.enter()
    async with listening(desk) as (paper, task):
        await paper.until(1)
        paper.torn = True
        await advance(31)  # the heartbeat is what finds out
        assert task.done()
        assert "end" not in paper.said
        assert session.general is not None
        assert session.general.left == 1


@pytest.mark.row("ST-15")
async def test_a_host_says_that_the_peer_is_gone_by_cancelling() -> None:
    desk = Desk()
    session = await desk.enter()
    async with listening(desk) as (paper, task):
        await paper.until(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.general is not None
        assert session.general.left == 1
        assert not session.ended


@pytest.mark.row("SE-06")
@pytest.mark.row("SE-07")
async def test_a_reader_that_comes_back_says_where_it_was() -> None:
    desk = Desk()
    session = await desk.enter()
    async with listening(desk, "g0:17") as (_, __):
        assert session.resumed == ["g0:17"]


@pytest.mark.row("SE-16")
async def test_a_second_reader_takes_the_place_of_the_first() -> None:
    desk = Desk()
    session = await desk.enter()
    async with listening(desk) as (first, old), listening(desk) as (second, new):
        await old
        assert first.said == ["start", "chunk", "end"]
        assert not new.done()
        assert session.general is not None
        session.general.put(SOMETHING)
        await second.until(2)


async def test_stopping_ends_those_who_listen_and_nobody_who_waits() -> None:
    desk = Desk()
    session = await desk.enter()
    call = Paper()
    body = b'{"jsonrpc":"2.0","id":1,"method":"stream","params":{"finish":false}}'
    headers = {"mcp-session-id": "s1", "content-type": "application/json"}
    asking = asyncio.create_task(desk.begin(call, "POST", "/mcp", headers, body))
    await call.until(1)
    async with listening(desk) as (paper, task):
        await paper.until(1)
        desk.engine.stop_listening()
        await task
        assert paper.said == ["start", "chunk", "end"]
        assert not asking.done()
        assert session.general is not None
        assert session.general.left == 1
    async with listening(desk) as (paper, task):
        await task
        assert paper.error == (503, -32600, "The server is shutting down")
    session.feeds[0].put(b"{}", answers=1)
    session.feeds[0].end()
    await asking
    assert call.said[-1] == "end"


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
