"""Restarts by restart type and strategy, and when a supervisor gives up."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import pytest

from greenroom.supervision import (
    SHUTDOWN,
    Crash,
    Down,
    GenServer,
    Pid,
    Ref,
    StartFailed,
    Stop,
    child,
    exit,
    inbox,
    is_alive,
    kill,
    later,
    link,
    monitor,
    restart_child,
    start_child,
    start_link,
    terminate_child,
)
from greenroom.supervision.supervisors.supervisor import Supervisor
from greenroom.supervision.supervisors.supervisor_base import GAVE_UP
from greenroom.supervision.supervisors.supervisor_reports import (
    ChildTerminated,
    ProgressReport,
    ReachedMaxRestartIntensity,
    StartError,
    SupervisorReport,
)

from .supervised_children import (
    Dead,
    How,
    Worker,
    always_error,
    counts,
    end,
    failing,
    gone,
    link_all,
    nothing_ends,
    office,
    pid_of,
    shut_down,
    which,
    worker,
)

if TYPE_CHECKING:
    from greenroom.supervision import Caller, Inbox, Node, Report
    from greenroom.supervision.supervisors.child_spec import Restart

STRATEGIES: list[Any] = ["one_for_one", "one_for_all", "rest_for_one"]


# --- by restart type

ENDS: list[Any] = [
    ("permanent", "normal", True, "permanent_normal"),
    ("permanent", "shutdown", True, "permanent_shutdown"),
    ("permanent", "shutdown with info", True, "permanent_shutdown"),
    ("permanent", "abnormal", True, "permanent_abnormal"),
    ("permanent", "kill", True, "permanent_abnormal"),
    ("transient", "normal", False, "transient_normal"),
    ("transient", "shutdown", False, "transient_shutdown"),
    ("transient", "shutdown with info", False, "transient_shutdown"),
    ("transient", "abnormal", True, "transient_abnormal"),
    ("transient", "kill", True, "transient_abnormal"),
    ("temporary", "normal", False, "temporary_normal"),
    ("temporary", "shutdown", False, "temporary_shutdown"),
    ("temporary", "shutdown with info", False, "temporary_shutdown"),
    ("temporary", "abnormal", False, "temporary_abnormal"),
    ("temporary", "kill", False, "temporary_abnormal"),
]


@pytest.mark.otp("supervisor_SUITE", "permanent_normal")
@pytest.mark.otp("supervisor_SUITE", "permanent_shutdown")
@pytest.mark.otp("supervisor_SUITE", "permanent_abnormal")
@pytest.mark.otp("supervisor_SUITE", "transient_normal")
@pytest.mark.otp("supervisor_SUITE", "transient_shutdown")
@pytest.mark.otp("supervisor_SUITE", "transient_abnormal")
@pytest.mark.otp("supervisor_SUITE", "temporary_normal")
@pytest.mark.otp("supervisor_SUITE", "temporary_shutdown")
@pytest.mark.otp("supervisor_SUITE", "temporary_abnormal")
@pytest.mark.parametrize(("restart", "how", "restarted", "case"), ENDS)
async def test_the_restart_type_decides(restart: Restart, how: How, restarted: bool, case: str) -> None:  # noqa: FBT001
    assert case.startswith(restart)
    async with office([worker("child1", restart=restart)]) as (sup, me):
        before = await pid_of(sup, "child1")
        await end(me, before, how)
        if restarted:
            ((_, after),) = await which(sup)
            assert after != before
            assert is_alive(after)
            assert await counts(sup) == [1, 1, 0, 1]
        elif restart == "transient":
            assert await which(sup) == [("child1", None)]
            assert await counts(sup) == [1, 0, 0, 1]
            again = await restart_child(sup, "child1")
            assert await which(sup) == [("child1", again.pid)]
        else:
            assert await which(sup) == []
            assert await counts(sup) == [0, 0, 0, 0]
            again = await start_child(sup, worker("child1", restart=restart))
            assert await which(sup) == [("child1", again.pid)]


@pytest.mark.otp("supervisor_SUITE", "external_start_no_progress_log")
async def test_a_requested_start_is_logged_at_debug(node: Node) -> None:
    seen: list[Report] = []
    node.reports.subscribe(seen.append)
    async with office() as (sup, me):
        ref: Ref[Worker] = await start_child(sup, worker("child1"))
        await end(me, ref, "normal")
        await which(sup)
    told = [report for report in seen if isinstance(report, SupervisorReport)]
    assert [type(report) for report in told] == [ProgressReport, ChildTerminated, ProgressReport]
    assert [report.asked_for for report in told if isinstance(report, ProgressReport)] == [True, False]


# --- by strategy


@pytest.mark.otp("supervisor_SUITE", "one_for_one")
async def test_one_for_one_restarts_the_one() -> None:
    async with office([worker("child1"), worker("child2")]) as (sup, me):
        first, second = await pid_of(sup, "child1"), await pid_of(sup, "child2")
        await end(me, first, "abnormal")
        assert await pid_of(sup, "child2") == second
        assert await pid_of(sup, "child1") != first
        assert await counts(sup) == [2, 2, 0, 2]
        await end(me, second, "abnormal")
        await end(me, await pid_of(sup, "child2"), "abnormal")
        assert await gone(me, sup.pid) == GAVE_UP


@pytest.mark.otp("supervisor_SUITE", "one_for_one_escalation")
async def test_every_failed_attempt_counts_until_the_supervisor_gives_up(node: Node) -> None:
    seen: list[Report] = []
    node.reports.subscribe(seen.append)
    async with office([failing("child1"), worker("child2")], 4) as (sup, me):
        first, second = await pid_of(sup, "child1"), await pid_of(sup, "child2")
        await link_all(first, second)
        await end(me, first, "abnormal")
        assert await gone(me, second) == SHUTDOWN
        assert await gone(me, sup.pid) == GAVE_UP
    told = [
        type(report)
        for report in seen
        if isinstance(report, SupervisorReport) and not isinstance(report, ProgressReport)
    ]
    assert told == [ChildTerminated, StartError, StartError, StartError, StartError, ReachedMaxRestartIntensity]


@pytest.mark.otp("supervisor_SUITE", "one_for_all")
async def test_one_for_all_restarts_all_and_counts_once() -> None:
    async with office([worker("child1"), worker("child2")], strategy="one_for_all") as (sup, me):
        first, second = await pid_of(sup, "child1"), await pid_of(sup, "child2")
        link(second)
        await end(me, first, "abnormal")
        assert await gone(me, second) == SHUTDOWN
        assert not {first, second} & {pid for _, pid in await which(sup)}
        assert await counts(sup) == [2, 2, 0, 2]
        await end(me, await pid_of(sup, "child2"), "abnormal")
        await end(me, await pid_of(sup, "child2"), "abnormal")
        assert await gone(me, sup.pid) == GAVE_UP


@pytest.mark.otp("supervisor_SUITE", "one_for_all_escalation")
async def test_one_for_all_gives_up_when_one_of_all_cannot_start() -> None:
    async with office([worker("child1"), failing("child2")], 4, strategy="one_for_all") as (sup, me):
        second = await pid_of(sup, "child2")
        link(second)
        await end(me, await pid_of(sup, "child1"), "abnormal")
        assert await gone(me, second) == SHUTDOWN
        assert await gone(me, sup.pid) == GAVE_UP


@pytest.mark.otp("supervisor_SUITE", "rest_for_one")
async def test_rest_for_one_restarts_it_and_those_after_it() -> None:
    async with office([worker(f"child{n}") for n in (1, 2, 3)], strategy="rest_for_one") as (sup, me):
        first, second, third = [await pid_of(sup, f"child{n}") for n in (1, 2, 3)]
        await link_all(first, third)
        await end(me, second, "abnormal")
        assert await gone(me, third) == SHUTDOWN
        assert await pid_of(sup, "child1") == first
        assert not {second, third} & {pid for _, pid in await which(sup)}
        assert await counts(sup) == [3, 3, 0, 3]
        await end(me, await pid_of(sup, "child3"), "abnormal")
        await end(me, await pid_of(sup, "child2"), "abnormal")
        assert await gone(me, sup.pid) == GAVE_UP


@pytest.mark.otp("supervisor_SUITE", "rest_for_one_escalation")
async def test_rest_for_one_gives_up_when_a_later_one_cannot_start() -> None:
    async with office([worker("child1"), failing("child2")], 4, strategy="rest_for_one") as (sup, me):
        second = await pid_of(sup, "child2")
        link(second)
        await end(me, await pid_of(sup, "child1"), "abnormal")
        assert await gone(me, second) == SHUTDOWN
        assert await gone(me, sup.pid) == GAVE_UP


class Desk(GenServer):
    """Decides how the starts of others go."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Pid | None, Caller[bool]]] = []
        self.waiting: Caller[Any] | None = None

    def may_i(self, name: str) -> bool:
        self.asked.append((name, self.caller.pid, self.caller))
        answer: bool = later()
        if self.waiting is not None:
            self.waiting.reply(self.asked.pop(0))
            self.waiting = None
        return answer

    def next(self) -> tuple[str, Pid, Caller[bool]]:
        if self.asked:
            asked: Any = self.asked.pop(0)
            return asked  # type: ignore[no-any-return]
        self.waiting = self.caller
        return later()  # type: ignore[no-any-return]


