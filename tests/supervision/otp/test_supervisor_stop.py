"""Stopping supervisors: children stop in reverse order, as their specs say, and cannot hang the stop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision import (
    INFINITY,
    KILLED,
    NORMAL,
    SHUTDOWN,
    AlreadyRegistered,
    CallTimeout,
    ChildSpec,
    Crash,
    ExitReason,
    Options,
    Pid,
    Ref,
    Shutdown,
    child,
    exit,
    is_alive,
    link,
    send,
    spawn,
    start_child,
    start_link,
    stop,
    terminate_child,
    unlink,
)
from greenroom.supervision.kernel.reports import Unexpected
from greenroom.supervision.supervisors.supervisor_reports import ChildTerminated, ShutdownError

from .supervised_children import Bad, Died, Slow, Worker, end, gone, link_all, office, pid_of, shut_down, which, worker

if TYPE_CHECKING:
    from greenroom.supervision import Node, Report

OTHER = Crash(Died("other"))


async def blocked(pid: Pid, seconds: float) -> None:
    """Keep that worker busy."""
    ref: Ref[Worker] = Ref(pid)
    ref.cast(Worker.block, seconds)


@pytest.mark.otp("supervisor_SUITE", "sup_stop_infinity")
async def test_a_child_may_have_for_ever() -> None:
    specs = [worker("child1", type="supervisor", shutdown=INFINITY), worker("child2", shutdown=INFINITY)]
    async with office(specs) as (sup, me):
        pids = [await pid_of(sup, id) for id in ("child1", "child2")]
        await link_all(*pids)
        await blocked(pids[1], 3_000)
        exit(sup, SHUTDOWN)
        assert [await gone(me, pid) for pid in (pids[1], pids[0], sup.pid)] == [SHUTDOWN] * 3
        assert asyncio.get_running_loop().time() >= 3_000


@pytest.mark.otp("supervisor_SUITE", "sup_stop_timeout")
async def test_a_child_that_is_too_slow_is_killed() -> None:
    async with office([worker("child1"), worker("child2")]) as (sup, me):
        first, second = await pid_of(sup, "child1"), await pid_of(sup, "child2")
        await link_all(first, second)
        await blocked(second, 200)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        exit(sup, SHUTDOWN)
        assert await gone(me, second) == KILLED
        assert loop.time() - begun == 1
        assert await gone(me, first) == SHUTDOWN
        assert await gone(me, sup.pid) == SHUTDOWN


@pytest.mark.otp("supervisor_SUITE", "sup_stop_brutal_kill")
async def test_a_child_may_be_stopped_by_a_kill() -> None:
    async with office([worker("child1"), worker("child2", shutdown="brutal_kill")]) as (sup, me):
        first, second = await pid_of(sup, "child1"), await pid_of(sup, "child2")
        await link_all(first, second)
        exit(sup, SHUTDOWN)
        assert await gone(me, first) == SHUTDOWN
        assert await gone(me, second) == KILLED


@pytest.mark.otp("supervisor_SUITE", "sup_stop_race")
async def test_children_that_die_by_themselves_meanwhile_do_not_disturb_the_stop(node: Node) -> None:
    reasons: list[ExitReason] = [NORMAL, SHUTDOWN, Shutdown("test"), OTHER]
    specs = [worker("first", restart="temporary")]
    for restart in ("temporary", "transient", "permanent"):
        for number, reason in enumerate(reasons):
            specs.append(child(Bad, reason).but(id=f"{restart} {number}", restart=restart, shutdown=1.0))
    specs.append(child(Slow, 1).but(id="last", restart="temporary", shutdown=2.0))
    seen: list[Report] = []
    node.reports.subscribe(seen.append)
    async with office(specs) as (sup, me):
        children = dict(await which(sup))
        pids = {id: pid for id, pid in children.items() if pid is not None}
        await link_all(*pids.values())

        async def stop_them() -> None:
            await asyncio.sleep(0.2)
            for id, pid in pids.items():
                if id not in ("first", "last"):
                    ref: Ref[Bad] = Ref(pid)
                    ref.cast(Bad.finish)

        spawn(stop_them)
        exit(sup, SHUTDOWN)
        assert await gone(me, sup.pid) == SHUTDOWN
        assert await gone(me, pids["last"]) == SHUTDOWN
        assert await gone(me, pids["first"]) == SHUTDOWN
        for id, pid in pids.items():
            if id not in ("first", "last"):
                assert await gone(me, pid) == reasons[int(id.split()[1])], id
    assert not [report for report in seen if isinstance(report, ChildTerminated)], "no child is restarted meanwhile"
    late = [report.child.id for report in seen if isinstance(report, ShutdownError)]
    assert late == [
        "permanent 3",
        "permanent 2",
        "permanent 0",
        "transient 3",
        "temporary 3",
    ], "the reason is the one that the child died of, in the order of stopping"


@pytest.mark.otp("supervisor_SUITE", "sup_stop_manual")
async def test_a_supervisor_can_be_stopped_like_any_server() -> None:
    specs = [worker("child1", shutdown="brutal_kill"), worker("child2"), worker("child3")]
    async with office(specs) as (sup, me):
        pids = [await pid_of(sup, f"child{number}") for number in (1, 2, 3)]
        await link_all(*pids)
        await blocked(pids[2], 100)
        await stop(sup)
        assert await gone(me, sup.pid) == NORMAL
        assert [await gone(me, pid) for pid in pids] == [KILLED, SHUTDOWN, KILLED]


@pytest.mark.otp("supervisor_SUITE", "sup_stop_manual_timeout")
async def test_a_supervisor_stops_even_when_its_stopper_stops_waiting() -> None:
    async with office([worker("child1", shutdown=5.0), worker("child2")]) as (sup, me):
        first, second = await pid_of(sup, "child1"), await pid_of(sup, "child2")
        await link_all(first, second)
        await blocked(first, 1)
        with pytest.raises(CallTimeout):
            await stop(sup, timeout=0.1)
        assert await gone(me, sup.pid) == NORMAL
        assert await gone(me, first) == SHUTDOWN
        assert await gone(me, second) == SHUTDOWN


class Unlinking(Worker):
    """Unlinks itself from its parent."""

    def init(self) -> None:
        parent = self._otp_process.parent
        assert parent is not None
        unlink(parent.pid)


@pytest.mark.otp("supervisor_SUITE", "child_unlink")
async def test_a_child_that_unlinked_cannot_hang_its_supervisor(node: Node) -> None:
    seen: list[Report] = []
    node.reports.subscribe(seen.append)
    async with office([child(Unlinking).but(id="child1", shutdown=1.0)]) as (sup, _):
        pid = await pid_of(sup, "child1")

        async def terminate() -> None:
            await terminate_child(sup, "child1")

        spawn(terminate)
        send(sup, "junk")
        await asyncio.sleep(5)
        assert not is_alive(pid)
        assert await which(sup) == [("child1", None)]
        messages = [report.message for report in seen if isinstance(report, Unexpected)]
        assert "'junk'" in messages
        assert any("without a link" in message for message in messages), "and it is told that this one is not linked"


@pytest.mark.otp("supervisor_SUITE", "sup_stop_timeout")
async def test_an_unlinked_child_that_refuses_to_stop_is_killed() -> None:
    async with office([child(Unlinking).but(id="child1", shutdown=1.0)]) as (sup, me):
        pid = await pid_of(sup, "child1")
        link(pid)
        await blocked(pid, 1000)
        exit(sup, SHUTDOWN)
        assert await gone(me, pid) == KILLED
        assert await gone(me, sup.pid) == SHUTDOWN


class Ordered(Worker):
    """Records its start and its stop."""

    def __init__(self, name: str, log: list[str]) -> None:
        super().__init__()
        self.name = name
        self.log = log
        log.append(f"+{name}")

    def terminate(self, reason: ExitReason) -> None:
        self.log.append(f"-{self.name}")


@pytest.mark.otp("supervisor_SUITE", "order_of_children")
async def test_children_are_stopped_in_reverse_and_started_in_order_also_for_a_restart() -> None:
    log: list[str] = []
    specs = [child(Ordered, name, log).but(id=name, shutdown=1.0) for name in "abcde"]
    async with office(specs, strategy="rest_for_one") as (sup, me):
        assert [id for id, _ in await which(sup)] == list("edcba")
        assert log == ["+a", "+b", "+c", "+d", "+e"]
        log.clear()
        await end(me, await pid_of(sup, "c"), "kill")
        assert [id for id, _ in await which(sup)] == list("edcba")
        assert log == ["-e", "-d", "+c", "+d", "+e"]
        log.clear()
        await shut_down(me, sup)
        assert log == ["-e", "-d", "-c", "-b", "-a"]


@pytest.mark.otp("supervisor_SUITE", "already_started_outside_supervisor")
async def test_a_taken_name_fails_only_that_start() -> None:
    outside = await Options(name="taken").start(Worker)
    async with office() as (sup, me):
        with pytest.raises(AlreadyRegistered) as taken:
            await start_child(sup, worker("child1", restart="transient", name="taken"))
        assert taken.value.pid == outside.pid
        assert await which(sup) == []
        await shut_down(me, sup)
    assert is_alive(outside)


@pytest.mark.otp("supervisor_SUITE", "already_started_outside_supervisor")
async def test_a_process_that_was_started_elsewhere_can_be_taken_in() -> None:
    async with office() as (sup, me):
        outside = await start_link(Worker)

        async def give() -> Ref[Worker]:
            link(outside)
            return outside

        assert await start_child(sup, ChildSpec(id="guest", start=give, shutdown=1.0)) == outside
        assert await which(sup) == [("guest", outside.pid)]
        await shut_down(me, sup)
        assert not is_alive(outside)
