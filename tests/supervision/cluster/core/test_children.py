"""Supervisors whose children run on another node: started, restarted, stopped and killed like local ones."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.supervision import (
    BRUTAL_KILL,
    KILLED,
    NO_CONNECTION,
    NO_PROCESS,
    ONE_FOR_ALL,
    SHUTDOWN,
    ActorError,
    ChildSpec,
    ChildTerminated,
    DynamicSupervisor,
    Exit,
    On,
    Options,
    Pid,
    Ref,
    Report,
    ShutdownError,
    Supervisor,
    TaskSupervisor,
    child,
    current_node,
    inbox,
    kill,
    send,
    start,
    start_child,
    stop,
    supervise_job,
    supervise_task,
    supervise_task_alone,
    wait_down,
    which_children,
)
from greenroom.supervision.cluster.peers import Peering
from greenroom.supervision.cluster.remote_spawn import child_on, launch_on, start_on, whereis_on
from greenroom.supervision.supervisors.supervision_tree import draw, tree

from .two_nodes import Counter, Far, Trapper, here, pair, until

pytestmark = pytest.mark.greenroom(clock="real", name="one")


class Ordered(Trapper):
    """Reports when it starts and when it ends."""

    def __init__(self, name: str, to: Pid) -> None:
        super().__init__()
        self.name = name
        self.to = to

    def init(self) -> None:
        """It begins."""
        send(self.to, ("begun", self.name, self.pid))

    def terminate(self, reason: Any) -> None:
        """It ends."""
        send(self.to, ("ended", self.name, reason))


class Stubborn(Counter):
    """Does not end when it is told to."""

    traps_exit = True

    async def terminate(self, reason: Any) -> None:
        """Does not finish its `init`."""
        await self.hold()


def there(server: Any, *args: Any, name: str = "far", **changes: Any) -> ChildSpec[Any]:
    """A child on the other node."""
    return child_on("two", server, *args).but(id=name, **changes)


async def pid_of(top: Ref[Any], name: str) -> Pid:
    """The pid of that child now."""
    (found,) = [each.pid for each in await which_children(top) if each.id == name]
    assert found is not None
    return found


async def test_remote_children_start_in_order_and_stop_in_reverse() -> None:
    async with pair(), inbox() as me:
        top = await start(Supervisor, [there(Ordered, name, me.pid, name=name) for name in "abc"])
        begun = [await me.receive() for _ in range(3)]
        assert [(what, name) for what, name, _ in begun] == [("begun", "a"), ("begun", "b"), ("begun", "c")]
        assert [each.pid for each in await which_children(top)] == [pid for _, _, pid in reversed(begun)]
        await stop(top, SHUTDOWN)
        assert [await me.receive() for _ in range(3)] == [("ended", name, SHUTDOWN) for name in "cba"]


async def test_a_remote_child_that_ends_is_restarted() -> None:
    reports: list[Report] = []
    current_node().reports.subscribe(reports.append)
    async with pair():
        top = await start(Supervisor, [there(Counter)])
        first = await pid_of(top, "far")
        kill(first)
        assert await wait_down(first) in {KILLED, NO_PROCESS}
        await until(lambda: any(isinstance(report, ChildTerminated) for report in reports))
        second = await pid_of(top, "far")
        assert second != first
        assert await Ref[Counter](second).call(Counter.add) == 1
        (told,) = [report for report in reports if isinstance(report, ChildTerminated)]
        assert told.reason == KILLED
        await stop(top, SHUTDOWN)
        assert await wait_down(second) == NO_PROCESS


async def test_the_loss_of_its_node_is_the_end_of_a_child_and_its_siblings_share_it() -> None:
    reports: list[Report] = []
    current_node().reports.subscribe(reports.append)
    async with pair() as (one, two):
        one.introduce("two", two.peers.addresses)
        specs = [there(Counter, name="a"), there(Counter, name="b")]
        top = await start(Supervisor, specs, strategy=ONE_FOR_ALL, intensity=5)
        before = [await pid_of(top, name) for name in "ab"]
        one.disconnect("two")
        await until(lambda: any(isinstance(report, ChildTerminated) for report in reports))
        after = [await pid_of(top, name) for name in "ab"]
        assert not set(before) & set(after)
        assert {report.reason for report in reports if isinstance(report, ChildTerminated)} == {NO_CONNECTION}
        for pid in before:
            assert await wait_down(pid) in {NO_PROCESS, NO_CONNECTION}, "what was linked over there has ended, too"
        await stop(top, SHUTDOWN)


async def test_a_remote_child_that_does_not_stop_in_time_is_killed() -> None:
    reports: list[Report] = []
    current_node().reports.subscribe(reports.append)
    async with pair():
        top = await start(Supervisor, [there(Stubborn, shutdown=0.02)])
        pid = await pid_of(top, "far")
        await stop(top, SHUTDOWN)
        assert await wait_down(pid) == NO_PROCESS
        (told,) = [report for report in reports if isinstance(report, ShutdownError)]
        assert told.reason == KILLED


async def test_brutal_kill_asks_no_process() -> None:
    reports: list[Report] = []
    current_node().reports.subscribe(reports.append)
    async with pair():
        top = await start(Supervisor, [there(Stubborn, shutdown=BRUTAL_KILL)])
        pid = await pid_of(top, "far")
        await stop(top, SHUTDOWN)
        assert await wait_down(pid) == NO_PROCESS
        assert not [report for report in reports if isinstance(report, ShutdownError)]


async def test_the_sudden_end_of_a_supervisor_ends_its_remote_children() -> None:
    async with pair(), inbox() as me:
        top = await start(Supervisor, [there(Ordered, "a", me.pid)])
        pid = (await me.receive())[2]
        kill(top)
        assert await me.receive() == ("ended", "a", KILLED), (
            "a server that traps exits knows its parent's, also from afar"
        )
        assert await wait_down(pid) in {KILLED, NO_PROCESS}


async def test_dynamic_children_over_there() -> None:
    async with pair():
        top = await start(DynamicSupervisor)
        for number in range(20):
            await start_child(top, there(Counter, number, name=str(number)))
        pids = [each.pid for each in await which_children(top)]
        assert len(set(pids)) == 20
        kill(pids[0])
        assert pids[0] is not None
        await wait_down(pids[0])
        await stop(top, SHUTDOWN)
        assert {await wait_down(pid) for pid in pids} == {NO_PROCESS}
        assert await whereis_on("two", "anything") is None


async def test_the_tree_shows_remote_children_without_their_children() -> None:
    async with pair():
        top = await start(Supervisor, [there(Counter, name="far")])
        drawn = draw(tree())
        assert "far" in drawn
        assert "two" in drawn
        await stop(top, SHUTDOWN)


async def test_a_node_that_closes_stops_what_was_started_for_others_first_and_lets_go_of_them_last() -> None:
    async with here() as one, inbox() as me:
        two = Far("two")
        with two.background:
            await two.start(Supervisor, [child(Peering, two.peers)])
            await one.connect(two.peers.addresses)
            for name in "ab":
                await launch_on("two", Options(), Ordered, (name, me.pid), link=True)
                assert (await me.receive())[:2] == ("begun", name)
            await asyncio.to_thread(two.background.__exit__)
        got = [await me.receive() for _ in range(4)]
        assert [each for each in got if not isinstance(each, Exit)] == [
            ("ended", "b", SHUTDOWN),
            ("ended", "a", SHUTDOWN),
        ]
        assert [each.reason for each in got if isinstance(each, Exit)] == [SHUTDOWN, SHUTDOWN]


async def job(who: Ref[Any], what: str) -> None:
    """Something to do for its effect."""
    who.send(what)


async def test_jobs_under_a_supervisor_over_there() -> None:
    async with pair(), inbox() as me:
        tasks = await start_on("two", TaskSupervisor)
        pid = await supervise_job(tasks, job, Ref(me.pid), "done")
        assert pid.node == "two"
        assert await me.receive() == "done"
        for word in (supervise_task, supervise_task_alone):
            with pytest.raises(ActorError, match="runs on the node where it is awaited"):
                await word(tasks, job, Ref(me.pid), "never")
        assert await start_child(await start_on("two", DynamicSupervisor), child(Counter)) is not None
        assert me.pending() == ()


async def test_a_remote_child_has_a_name_on_its_node_and_a_spec_that_describes_it() -> None:
    async with pair():
        spec = child_on("two", Counter, 5).but(name="bob", restart="temporary")
        assert str(spec.start) == "Counter(5)"
        assert (spec.id, spec.type, child_on("two", Supervisor, []).type) == ("Counter", "worker", "supervisor")
        top = await start(Supervisor, [spec])
        assert await Ref[Counter](On("bob", "two")).call(Counter.add) == 6
        assert (await which_children(top))[0].id == "Counter"
        await stop(top, SHUTDOWN)