class Asking(GenServer):
    """Asks whether it may start."""

    def __init__(self, desk: Ref[Desk], name: str) -> None:
        self.desk = desk
        self.name = name

    async def init(self) -> Stop | None:
        return None if await self.desk.within(None).call(Desk.may_i, self.name) else Stop()


async def _other_fails(strategy: Literal["one_for_all", "rest_for_one"], me: Inbox) -> list[str]:
    """Let the second child fail once while both are restarted; returns the restarted children and the reports in between."""
    from greenroom.supervision import start  # noqa: PLC0415 - the desk is no supervisor's child

    desk = await start(Desk)
    story: list[str] = []

    async def opening() -> Ref[Supervisor]:
        specs = [child(Asking, desk, id).but(id=id, shutdown=1.0) for id in ("child1", "child2")]
        return await start_link(Supervisor, specs, strategy=strategy, intensity=3, period=3600)

    async def answer(*, start: bool) -> Pid:
        name, pid, caller = await desk.call(Desk.next)
        story.append(name)
        assert caller.reply(start)
        return pid

    helper = asyncio.create_task(opening())
    first = await answer(start=True)
    await answer(start=True)
    sup = await helper
    kill(first)
    again = await answer(start=True)
    down = monitor(again)
    await answer(start=False)
    name, _, caller = await desk.call(Desk.next)
    if any(isinstance(message, Down) and message.ref is down for message in me.pending()):
        story.append("child1 is stopped")
    story.append(name)
    caller.reply(True)  # noqa: FBT003 - the answer to "may I"
    if strategy == "one_for_all":
        await answer(start=True)
    assert len(await which(sup)) == 2
    await shut_down(me, sup)
    return story


