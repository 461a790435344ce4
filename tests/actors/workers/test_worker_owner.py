"""A worker as the program sees it: why it is said to have ended, and how it is stopped. The process and what serves in it are played."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import pytest

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
from greenroom.worker_processes import WorkerOwner

GRACE = 7.0
LOST = Crash(NodeLost("node", ProcessEnding(signal=11)))


class Part(GenServer):
    """Ends when it is told to."""


class Stubborn(GenServer):
    """Does not."""

    traps_exit: ClassVar[bool] = True

    def handle_info(self, message: Any) -> None:
        """Whatever it is."""

    async def terminate(self, reason: Any) -> None:
        await asyncio.Event().wait()


class Played(WorkerOwner):
    """One whose parts are here."""

    def __init__(self, host: type[GenServer], wing: type[GenServer]) -> None:
        workers: Any = SimpleNamespace(grace=GRACE)
        nobody: Any = None
        super().__init__(workers, nobody, NodeSpec(name="node", stop_timeout=3), nobody)
        self.kinds = host, wing

    async def init(self) -> None:
        host, wing = self.kinds
        host_ref: Any = await start_link(host)
        wing_ref: Any = await start_link(wing)
        self._host, self._wing = host_ref, wing_ref

    def parts(self) -> tuple[Ref[Any], Ref[Any]]:
        assert self._host is not None
        assert self._wing is not None
        return self._host, self._wing


class Scene(NamedTuple):
    station: Ref[Played]
    host: Ref[Any]
    wing: Ref[Any]


async def scene(host: type[GenServer] = Part, wing: type[GenServer] = Part) -> Scene:
    station = await start(Played, host, wing)
    monitor(station)
    return Scene(station, *await station.call(Played.parts))


async def test_a_process_that_ended_is_told_by_how_it_ended_and_not_by_its_connection() -> None:
    async with inbox() as me:
        at = await scene()
        exit(at.wing, NO_CONNECTION)
        await asyncio.sleep(1)
        assert is_alive(at.station), "how it ended is known in a moment"
        exit(at.host, LOST)
        down: Down = await me.receive()
        assert down.reason == Shutdown("the process of node node was ended by signal 11 (SIGSEGV)")


async def test_a_node_that_cannot_be_reached_is_not_waited_for_for_ever() -> None:
    async with inbox() as me:
        at = await scene()
        exit(at.wing, NO_CONNECTION)
        began = current_node().loop.time()
        down: Down = await me.receive()
        assert down.reason == Shutdown("its node cannot be reached")
        assert current_node().loop.time() - began == pytest.approx(2, abs=0.1)
        assert not is_alive(at.host)


async def test_what_serves_may_end_by_itself_and_the_process_goes_with_it() -> None:
    async with inbox() as me:
        at = await scene()
        exit(at.wing, SHUTDOWN)
        down: Down = await me.receive()
        assert down.reason == SHUTDOWN
        assert not is_alive(at.host)


async def test_who_does_not_stop_in_its_time_is_killed_and_the_process_has_its_own() -> None:
    async with inbox() as me:
        at = await scene(Stubborn, Stubborn)
        began = current_node().loop.time()
        exit(at.station, SHUTDOWN)
        down: Down = await me.receive(timeout=60)
        assert down.reason == SHUTDOWN
        assert current_node().loop.time() - began == pytest.approx(GRACE + 3 + 1, abs=0.5)
        assert not is_alive(at.host)
        assert not is_alive(at.wing)


async def test_what_is_no_message_of_its_own_is_reported_and_nobody_ends_of_it() -> None:
    told: list[Any] = []
    current_node().reports.subscribe(told.append)
    async with inbox():
        at = await scene()
        at.station.send("nonsense")
        await at.station.call(Played.parts)
        assert is_alive(at.wing)
    assert [type(each) for each in told] == [Unexpected]
