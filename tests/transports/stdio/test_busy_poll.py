"""The busy-poll keeps the loop awake for a peer that sends its next request at once, for a moment, and for no other peer."""

from __future__ import annotations

import asyncio
from typing import Any

from greenroom.transports.stdio import BUSY_POLL_TURNS, BUSY_POLL_WINDOW, BusyPoll


class Loop:
    """A clock, and the scheduled callbacks."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.soon: list[Any] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Any) -> None:
        self.soon.append(callback)

    def kept(self, peer: BusyPoll) -> bool:
        """Whether the loop is kept turning."""
        return peer.is_polling

    def turn(self) -> int:
        """Run one turn; returns the number of callbacks."""
        called, self.soon = self.soon, []
        for each in called:
            each()
        return len(called)


def test_the_loop_busy_polls_for_a_fast_peer_and_not_for_a_slow_one() -> None:
    loop: Any = Loop()
    peer = BusyPoll(loop, processors=2)
    peer.on_input()
    peer.on_all_answered()
    assert not loop.soon  # it is not known yet how fast the peer is
    loop.now += BUSY_POLL_WINDOW / 2
    peer.on_input()
    peer.on_all_answered()
    assert loop.kept(peer)
    loop.now += BUSY_POLL_WINDOW * 2
    peer.on_input()
    assert sum(loop.turn() for _ in range(3 * BUSY_POLL_TURNS)) == BUSY_POLL_TURNS
    assert not loop.kept(peer)
    peer.on_all_answered()
    assert not loop.kept(peer)
    assert not loop.soon


def test_busy_polling_ends_whatever_the_clock_says_and_restarts_with_each_reply() -> None:
    loop: Any = Loop()
    peer = BusyPoll(loop, processors=2)
    peer.on_all_answered()
    peer.on_input()
    peer.on_all_answered()
    for _ in range(BUSY_POLL_TURNS - 1):
        assert loop.turn() == 1
    peer.on_input()
    peer.on_all_answered()
    assert len(loop.soon) == 1  # once, however often it is answered
    assert sum(loop.turn() for _ in range(3 * BUSY_POLL_TURNS)) == BUSY_POLL_TURNS
    assert not peer.is_polling


def test_with_one_processor_there_is_no_busy_poll() -> None:
    loop: Any = Loop()
    peer = BusyPoll(loop, processors=1)
    for _ in range(3):
        peer.on_input()
        peer.on_all_answered()
    assert not loop.soon


async def test_busy_polling_holds_up_no_other_task() -> None:
    loop = asyncio.get_running_loop()
    peer = BusyPoll(loop, processors=2)
    peer.on_all_answered()
    peer.on_input()
    peer._is_fast_peer = True  # even on a machine that was just busy
    peer.on_all_answered()
    came = asyncio.Event()
    loop.call_soon(came.set)
    await came.wait()
    assert peer.is_polling
    for _ in range(BUSY_POLL_TURNS):
        await asyncio.sleep(0)
    assert not peer.is_polling