@pytest.mark.otp("supervisor_SUITE", "one_for_all_other_child_fails_restart")
async def test_after_a_failed_restart_one_for_all_begins_anew() -> None:
    async with inbox() as me:
        assert await _other_fails("one_for_all", me) == [
            *("child1", "child2"),
            *("child1", "child2"),
            *("child1 is stopped", "child1", "child2"),
        ]


@pytest.mark.otp("supervisor_SUITE", "rest_for_one_other_child_fails_restart")
async def test_after_a_failed_restart_rest_for_one_goes_on_from_there() -> None:
    async with inbox() as me:
        assert await _other_fails("rest_for_one", me) == ["child1", "child2", "child1", "child2", "child2"]


# --- intensity


@pytest.mark.otp("supervisor_SUITE", "multiple_restarts")
async def test_restarts_that_are_far_enough_apart_do_not_add_up() -> None:
    async with office([worker("child1", shutdown="brutal_kill")], 1, 1) as (sup, me):
        for _ in range(4):
            await end(me, await pid_of(sup, "child1"), "abnormal")
            await asyncio.sleep(2.1)
        await terminate_child(sup, "child1")
        assert is_alive(sup)


@pytest.mark.otp("supervisor_SUITE", "multiple_restarts")
@pytest.mark.parametrize(("apart", "alive"), [(5.0, False), (5.001, True)])
async def test_the_last_moment_of_the_period_still_counts(apart: float, alive: bool) -> None:  # noqa: FBT001
    async with office([worker("child1")], 1, 5) as (sup, me):
        await end(me, await pid_of(sup, "child1"), "kill")
        child1 = await pid_of(sup, "child1")
        await asyncio.sleep(apart)
        await end(me, child1, "kill")
        await asyncio.sleep(1)
        assert is_alive(sup) is alive


