"""The owner of a worker process: the reasons it reports, and how it stops the worker. The node and its listener are fakes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import pytest

from greenroom.multi_worker_server import WorkerOwner
from greenroom.supervision import (
    NO_CONNECTION,
    SHUTDOWN,
    Crash,
    Down,
    GenServer,
    Ref,
    Shutdown,
    current_node,
    exit,
    inbox,
    is_alive,
    monitor,
    start,
    start_link,
)
from greenroom.supervision.cluster.cluster_settings import NodeSpec
from greenroom.supervision.cluster.node_records import NodeLost, ProcessEnding
from greenroom.supervision.kernel.reports import Unexpected

GRACE = 7.0
LOST = Crash(NodeLost("node", ProcessEnding(signal=11)))


class Part(GenServer):
    """Ends on an exit signal."""


class Stubborn(GenServer):
    """Ignores exit signals."""

    traps_exit: ClassVar[bool] = True

    def handle_info(self, message: Any) -> None:
        """Ignore every message."""

    async def terminate(self, reason: Any) -> None:
        await asyncio.Event().wait()


class Played(WorkerOwner):
    """A `WorkerOwner` with fake parts."""

    def __init__(self, host: type[GenServer], worker_node: type[GenServer]) -> None:
        workers: Any = SimpleNamespace(grace=GRACE)
        unused: Any = None
        super().__init__(workers, unused, NodeSpec(name="node", stop_timeout=3), unused)
        self.kinds = host, worker_node

    async def init(self) -> None:
        host, worker_node = self.kinds
        host_ref: Any = await start_link(host)
        node_ref: Any = await start_link(worker_node)
        self._host, self._node = host_ref, node_ref

    def parts(self) -> tuple[Ref[Any], Ref[Any]]:
        assert self._host is not None
        assert self._node is not None
        return self._host, self._node


class Scene(NamedTuple):
    owner: Ref[Played]
    host: Ref[Any]
    worker_node: Ref[Any]


async def scene(host: type[GenServer] = Part, worker_node: type[GenServer] = Part) -> Scene:
    owner = await start(Played, host, worker_node)
    monitor(owner)
    return Scene(owner, *await owner.call(Played.parts))


async def test_the_exit_reason_of_a_process_wins_over_its_lost_connection() -> None:
    async with inbox() as me:
        at = await scene()
        exit(at.worker_node, NO_CONNECTION)
        await asyncio.sleep(1)
        assert is_alive(at.owner), "how it ended is known in a moment"
        exit(at.host, LOST)
        down: Down = await me.receive()
        assert down.reason == Shutdown("the process of node node was ended by signal 11 (SIGSEGV)")


async def test_a_node_that_cannot_be_reached_is_not_waited_for_for_ever() -> None:
    async with inbox() as me:
        at = await scene()
        exit(at.worker_node, NO_CONNECTION)
        began = current_node().loop.time()
        down: Down = await me.receive()
        assert down.reason == Shutdown("its node cannot be reached")
        assert current_node().loop.time() - began == pytest.approx(2, abs=0.1)
        assert not is_alive(at.host)


async def test_a_listener_that_ends_by_itself_ends_the_process() -> None:
    async with inbox() as me:
        at = await scene()
        exit(at.worker_node, SHUTDOWN)
        down: Down = await me.receive()
        assert down.reason == SHUTDOWN
        assert not is_alive(at.host)


async def test_a_worker_that_does_not_stop_in_time_is_killed() -> None:
    async with inbox() as me:
        at = await scene(Stubborn, Stubborn)
        began = current_node().loop.time()
        exit(at.owner, SHUTDOWN)
        down: Down = await me.receive(timeout=60)
        assert down.reason == SHUTDOWN
        assert current_node().loop.time() - began == pytest.approx(GRACE + 3 + 1, abs=0.5)
        assert not is_alive(at.host)
        assert not is_alive(at.worker_node)


async def test_an_unexpected_message_is_reported_and_ends_nothing() -> None:
    told: list[Any] = []
    current_node().reports.subscribe(told.append)
    async with inbox():
        at = await scene()
        at.owner.send("nonsense")
        await at.owner.call(Played.parts)
        assert is_alive(at.worker_node)
    assert [type(each) for each in told] == [Unexpected]
