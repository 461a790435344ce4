"""A tool that is slow, blocks, or holds every thread that it may does not delay other calls."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from greenroom import Server, Settings
from greenroom.supervision import LoopBlocked, Node

from .counting_clients import Peer, Wire, house

SLOW = 40
QUICK = 0.05
"""Seconds that a quick call may take beside forty slow ones; a machine at other work may make it five times as much."""


@pytest.fixture(params=["memory", "http"])
def wire(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


async def text_of(peer: Peer, request: int) -> str:
    answer = await peer.answer(request)
    text: str = answer["result"]["content"][0]["text"]
    return text


@pytest.mark.greenroom(clock="real")
async def test_a_quick_call_does_not_wait_for_forty_slow_ones(wire: Wire) -> None:
    server = Server("stage")
    held = threading.Event()
    curtain = threading.Event()

    @server.tool
    def slow() -> str:
        held.set()
        assert curtain.wait(60.0)
        return "slow"

    @server.tool
    def quick() -> str:
        return "quick"

    try:
        async with house(server, wire) as opened:
            slow_ones = [await opened.peer() for _ in range(SLOW)]
            other = await opened.peer()
            calls = [(peer, await peer.begin("slow")) for peer in slow_ones]
            await asyncio.to_thread(held.wait, 30.0)
            waits: list[float] = []
            for _ in range(5):
                began = time.perf_counter()
                assert await text_of(other, await other.begin("quick")) == "quick"
                waits.append(time.perf_counter() - began)
            assert not any(peer.answers(call) for peer, call in calls)
            assert sorted(waits)[2] <= 5 * QUICK
            curtain.set()
            assert {await text_of(peer, call) for peer, call in calls} == {"slow"}
    finally:
        curtain.set()


@pytest.mark.greenroom(clock="real")
async def test_a_principal_that_holds_all_its_threads_leaves_others_theirs(wire: Wire) -> None:
    """Without authentication each session is a principal of its own, as far as threads go."""
    server = Server("stage", settings=Settings(tool_threads=2, principal_threads=3))
    running = threading.Semaphore(0)
    curtain = threading.Event()

    def hold() -> str:
        running.release()
        assert curtain.wait(60.0)
        return "held"

    server.tool("this")(hold)
    server.tool("that")(hold)

    @server.tool
    def quick() -> str:
        return "quick"

    try:
        async with house(server, wire) as opened:
            greedy = await opened.peer()
            other = await opened.peer()
            calls = [await greedy.begin(tool) for tool in ("this", "that") * 3]
            for _ in range(3):
                assert await asyncio.to_thread(running.acquire, timeout=30.0)
            assert await text_of(other, await other.begin("quick")) == "quick"
            assert not running.acquire(blocking=False), "one principal has three threads, and a tool two of them"
            curtain.set()
            assert [await text_of(greedy, call) for call in calls] == ["held"] * 6
    finally:
        curtain.set()


@pytest.mark.greenroom(clock="real", watchdog=None)
async def test_an_async_tool_that_blocks_a_thread_of_its_own_delays_no_other_call(wire: Wire) -> None:
    server = Server("stage")
    held = threading.Event()
    curtain = threading.Event()

    @server.tool(isolation="thread")
    async def block() -> str:
        held.set()
        assert curtain.wait(60.0)  # as `time.sleep(5)` would, until the test has seen enough
        return "blocked"

    @server.tool
    async def quick() -> str:
        return "quick"

    try:
        async with house(server, wire) as opened:
            guilty = await opened.peer()
            call = await guilty.begin("block")
            await asyncio.to_thread(held.wait, 30.0)
            newcomer = await opened.peer()
            assert await text_of(newcomer, await newcomer.begin("quick")) == "quick"
            assert not guilty.answers(call)
            curtain.set()
            assert await text_of(guilty, call) == "blocked"
    finally:
        curtain.set()


@pytest.mark.greenroom(clock="real", watchdog=0.05)
async def test_the_watchdog_names_a_tool_that_blocks_the_loop(wire: Wire, node: Node) -> None:
    server = Server("stage")
    seen = threading.Event()
    labels: list[str] = []

    def look(report: object) -> None:
        """From the watchdog's own thread."""
        if isinstance(report, LoopBlocked) and "await_the_watchdog" in report.stack:
            labels.append(report.label)
            seen.set()

    node.reports.subscribe(look)

    @server.tool("dawdle")
    async def await_the_watchdog() -> str:
        return "seen" if seen.wait(30.0) else "not seen"

    async with house(server, wire) as opened:
        peer = await opened.peer()
        assert await text_of(peer, await peer.begin("dawdle")) == "seen"
    assert "dawdle" in labels[0]
