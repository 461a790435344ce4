"""Streams keep what was said, bounded by count and bytes, and tell a reader that missed something that it did."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest

from greenroom.actors.session_streams import TRUNCATED, SessionStream, SessionStreams, StreamFeed
from greenroom.actors.settings import Settings

from .session_client import read, turns

if TYPE_CHECKING:
    from greenroom.transports.interfaces import FeedEvent


def ids(events: list[FeedEvent]) -> list[str]:
    return [event.id for event in events]


def bodies(events: list[FeedEvent]) -> list[bytes]:
    return [event.data for event in events]


def fill(stream: SessionStream, count: int, size: int = 1) -> None:
    for _ in range(count):
        stream.push(b"x" * size)


@pytest.mark.row("SE-06")
async def test_events_are_numbered_and_kept_in_order() -> None:
    streams = SessionStreams(Settings())
    fill(streams.general, 3)
    assert ids(await read(StreamFeed(streams.general, 0))) == ["g0:1", "g0:2", "g0:3"]
    assert ids(await read(StreamFeed(streams.general, 1))) == ["g0:2", "g0:3"]


@pytest.mark.row("SE-08")
async def test_a_stream_keeps_a_limited_number_of_events_and_marks_missing_ones() -> None:
    streams = SessionStreams(Settings(buffer_events=5))
    fill(streams.general, 8)
    events = await read(StreamFeed(streams.general, 0))
    assert bodies(events[:1]) == [TRUNCATED]
    assert ids(events[1:]) == [f"g0:{number}" for number in range(4, 9)]


async def test_a_stream_keeps_so_many_bytes_and_always_the_newest() -> None:
    streams = SessionStreams(Settings(buffer_bytes=100))
    fill(streams.general, 4, 40)
    assert streams.general.first == 3
    assert streams.size == 80
    fill(streams.general, 1, 1000)
    assert streams.general.first == 5
    assert streams.size == 1000
    events = await read(StreamFeed(streams.general, 4))
    assert bodies(events) == [b"x" * 1000]


async def test_a_session_keeps_so_much_and_lets_go_of_finished_streams_first() -> None:
    streams = SessionStreams(Settings(buffer_bytes=100))
    fill(streams.general, 1, 90)
    for id in range(6):
        stream = streams.begin(id)
        fill(stream, 1, 30)
        streams.finish(stream, b"y" * 30)
    assert streams.size <= 400
    assert streams.find("g0:1") is not None
    assert streams.find("p1:1") is None
    assert streams.find("p6:1") is not None


async def test_with_no_finished_stream_the_largest_gives_its_oldest() -> None:
    streams = SessionStreams(Settings(buffer_bytes=100))
    live = [streams.begin(id) for id in range(6)]
    for stream in live:
        fill(stream, 3, 30)
    assert streams.size <= 400
    assert all(stream.last == 3 for stream in live)
    assert all(stream.first <= 3 for stream in live)


async def test_only_so_many_finished_streams_are_kept() -> None:
    streams = SessionStreams(Settings())
    for id in range(20):
        streams.finish(streams.begin(id), b"{}")
    assert streams.find("p1:1") is None
    assert streams.find("p4:1") is None
    assert streams.find("p5:1") is not None
    assert streams.size == 16 * 2


@pytest.mark.row("SE-07")
@pytest.mark.parametrize(
    "id", ["g0:9", "g1:1", "p1:1", "", "g0", "g0:", "g0:x", "g0:-1", "g0:1:2", "g0:²", "g0:" + "9" * 40]
)
async def test_ids_that_mean_nothing_here_are_not_found(id: str) -> None:
    streams = SessionStreams(Settings())
    fill(streams.general, 3)
    assert streams.find(id) is None


@pytest.mark.row("SE-07")
async def test_an_id_whose_successor_is_gone_is_not_found() -> None:
    streams = SessionStreams(Settings(buffer_events=2))
    fill(streams.general, 5)
    assert streams.find("g0:2") is None
    found = streams.find("g0:3")
    assert found is not None
    assert ids(await read(StreamFeed(*found))) == ["g0:4", "g0:5"]


async def test_a_waiting_reader_gets_new_events() -> None:
    streams = SessionStreams(Settings())
    feed = StreamFeed(streams.general, 0)
    waiting = asyncio.create_task(feed.next())
    await turns()
    streams.general.push(b"a")
    assert ids(list(await waiting or ())) == ["g0:1"]
    assert await feed.next(0.5) == []


async def test_a_finished_stream_ends_after_its_last_event() -> None:
    streams = SessionStreams(Settings())
    stream = streams.begin(7)
    feed = StreamFeed(stream, 0)
    waiting = asyncio.create_task(read(feed, 100))
    await turns()
    stream.push(b"a")
    streams.finish(stream, b"b")
    events = await waiting
    assert bodies(events) == [b"a", b"b"]
    assert [event.answers for event in events] == [None, 7]
    assert await feed.next() is None


@pytest.mark.row("SE-16")
async def test_a_second_reader_ends_the_first_and_not_the_other_way_round() -> None:
    streams = SessionStreams(Settings())
    first = StreamFeed(streams.general, 0)
    waiting = asyncio.create_task(first.next())
    await turns()
    second = StreamFeed(streams.general, 0)
    assert await waiting is None
    first.leave()
    streams.general.push(b"a")
    assert ids(list(await second.next() or ())) == ["g0:1"]
    assert await first.next() is None
    assert streams.has_reader


async def test_a_reader_that_got_lost_does_not_count() -> None:
    streams = SessionStreams(Settings())
    lost = [StreamFeed(streams.general, 0)]
    before = streams.has_reader
    lost.clear()
    gc.collect()
    assert (before, streams.has_reader) == (True, False)
    streams.general.push(b"a")


async def test_an_interrupted_reader_gets_the_events_and_a_request_to_reconnect() -> None:
    streams = SessionStreams(Settings())
    stream = streams.begin(1)
    feed = StreamFeed(stream, 0)
    fill(stream, 2)
    feed.close(1500)
    fill(stream, 1)
    events = await read(feed)
    assert ids(events) == ["p1:1", "p1:2", "p1:2"]
    assert (events[-1].data, events[-1].retry) == (b"", 1500)
    assert not streams.has_reader
    assert ids(await read(StreamFeed(stream, 2))) == ["p1:3"]


async def test_the_end_of_all_answers_what_was_owed() -> None:
    streams = SessionStreams(Settings())
    open_stream, finished = streams.begin(1), streams.begin(2)
    streams.finish(finished, b"done")
    feeds = [StreamFeed(each, 0) for each in (streams.general, open_stream, finished)]
    streams.end_all(lambda id: b"sorry %d" % id if isinstance(id, int) else b"")
    assert [bodies(await read(feed)) for feed in feeds] == [[], [b"sorry 1"], [b"done"]]
    assert [await feed.next() for feed in feeds] == [None, None, None]


async def test_a_slow_reader_gets_a_marker_for_missing_events() -> None:
    streams = SessionStreams(Settings(buffer_events=3))
    feed = StreamFeed(streams.general, 0)
    fill(streams.general, 1)
    assert ids(list(await feed.next() or ())) == ["g0:1"]
    fill(streams.general, 5)
    events = list(await feed.next() or ())
    assert bodies(events[:1]) == [TRUNCATED]
    assert ids(events) == ["", "g0:4", "g0:5", "g0:6"]


async def test_batches_are_bounded() -> None:
    streams = SessionStreams(Settings())
    fill(streams.general, 200)
    feed = StreamFeed(streams.general, 0)
    first = await feed.next()
    assert first is not None
    assert len(first) < 100
    assert len(first) + len(await read(feed)) == 200


async def test_a_cancelled_reader_can_read_on() -> None:
    streams = SessionStreams(Settings())
    feed = StreamFeed(streams.general, 0)
    waiting = asyncio.create_task(feed.next())
    await turns()
    waiting.cancel()
    await turns()
    fill(streams.general, 1)
    assert ids(list(await feed.next() or ())) == ["g0:1"]