@pytest.mark.otp("supervisor_SUITE", "temporary_bystander")
async def test_a_temporary_bystander_is_dropped_and_not_restarted() -> None:
    for strategy in ("one_for_all", "rest_for_one"):
        specs = [worker("child1", shutdown=0.1), worker("child2", shutdown=0.1, restart="temporary")]
        async with office(specs, 2, 300, strategy=strategy) as (sup, me):
            await end(me, await pid_of(sup, "child1"), "normal")
            await asyncio.sleep(0.35)
            ((id, pid),) = await which(sup)
            assert id == "child1"
            assert is_alive(pid)


@pytest.mark.otp("supervisor_SUITE", "tree")
async def test_a_branch_that_gives_up_is_its_supervisors_business() -> None:
    def branch(id: str, *children: Any, **changes: Any) -> Any:
        return child(Supervisor, children, intensity=4, period=3600).but(id=id, **changes)

    specs = [
        branch("s1", worker("child1"), worker("child2")),
        branch("s2"),
        branch("s3", restart="transient"),
    ]
    async with office(specs, 4, strategy="one_for_all") as (top, me):
        await terminate_child(top, "s3")
        assert await counts(top) == [3, 2, 3, 0]
        s1, s2 = Ref[Any](await pid_of(top, "s1")), Ref[Any](await pid_of(top, "s2"))
        assert [id for id, _ in await which(s1)] == ["child2", "child1"]
        assert await counts(s2) == [0, 0, 0, 0]
        before = await which(s1)
        third: Ref[Worker] = await start_child(s2, failing("child3"))
        fourth: Ref[Worker] = await start_child(s2, worker("child4"))
        assert await counts(s2) == [2, 2, 0, 2]
        await end(me, fourth, "abnormal")
        assert await which(s1) == before
        assert (await which(s2))[1] == ("child3", third.pid)
        assert await pid_of(s2, "child4") != fourth.pid
        await end(me, third, "abnormal")
        await asyncio.sleep(1)
        assert [id for id, pid in await which(top) if is_alive(pid)] == ["s3", "s2", "s1"]
        assert await counts(top) == [3, 3, 3, 0]
        s1, s2, s3 = [Ref[Any](await pid_of(top, f"s{n}")) for n in (1, 2, 3)]
        assert [id for id, _ in await which(s1)] == ["child2", "child1"]
        assert await counts(s1) == [2, 2, 0, 2]
        assert await which(s2) == await which(s3) == [], "what was added by hand is not started again"


# --- a child that cannot be restarted


@pytest.mark.otp("supervisor_SUITE", "hanging_restart_loop")
async def test_a_supervisor_answers_between_attempts_to_restart() -> None:
    switch = {"fail": False}
    async with office([child(Dead, switch).but(id="child1", shutdown="brutal_kill")], 8, 10) as (sup, me):
        pid = await pid_of(sup, "child1")
        link(pid)
        switch["fail"] = True
        await end(me, pid, "abnormal")
        await asyncio.sleep(2)
        with pytest.raises(Exception, match="already, which is not running"):
            await start_child(sup, child(Dead, switch).but(id="child1"))
        for ask in (restart_child, __import__("greenroom.supervision", fromlist=["x"]).delete_child):
            with pytest.raises(Exception, match="is being restarted"):
                await ask(sup, "child1")
        assert [(one.id, one.state) for one in await _infos(sup)] == [("child1", "restarting")]
        assert await counts(sup) == [1, 0, 0, 1]
        await terminate_child(sup, "child1")
        assert isinstance(await gone(me, pid), Crash)
        assert [(one.id, one.state) for one in await _infos(sup)] == [("child1", "undefined")]
        switch["fail"] = False
        again: Ref[Dead] = await restart_child(sup, "child1")
        link(again)
        switch["fail"] = True
        await end(me, again, "abnormal")
        await asyncio.sleep(2)
        await shut_down(me, sup)


