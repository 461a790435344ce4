"""The in-memory channel: bounded like any other, and ended with its forwarding process."""

from __future__ import annotations

import asyncio

from greenroom.supervision import kill, wait_down
from greenroom.transports.session_channel import QUEUED_FRAMES, MemoryPeer

from .fake_sessions import FakeSessionRouter, line, until


async def test_a_peer_that_does_not_receive_makes_the_server_wait() -> None:
    router = FakeSessionRouter()
    async with MemoryPeer(router) as wire:
        for number in range(QUEUED_FRAMES + 20):
            await wire.send(line("echo", number))
            await asyncio.sleep(0)  # so that each reply is a frame of its own
        await until(lambda: len(wire._frames) == QUEUED_FRAMES)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(wire._frames) == QUEUED_FRAMES
        heard = 0
        while heard < QUEUED_FRAMES + 20:
            heard += len(await wire.receive())


async def test_a_peer_whose_forwarder_is_killed_delivers_what_it_has_and_then_ends() -> None:
    async with MemoryPeer(FakeSessionRouter()) as wire:
        await wire.send(line("echo", 1))
        await until(lambda: bool(wire._frames))
        kill(wire._forwarder)
        await wait_down(wire._forwarder)
        assert len(await wire.receive()) == 1
        assert await wire.receive() == []


async def test_a_waiting_reader_learns_of_the_end() -> None:
    async with MemoryPeer(FakeSessionRouter()) as wire:
        receiving = asyncio.ensure_future(wire.receive())
        await asyncio.sleep(0)
        assert wire.session is None
        kill(wire._forwarder)
        assert await receiving == []


async def test_concurrent_first_messages_share_one_session() -> None:
    router = FakeSessionRouter()
    async with MemoryPeer(router) as wire:
        await asyncio.gather(*(wire.send(line("echo", number)) for number in range(10)))
        assert len(router.sessions) == 1
        assert wire.session is router.sessions[0]
