"""A snapshot: the whole node as data, also when a process in it hangs."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision import GenServer, Node, Options, inbox, link, monitor, start, trap_exit
from greenroom.supervision.introspect import snapshot as take

if TYPE_CHECKING:
    from greenroom.supervision import Ref
    from greenroom.supervision.introspect import ProcessInfo, Snapshot
    from greenroom.supervision.kernel.watchdog import Lag


class Worker(GenServer):
    """A server with entries in each field of a snapshot."""

    async def hang(self) -> None:
        await asyncio.Event().wait()

    async def ask(self, other: Ref[Worker]) -> None:
        await other.within(None).call(Worker.hang)

    async def begin(self) -> None:
        self.task = asyncio.create_task(asyncio.Event().wait())

    def trap(self) -> None:
        trap_exit()

    def block(self, begun: threading.Event, until: threading.Event) -> None:
        begun.set()
        until.wait()


def of(snapshot: Snapshot, ref: Ref[Worker]) -> ProcessInfo:
    """What it says of that one."""
    return next(info for info in snapshot.processes if info.pid == ref.pid)


async def test_a_snapshot_says_of_each_what_it_is_doing(node: Node) -> None:
    idle, asking, hanging = await Options(name="idle").start(Worker), await start(Worker), await start(Worker)
    bounded = await Options(mailbox=200).start(Worker)
    asking.cast(Worker.ask, hanging)
    bounded.cast(Worker.hang)
    await asyncio.sleep(1)
    for _ in range(150):
        bounded.send("x" * 1000)
    await idle.call(Worker.trap)
    await idle.call(Worker.begin)
    async with inbox() as me:
        link(idle)
        monitor(idle)
        snapshot = take()
        assert (snapshot.time, snapshot.node, snapshot.incarnation) == (1.0, node.name, node.incarnation)
        assert len(snapshot.processes) == 5
        first = of(snapshot, idle)
        assert (first.label, first.behaviour, first.names) == ("Worker", "Worker", ("idle",))
        assert (first.activity, first.dying, first.trap_exit) == ("idle", False, True)
        assert (first.links, first.monitors, first.watching, first.tasks) == (1, 1, 0, 1)
        (mine,) = [info for info in snapshot.processes if info.pid == me.pid]
        assert (mine.activity, mine.links, mine.watching) == ("held", 1, 1)
        assert (of(snapshot, asking).activity, of(snapshot, asking).calls) == ("working", hanging.pid)
        full = of(snapshot, bounded)
        assert (full.waiting, full.bound) == (150, 200)
        assert 150_000 < full.waiting_bytes < 200_000
        assert (snapshot.busy_workers, snapshot.leaked, snapshot.lag) == (3, 0, 0.0)


@pytest.mark.greenroom(clock="real", watchdog=0.02)
async def test_the_lag_of_the_loop_is_known_and_whose_it_is(node: Node) -> None:
    worker = await start(Worker)
    reported = threading.Event()
    node.reports.subscribe(lambda _: reported.set())
    watchdog = node.watchdog
    assert watchdog is not None
    found: list[Lag] = []
    snapshot = take(node)
    while not found:  # on a busy machine the loop is late by itself just before, and that lag is not the worker's
        begun, release = threading.Event(), threading.Event()
        reported.clear()

        def free(begun: threading.Event = begun, release: threading.Event = release) -> None:
            begun.wait()
            reported.wait()
            release.set()

        helper = threading.Thread(target=free)
        helper.start()
        worker.cast(Worker.block, begun, release)
        await asyncio.to_thread(helper.join)
        snapshot = take(node)
        found = [lag for lag in snapshot.lags if lag.culprit == f"Worker {worker.pid}"]
    watchdog.stop()
    guilty = found[0]
    assert guilty.seconds >= 0.02
    assert snapshot.lag >= guilty.seconds
    assert guilty.at <= time.monotonic()
