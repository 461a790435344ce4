"""A channel feed is lossless, marks dropped notifications, and is bounded."""

from __future__ import annotations

import asyncio

from greenroom.actors.reply_sinks import ChannelFeed
from greenroom.actors.session_streams import TRUNCATED
from greenroom.actors.settings import Settings

from .session_client import read, turns


async def test_a_channel_keeps_the_order() -> None:
    channel = ChannelFeed(Settings())
    assert channel.push(b"a", 1)
    assert channel.offer(b"b")
    events = await read(channel)
    assert [(event.data, event.answers, event.id) for event in events] == [(b"a", 1, ""), (b"b", None, "")]


async def test_a_full_channel_refuses_notifications_and_marks_the_gap_once() -> None:
    channel = ChannelFeed(Settings(channel_events=2))
    assert channel.offer(b"a")
    assert channel.offer(b"b")
    assert not channel.offer(b"c")
    assert not channel.offer(b"d")
    assert channel.push(b"answer", 1)
    assert [event.data for event in await read(channel)] == [b"a", b"b", TRUNCATED, b"answer"]
    assert channel.offer(b"e")


async def test_a_channel_is_bounded_by_bytes_too() -> None:
    channel = ChannelFeed(Settings(channel_bytes=10))
    assert channel.offer(b"x" * 10)
    assert channel.full
    assert not channel.offer(b"y")


async def test_a_sender_that_waits_for_room_goes_on_when_there_is_some() -> None:
    channel = ChannelFeed(Settings(channel_events=1))
    channel.push(b"a")
    waiting = asyncio.create_task(channel.room())
    await turns()
    assert not waiting.done()
    assert len(await channel.next() or ()) == 1
    await waiting


async def test_a_sender_that_waits_for_room_goes_on_when_the_channel_ends() -> None:
    channel = ChannelFeed(Settings(channel_events=1))
    channel.push(b"a")
    waiting = asyncio.create_task(channel.room())
    await turns()
    channel.end()
    await waiting
    assert not channel.push(b"b")
    assert not channel.offer(b"b")
    assert [event.data for event in await read(channel)] == [b"a"]
    assert await channel.next() is None


async def test_without_its_reader_it_is_over() -> None:
    channel = ChannelFeed(Settings())
    channel.push(b"a")
    channel.leave()
    assert await channel.next() is None


async def test_a_reader_that_waits_is_woken_by_the_end() -> None:
    channel = ChannelFeed(Settings())
    waiting = asyncio.create_task(channel.next())
    await turns()
    channel.end()
    assert await waiting is None
    assert await ChannelFeed(Settings()).next(3) == []
