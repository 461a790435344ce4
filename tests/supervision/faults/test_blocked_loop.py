"""A handler that blocks the loop: the watchdog's thread names it, with its stack, while it does."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from greenroom.supervision import GenServer, LoopBlocked, Node, Options, start

from .faulty_servers import Breaks, turns

# --- one that blocks the loop


class Blocks(GenServer):
    """Blocks the loop until it is released."""

    def block(self, gate: threading.Event) -> bool:
        return gate.wait(30.0)

    async def block_async(self, gate: threading.Event) -> bool:
        await asyncio.sleep(0)
        return self.block(gate)

    async def block_in_a_task(self, gate: threading.Event) -> bool:
        async def inner() -> bool:
            return self.block(gate)

        async with asyncio.TaskGroup() as group:
            task = group.create_task(inner())
        return task.result()


class Watch:
    """Releases the loop once the right process was reported, from the watchdog's thread.

    On a slow machine any process may be reported for being slow.

    """

    def __init__(self, node: Node, label: str) -> None:
        self.label = label
        self.gate = threading.Event()
        self.reports: list[LoopBlocked] = []
        node.reports.subscribe(self)

    def __call__(self, report: object) -> None:
        if isinstance(report, LoopBlocked) and report.label == self.label:
            self.reports.append(report)
            self.gate.set()


@pytest.mark.greenroom(clock="real", watchdog=0.05)
@pytest.mark.parametrize("method", [Blocks.block, Blocks.block_async, Blocks.block_in_a_task])
@pytest.mark.parametrize("queued", [False, True])
async def test_a_process_that_blocks_the_loop_is_named_while_it_does(method: Any, node: Node, *, queued: bool) -> None:
    watch = Watch(node, "the blocker")
    ref = await Options(label="the blocker").start(Blocks)
    if queued:
        ref.send("something, so that the call goes through the mailbox")
    assert await ref.within(None).call(method, watch.gate) is True, "it went on because it was reported"
    (report,) = watch.reports
    assert report.pid == ref.pid
    assert report.seconds >= 0.05
    assert "return gate.wait(30.0)" in report.stack
    assert "Thread" not in report.stack


class BlocksAtItsStart(GenServer):
    """Blocks the loop before it is started."""

    def __init__(self, gate: threading.Event) -> None:
        self.gate = gate

    def init(self) -> None:
        assert self.gate.wait(30.0)


@pytest.mark.greenroom(clock="real", watchdog=0.05)
async def test_a_server_that_blocks_the_loop_in_its_init_is_named(node: Node) -> None:
    watch = Watch(node, "the starter")
    ref = await Options(label="the starter").start(BlocksAtItsStart, watch.gate)
    (report,) = watch.reports
    assert report.pid == ref.pid
    assert "self.gate.wait(30.0)" in report.stack


@pytest.mark.greenroom(clock="real", watchdog=0.05)
async def test_a_caller_is_not_blamed_for_its_callee(node: Node) -> None:
    watch = Watch(node, "Blocks")
    outer, inner = await start(Breaks), await start(Blocks)
    assert await outer.within(None).call(Breaks.do_async, lambda: inner.within(None).call(Blocks.block, watch.gate))
    assert [report.pid for report in watch.reports] == [inner.pid]


@pytest.mark.greenroom(clock="real", watchdog=0.05)
async def test_code_outside_of_processes_is_reported_as_such(node: Node) -> None:
    watch = Watch(node, "code outside of processes")
    await turns()
    watch.gate.clear()
    assert watch.gate.wait(30.0)
    assert watch.reports[-1].pid == node.root_pid()
    assert "assert watch.gate.wait(30.0)" in watch.reports[-1].stack


@pytest.mark.greenroom(clock="real", watchdog=0.05)
async def test_a_blocked_loop_is_reported_once_and_the_next_time_again(node: Node) -> None:
    watch = Watch(node, "Blocks")
    ref = await start(Blocks)
    for count in (1, 2):
        watch.gate.clear()
        await turns()  # a loop that has not turned is still blocked by the same
        await ref.within(None).call(Blocks.block, watch.gate)
        assert len(watch.reports) == count
