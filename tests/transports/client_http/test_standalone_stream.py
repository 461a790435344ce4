"""The stream for what belongs to no request, when it is none, is silent, breaks, or says too much."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from greenroom.protocol.jsonrpc import JsonRpcNotification
from greenroom.transports.client.http_settings import HttpSettings
from greenroom.transports.client.interfaces import InvalidMessage, StreamGap

from .scripted_server import Visit, event
from .wire_and_server import facing

NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_whatever_is_no_stream_is_as_good_as_none() -> None:
    async def page(visit: Visit) -> None:
        await visit.reply(200, b"<h1>Welcome</h1>", content_type="text/html")

    async with facing(GET=page) as (owner, server):
        await asyncio.sleep(100)
        assert await owner.answer(owner.ask("ping"))
        assert owner.silent()
        assert len(server.seen("GET")) == 1


async def test_a_silent_stream_is_opened_again_where_it_was_and_comments_are_no_silence() -> None:
    async def stream(visit: Visit) -> None:
        times.append(now())
        await visit.stream(event(NOTE, id=f"g{len(times)}"))
        if len(times) == 1:
            for _ in range(5):
                await asyncio.sleep(2)
                await visit.send(b": still here\n\n")
        await visit.gone()

    times: list[float] = []
    async with facing(settings=HttpSettings(silence=3.0), GET=stream) as (owner, server):
        for _ in range(3):
            assert isinstance(await owner.hear(), JsonRpcNotification)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert gaps == [pytest.approx(seconds, abs=0.5) for seconds in (10 + 3 + 1, 3 + 1)]
        assert [each.headers.get("last-event-id") for each in server.seen("GET")] == [None, "g1", "g2"]


async def test_who_does_not_keep_up_hears_no_silence_that_is_its_own() -> None:
    padded = event({**NOTE, "params": {"data": "x" * 100_000}})

    async def flood(visit: Visit) -> None:
        await visit.stream()
        for _ in range(200):
            await visit.send(padded)
        await visit.gone()

    async with facing(settings=HttpSettings(silence=3.0), GET=flood) as (owner, server):
        await asyncio.sleep(7)
        assert len(server.seen("GET")) == 1
        for _ in range(200):
            assert isinstance(await owner.hear(), JsonRpcNotification)


async def test_a_stream_that_breaks_in_the_middle_is_opened_again() -> None:
    async def stream(visit: Visit) -> None:
        seen.append(visit.headers.get("last-event-id"))
        data = event(NOTE, id=f"g{len(seen)}")
        await visit.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            b"%x\r\n%b\r\nff\r\n" % (len(data), data)
        )
        visit.close()

    seen: list[str | None] = []
    async with facing(GET=stream) as (owner, _):
        for _ in range(3):
            assert isinstance(await owner.hear(), JsonRpcNotification)
        assert seen[:3] == [None, "g1", "g2"]


async def test_an_event_without_an_end_is_read_no_further_and_the_stream_opened_again_in_no_hurry() -> None:
    sent = 0

    async def endless(visit: Visit) -> None:
        nonlocal sent
        times.append(now())
        if len(times) == 4:
            often.set()
        await visit.stream(b": ")
        while True:
            await visit.send(b"x" * 65536)
            sent += 65536

    times: list[float] = []
    often = asyncio.Event()
    async with facing(settings=HttpSettings(max_event=100_000), GET=endless) as (owner, _):
        await often.wait()
        assert [later - earlier for earlier, later in pairwise(times)] == [
            pytest.approx(seconds, abs=0.5) for seconds in (1, 2, 4)
        ]
        assert sent < 40_000_000
        for _ in range(3):
            assert isinstance(await owner.hear(), StreamGap)
        assert await owner.answer(owner.ask("ping"))


async def test_an_event_that_is_too_large_is_told_and_the_stream_goes_on() -> None:
    async def stream(visit: Visit) -> None:
        await visit.stream(event({**NOTE, "params": {"data": "x" * 200_000}}), event(NOTE))
        await visit.gone()

    async with facing(settings=HttpSettings(max_event=100_000), GET=stream) as (owner, server):
        assert isinstance(await owner.hear(), InvalidMessage)
        assert isinstance(await owner.hear(), JsonRpcNotification)
        assert len(server.seen("GET")) == 1