@pytest.mark.otp("supervisor_SUITE", "hanging_restart_loop_rest_for_one")
async def test_the_supervisor_answers_while_the_others_wait_for_a_failing_child() -> None:
    switch = {"fail": False}
    specs = [
        worker("child1", shutdown="brutal_kill"),
        child(Dead, switch).but(id="child2", shutdown="brutal_kill"),
        worker("child3", shutdown="brutal_kill"),
    ]
    async with office(specs, 8, 10, strategy="rest_for_one") as (sup, me):
        first, second = await pid_of(sup, "child1"), await pid_of(sup, "child2")
        switch["fail"] = True
        await end(me, second, "abnormal")
        await asyncio.sleep(2)
        infos = await _infos(sup)
        assert [(one.id, one.state) for one in infos] == [
            ("child3", "undefined"),
            ("child2", "restarting"),
            ("child1", "running"),
        ]
        assert infos[2].pid == first
        assert await counts(sup) == [3, 1, 0, 3]
        await terminate_child(sup, "child2")
        assert [one.state for one in await _infos(sup)] == ["undefined", "undefined", "running"]
        switch["fail"] = False
        again: Ref[Dead] = await restart_child(sup, "child2")
        assert [one.state for one in await _infos(sup)] == ["undefined", "running", "running"]
        switch["fail"] = True
        await end(me, again, "abnormal")
        await asyncio.sleep(2)
        await shut_down(me, sup)


async def _infos(sup: Ref[Any]) -> Any:
    from greenroom.supervision import which_children  # noqa: PLC0415 - the short form is not enough here

    return await which_children(sup)


@pytest.mark.otp("supervisor_SUITE", "simple_global_supervisor")
@pytest.mark.parametrize("what", ["kill the branch", "kill the server", "crash the server", "restart the server"])
async def test_names_follow_the_restarted_process(what: str) -> None:
    from greenroom.supervision import Registry, start, via, whereis  # noqa: PLC0415 - only here

    registry = await start(Registry)
    branch_name, server_name = via(registry, "branch"), via(registry, "server")
    server = worker("server", shutdown=2.0, name=server_name)
    branch = child(Supervisor, [server], strategy="one_for_all", intensity=3, period=60)
    async with office([branch.but(id="branch", shutdown=2.0, name=branch_name)], 3, 60) as (top, me):
        before = whereis(branch_name), whereis(server_name)
        assert before[0] is not None
        assert before[1] is not None
        match what:
            case "kill the branch":
                kill(before[0])
            case "kill the server":
                kill(before[1])
            case "crash the server":
                Ref[Worker](server_name).cast(Worker.die)
            case _:
                await terminate_child(branch_name, "server")
                await restart_child(branch_name, "server")
        await asyncio.sleep(0.2)
        after = whereis(branch_name), whereis(server_name)
        assert None not in after
        assert after[1] != before[1]
        assert (after[0] != before[0]) is (what == "kill the branch")
        exit(top, SHUTDOWN)
        await gone(me, top.pid)
        assert (whereis(branch_name), whereis(server_name)) == (None, None)


@pytest.mark.otp("supervisor_SUITE", "one_for_one")
async def test_a_failed_first_start_restarts_nothing() -> None:
    async with inbox() as me:
        with pytest.raises(StartFailed):
            await start_link(Supervisor, [failing("child1", always_error)], intensity=9)
        await nothing_ends(me)
