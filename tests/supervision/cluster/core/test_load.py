"""Many at once: ten thousand monitors get the loss of a node, and of a silent one, in time; large values delay no other task for long."""

from __future__ import annotations

import asyncio
import gc
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision import NO_CONNECTION, Down, Pid, Reply, inbox, monitor, spawn_link, start
from greenroom.supervision.cluster.remote_spawn import start_on

from .two_nodes import Counter, Far, pair

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = pytest.mark.greenroom(clock="real", name="one")

MANY = 10_000
TARGET = 0.1
PATIENCE = 5  # a machine with something else to do
TRIALS = 3


async def idle() -> None:
    """A process."""
    await asyncio.Event().wait()


class Crowd(Counter):
    """Has many processes below it."""

    def handle_call(self, request: int, caller: object) -> Reply:
        """Start so many."""
        del caller
        return Reply([spawn_link(idle) for _ in range(request)])


async def crowd(many: int) -> list[Pid]:
    """So many processes on the other node."""
    ref = await start_on("two", Crowd)
    pids: list[Pid] = await ref.within(30).ask(many)
    return pids


async def in_time(trial: Callable[[], Awaitable[float]], limit: float) -> None:
    """Repeat a measurement up to three times, since other programs may disturb it."""
    took = [await trial()]
    while took[-1] > limit and len(took) < TRIALS:
        took.append(await trial())
    assert took[-1] <= limit, took


@pytest.mark.deep
@pytest.mark.parametrize("processes", [MANY, 1])
async def test_ten_thousand_monitors_hear_of_a_lost_node_in_time(processes: int) -> None:
    await in_time(partial(_hear_of_a_lost_node, processes), TARGET * PATIENCE)


async def _hear_of_a_lost_node(processes: int) -> float:
    async with pair(heartbeat=60) as (_, two), inbox() as me:
        pids = await crowd(processes)
        watches = [monitor(pid) for pid in pids * (MANY // len(pids))]
        await _settled(two)
        gc.collect()
        began = time.perf_counter()
        two.background.node.loop.call_soon_threadsafe(_abort, two)
        downs = [await me.receive() for _ in watches]
        took = time.perf_counter() - began
        assert {down.ref for down in downs} == set(watches)
        assert {type(down) for down in downs} == {Down}
        assert {down.reason for down in downs} == {NO_CONNECTION}
        assert me.pending() == ()
        return took


async def _settled(two: Far) -> None:
    async def turn() -> None:
        await asyncio.sleep(0)

    await two.do(turn)
    await start(Counter)


def _abort(two: Far) -> None:
    """As the kernel does with the sockets of a process that was killed."""
    for _, link in two.peers.links():
        assert link._transport is not None
        link._transport.abort()


async def test_ten_thousand_monitors_hear_of_a_silent_node_within_three_heartbeats() -> None:
    await in_time(partial(_hear_of_a_silent_node, 0.3), 0.3 * 3 + TARGET * PATIENCE)


async def _hear_of_a_silent_node(heartbeat: float) -> float:
    async with pair(heartbeat=heartbeat, misses=3) as (_, two), inbox() as me:
        pids = await crowd(100)
        watches = [monitor(pid) for pid in pids * (MANY // len(pids))]
        await _settled(two)
        gate = two.freeze()
        began = time.perf_counter()
        try:
            downs = [await me.receive() for _ in watches]
            took = time.perf_counter() - began
        finally:
            gate.set()
        assert took >= heartbeat, "one heartbeat that is missed is not the end"
        assert {down.reason for down in downs} == {NO_CONNECTION}
        return took


@pytest.mark.deep
async def test_a_large_value_keeps_neither_the_heartbeat_nor_others_waiting() -> None:
    async with pair(heartbeat=1, misses=2) as (one, _):
        ref = await start_on("two", Counter)
        large = asyncio.create_task(ref.within(60).call(Counter.echo, bytes(50_000_000)))
        turns = 0
        while not large.done():
            await asyncio.sleep(0)
            turns += 1
        assert len(await large) == 50_000_000
        assert turns > 100, "the loop has turned for others while it was sent and came back"
        assert one.connected == ("two",)


async def test_many_calls_at_once_are_each_answered_with_their_own() -> None:
    async with pair():
        refs = [await start_on("two", Counter) for _ in range(10)]
        calls = [refs[number % 10].call(Counter.echo, number) for number in range(5000)]
        assert await asyncio.gather(*calls) == list(range(5000))
