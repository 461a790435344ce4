"""The standalone stream when it is missing, silent, broken or too talkative."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from greenroom.protocol.jsonrpc import JsonRpcNotification
from greenroom.transports.client.http_settings import HttpSettings
from greenroom.transports.client.interfaces import InvalidMessage, StreamGap

from .scripted_server import ReceivedRequest, event
from .wire_and_server import wire_and_server

NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_any_other_response_counts_as_no_stream() -> None:
    async def page(received: ReceivedRequest) -> None:
        await received.reply(200, b"<h1>Welcome</h1>", content_type="text/html")

    async with wire_and_server(GET=page) as (owner, server):
        await asyncio.sleep(100)
        assert await owner.answer(owner.ask("ping"))
        assert owner.silent()
        assert len(server.seen("GET")) == 1


async def test_a_silent_stream_is_resumed_and_comments_break_the_silence() -> None:
    async def stream(received: ReceivedRequest) -> None:
        times.append(now())
        await received.stream(event(NOTE, id=f"g{len(times)}"))
        if len(times) == 1:
            for _ in range(5):
                await asyncio.sleep(2)
                await received.send(b": still here\n\n")
        await received.gone()

    times: list[float] = []
    async with wire_and_server(settings=HttpSettings(silence=3.0), GET=stream) as (owner, server):
        for _ in range(3):
            assert isinstance(await owner.hear(), JsonRpcNotification)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert gaps == [pytest.approx(seconds, abs=0.5) for seconds in (10 + 3 + 1, 3 + 1)]
        assert [each.headers.get("last-event-id") for each in server.seen("GET")] == [None, "g1", "g2"]


async def test_a_connection_that_does_not_keep_up_causes_no_silence() -> None:
    padded = event({**NOTE, "params": {"data": "x" * 100_000}})

    async def flood(received: ReceivedRequest) -> None:
        await received.stream()
        for _ in range(200):
            await received.send(padded)
        await received.gone()

    async with wire_and_server(settings=HttpSettings(silence=3.0), GET=flood) as (owner, server):
        await asyncio.sleep(7)
        assert len(server.seen("GET")) == 1
        for _ in range(200):
            assert isinstance(await owner.hear(), JsonRpcNotification)


async def test_a_stream_that_breaks_is_reopened() -> None:
    async def stream(received: ReceivedRequest) -> None:
        seen.append(received.headers.get("last-event-id"))
        data = event(NOTE, id=f"g{len(seen)}")
        await received.send(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            b"%x\r\n%b\r\nff\r\n" % (len(data), data)
        )
        received.close()

    seen: list[str | None] = []
    async with wire_and_server(GET=stream) as (owner, _):
        for _ in range(3):
            assert isinstance(await owner.hear(), JsonRpcNotification)
        assert seen[:3] == [None, "g1", "g2"]


async def test_an_endless_event_is_read_no_further_and_the_stream_reopened_slowly() -> None:
    sent = 0

    async def endless(received: ReceivedRequest) -> None:
        nonlocal sent
        times.append(now())
        if len(times) == 4:
            often.set()
        await received.stream(b": ")
        while True:
            await received.send(b"x" * 65536)
            sent += 65536

    times: list[float] = []
    often = asyncio.Event()
    async with wire_and_server(settings=HttpSettings(max_event=100_000), GET=endless) as (owner, _):
        await often.wait()
        assert [later - earlier for earlier, later in pairwise(times)] == [
            pytest.approx(seconds, abs=0.5) for seconds in (1, 2, 4)
        ]
        assert sent < 40_000_000
        for _ in range(3):
            assert isinstance(await owner.hear(), StreamGap)
        assert await owner.answer(owner.ask("ping"))


async def test_an_oversized_event_is_reported_and_the_stream_continues() -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream(event({**NOTE, "params": {"data": "x" * 200_000}}), event(NOTE))
        await received.gone()

    async with wire_and_server(settings=HttpSettings(max_event=100_000), GET=stream) as (owner, server):
        assert isinstance(await owner.hear(), InvalidMessage)
        assert isinstance(await owner.hear(), JsonRpcNotification)
        assert len(server.seen("GET")) == 1
