"""Dynamic supervisors with a template: OTP's simple_one_for_one."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    KILLED,
    NORMAL,
    SHUTDOWN,
    ChildNotFound,
    Crash,
    DynamicSupervisor,
    ExitReason,
    Pid,
    Ref,
    Shutdown,
    StartFailed,
    StartIgnored,
    delete_child,
    exit,
    get_childspec,
    is_alive,
    kill,
    link,
    restart_child,
    start,
    start_child,
    start_link,
    template,
    terminate_child,
    whereis,
    which_child,
    which_children,
)
from greenroom.supervision.behaviours.process_start import Options
from greenroom.supervision.supervisors.supervisor_base import GAVE_UP
from greenroom.supervision.supervisors.supervisor_reports import ShutdownError

from .supervised_children import (
    HOUR,
    Bad,
    Dead,
    Died,
    Failing,
    Slow,
    Worker,
    always,
    always_error,
    among,
    counts,
    end,
    gone,
    ignore_first,
    once,
    shut_down,
)

if TYPE_CHECKING:
    from greenroom.supervision import ChildSpec, Inbox, Node, Report
    from greenroom.supervision.supervisors.child_spec import Restart


async def crowd(spec: ChildSpec[Any], intensity: int = 2, **options: Any) -> Ref[DynamicSupervisor]:
    """A supervisor of children like this, linked to the test."""
    return await start_link(DynamicSupervisor, spec, intensity=intensity, period=HOUR, **options)


def alike(server: Any = Worker, *args: Any, **changes: Any) -> ChildSpec[Any]:
    """The template: permanent, with a second to stop."""
    return template(server, *args).but(shutdown=1.0).but(**changes)


async def pids_of(sup: Ref[Any]) -> list[Pid | None]:
    """The children's pids."""
    infos = await which_children(sup)
    assert all(info.id is None for info in infos)
    return [info.pid for info in infos]


@pytest.mark.otp("supervisor_SUITE", "sup_start_ignore_temporary_child_start_child_simple")
@pytest.mark.otp("supervisor_SUITE", "sup_start_ignore_permanent_child_start_child_simple")
@pytest.mark.parametrize("restart", ["temporary", "permanent"])
@among
async def test_a_start_that_is_ignored_leaves_nothing(me: Inbox, restart: Restart) -> None:
    sup = await crowd(alike(Failing, [], ignore_first, restart=restart))
    with pytest.raises(StartIgnored):
        await start_child(sup)
    second = await start_child(sup)
    assert await pids_of(sup) == [second.pid]
    assert await counts(sup) == [1, 1, 0, 1]
    await shut_down(me, sup)


@pytest.mark.otp("supervisor_SUITE", "sup_start_child_returns_error_simple")
@among
async def test_a_start_that_fails_is_told_plainly(me: Inbox) -> None:
    sup = await crowd(alike(Failing, []))
    with pytest.raises(StartFailed, match="Died: in init"):
        await start_child(sup, always_error)
    with pytest.raises(StartFailed, match="missing 1 required positional argument"):
        await start_child(sup)
    assert await pids_of(sup) == []
    assert len(me) == 0


@pytest.mark.otp("supervisor_SUITE", "sup_start_map_simple")
@among
async def test_the_spec_of_each_child_is_the_template(me: Inbox) -> None:
    sup = await crowd(template(Worker).but(restart="temporary"))
    for _ in range(3):
        child = await start_child(sup)
        spec = await get_childspec(sup, child.pid)
        assert (spec.restart, spec.type, spec.shutdown, spec.significant) == ("temporary", "worker", 5.0, False)
    with pytest.raises(ChildNotFound):
        await get_childspec(sup, me.pid)
    await shut_down(me, sup)


# --- stopping


@pytest.mark.otp("supervisor_SUITE", "sup_stop_timeout_dynamic")
@among
async def test_a_child_that_is_too_slow_is_killed_and_the_others_are_not(me: Inbox) -> None:
    sup = await crowd(alike(restart="temporary"))
    first, second = await start_child(sup), await start_child(sup)
    link(first)
    link(second)
    second.cast(Worker.block, 200)
    exit(sup, SHUTDOWN)
    assert await gone(me, first.pid) == SHUTDOWN
    assert await gone(me, second.pid) == KILLED
    assert await gone(me, sup.pid) == SHUTDOWN


@pytest.mark.otp("supervisor_SUITE", "sup_stop_brutal_kill_dynamic")
@among
async def test_all_may_be_stopped_by_a_kill(me: Inbox) -> None:
    sup = await crowd(alike(Bad, restart="temporary", shutdown="brutal_kill"))
    children = [await start_child(sup) for _ in range(10)]
    for child in children:
        link(child)
    exit(sup, SHUTDOWN)
    assert [await gone(me, child.pid) for child in children] == [KILLED] * 10
    assert await gone(me, sup.pid) == SHUTDOWN


@pytest.mark.otp("supervisor_SUITE", "sup_stop_non_shutdown_exit_dynamic")
@pytest.mark.parametrize(("restart", "told"), [("temporary", [3]), ("transient", [3]), ("permanent", [0, 2, 3])])
@among
async def test_shutdown_errors_are_reported_once_for_each_reason(
    me: Inbox, node: Node, restart: Restart, told: list[int]
) -> None:
    reasons: list[ExitReason] = [NORMAL, SHUTDOWN, Shutdown("test"), Crash(Died("other"))]
    seen: list[Report] = []
    node.reports.subscribe(seen.append)
    sup = await crowd(alike(Bad, restart=restart, shutdown=5.0))
    children = [await start_child(sup, reason) for reason in reasons]
    for child in children:
        link(child)
    exit(sup, SHUTDOWN)
    assert [await gone(me, child.pid) for child in children] == reasons
    assert await gone(me, sup.pid) == SHUTDOWN
    errors = [report for report in seen if isinstance(report, ShutdownError)]
    assert [reasons.index(report.reason) for report in errors] == told
    assert all(report.child.count == 1 for report in errors)


@pytest.mark.otp("supervisor_SUITE", "simple_one_for_one_shutdown")
@among
async def test_all_have_their_time_at_the_same_time(me: Inbox) -> None:
    sup = await crowd(alike(Slow, shutdown=2.0))
    children = [await start_child(sup, seconds) for seconds in (1, 1, 5)]
    for child in children:
        link(child)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    exit(sup, SHUTDOWN)
    assert [await gone(me, child.pid) for child in children] == [SHUTDOWN, SHUTDOWN, KILLED]
    assert await gone(me, sup.pid) == SHUTDOWN
    assert loop.time() - begun == 2


# --- administration


@pytest.mark.otp("supervisor_SUITE", "child_adm_simple")
@among
async def test_children_are_known_by_their_pids_alone(me: Inbox) -> None:
    sup = await crowd(alike())
    assert await pids_of(sup) == []
    assert await counts(sup) == [1, 0, 0, 0]
    first = await start_child(sup)
    assert await pids_of(sup) == [first.pid]
    assert await counts(sup) == [1, 1, 0, 1]
    second = await start_child(sup)
    assert await pids_of(sup) == [first.pid, second.pid]
    assert await counts(sup) == [1, 2, 0, 2]
    with pytest.raises(TypeError, match="by pid or Ref, not by 'child1'"):
        await terminate_child(sup, "child1")
    await terminate_child(sup, first.pid)
    assert not is_alive(first)
    assert await pids_of(sup) == [second.pid]
    assert await counts(sup) == [1, 1, 0, 1]
    await terminate_child(sup, first)
    stranger = await start(Worker)
    with pytest.raises(ChildNotFound):
        await terminate_child(sup, stranger.pid)
    assert is_alive(stranger)
    for ask in (restart_child, delete_child):
        with pytest.raises(TypeError, match="DynamicSupervisor"):
            await ask(sup, second.pid)
    assert await pids_of(sup) == [second.pid]
    await shut_down(me, sup)


@pytest.mark.otp("supervisor_SUITE", "which_children_simple_one_for_one")
@among
async def test_dynamic_children_can_be_looked_at(me: Inbox) -> None:
    sup = await crowd(alike(restart="temporary"))
    assert await which_children(sup) == []
    with pytest.raises(ChildNotFound):
        await which_child(sup, me.pid)
    first, second = await start_child(sup), await start_child(sup)
    shown = await which_children(sup)
    assert [one.pid for one in shown] == [first.pid, second.pid]
    assert [await which_child(sup, one.pid) for one in shown] == shown
    await terminate_child(sup, first)
    assert await which_children(sup) == shown[1:]
    with pytest.raises(ChildNotFound):
        await which_child(sup, first.pid)
    with pytest.raises(TypeError, match="by pid or Ref"):
        await which_child(sup, "no pid")


@pytest.mark.otp("supervisor_SUITE", "count_children")
@pytest.mark.otp("supervisor_SUITE", "count_children_supervisor")
@pytest.mark.parametrize("kind", ["worker", "supervisor"])
@among
async def test_children_are_counted(me: Inbox, kind: Any) -> None:
    def expected(number: int) -> list[int]:
        return [1, number, number * (kind == "supervisor"), number * (kind == "worker")]

    sup = await crowd(alike(restart="temporary", type=kind, shutdown="infinity"))
    children = [await start_child(sup) for _ in range(1000)]
    assert len(await which_children(sup)) == 1000
    assert await counts(sup) == expected(1000)
    children += [await start_child(sup) for _ in range(1000)]
    assert await which_children(sup) == await which_children(sup)
    assert await counts(sup) == await counts(sup) == expected(2000)
    for child in children:
        kill(child)
    assert await counts(sup) == [1, 0, 0, 0]
    assert len(me) == 0


@pytest.mark.otp("supervisor_SUITE", "count_restarting_children")
@among
async def test_those_that_are_being_restarted_count_and_are_not_active(me: Inbox) -> None:
    switch = {"fail": False}
    sup = await start_link(DynamicSupervisor, alike(Dead, switch, shutdown="brutal_kill"), intensity=20, period=10.0)
    assert await counts(sup) == [1, 0, 0, 0]
    for number in (1, 2, 3):
        await start_child(sup)
        assert await counts(sup) == [1, number, 0, number]
    before = await pids_of(sup)
    for pid in before:
        assert pid is not None
        await end(me, pid, "abnormal")
    assert await counts(sup) == [1, 3, 0, 3]
    after = await pids_of(sup)
    assert not set(before) & set(after)
    switch["fail"] = True
    for pid in after[:2]:
        assert pid is not None
        await end(me, pid, "abnormal")
    await asyncio.sleep(4)
    assert await counts(sup) == [1, 1, 0, 3]
    switch["fail"] = False
    await asyncio.sleep(4)
    assert await counts(sup) == [1, 3, 0, 3]
    for number, pid in zip((2, 1, 0), await pids_of(sup), strict=True):
        await terminate_child(sup, pid)
        assert await counts(sup) == [1, number, 0, number]


@pytest.mark.otp("supervisor_SUITE", "simple_one_for_one_scale_many_temporary_children")
@among
async def test_many_are_terminated_one_by_one(me: Inbox) -> None:
    sup = await crowd(alike(restart="temporary"))
    children = [await start_child(sup) for _ in range(2000)]
    for number, child in enumerate(reversed(children), 1):
        await terminate_child(sup, child)
        if not number % 500:
            assert await counts(sup) == [1, 2000 - number, 0, 2000 - number]
    assert len(me) == 0


# --- restarts


@pytest.mark.otp("supervisor_SUITE", "simple_one_for_one")
@pytest.mark.otp("supervisor_SUITE", "simple_one_for_one_extra")
@pytest.mark.parametrize("extra", [None, "extra"])
@among
async def test_each_is_restarted_alone(me: Inbox, extra: str | None) -> None:
    async def run() -> Any:
        ref = await start_link(Worker)
        return ref if extra is None else (ref, extra)

    from greenroom.supervision import ChildSpec  # noqa: PLC0415 - by hand, for its answer

    sup = await crowd(ChildSpec(id="child", start=run, shutdown=1.0))
    started = [await start_child(sup) for _ in range(2)]
    first, second = started if extra is None else [ref for ref, _ in started]
    if extra is not None:
        assert [answer for _, answer in started] == [extra] * 2
    link(second)
    await end(me, first, "abnormal")
    pids = await pids_of(sup)
    assert len(pids) == 2
    assert second.pid in pids
    assert first.pid not in pids
    assert await counts(sup) == [1, 2, 0, 2]
    await end(me, second, "abnormal")
    (one, _) = await pids_of(sup)
    assert one is not None
    await end(me, one, "abnormal")
    assert await gone(me, sup.pid) == GAVE_UP


@pytest.mark.otp("supervisor_SUITE", "simple_one_for_one_escalation")
@among
async def test_a_child_that_cannot_be_restarted_ends_all(me: Inbox) -> None:
    sup = await crowd(alike(Failing), 4)
    first = await start_child(sup, [], once)
    second = await start_child(sup, [], always)
    link(first)
    link(second)
    await end(me, first, "abnormal")
    assert await gone(me, second.pid) == SHUTDOWN
    assert await gone(me, sup.pid) == GAVE_UP


class Big:
    """A large argument."""


class Forgetful(Worker):
    """Does not keep its argument."""

    def __init__(self, argument: Big | None = None) -> None:
        super().__init__(type(argument))


@pytest.mark.otp("supervisor_SUITE", "simple_one_for_one_corruption")
@pytest.mark.otp("supervisor_SUITE", "do_not_save_start_parameters_for_temporary_children")
@among
async def test_arguments_of_temporary_children_are_not_kept(me: Inbox) -> None:
    kept: list[bool] = []
    restarts: list[Restart] = ["permanent", "transient", "temporary"]
    for restart in restarts:
        sup = await crowd(alike(Forgetful, restart=restart))
        first = await start_child(sup)
        await end(me, first, "normal")
        argument = Big()
        alive = weakref.ref(argument)
        second = await start_child(sup, argument)
        del argument
        gc.collect()
        kept.append(alive() is not None)
        await end(me, second, "normal")
        await shut_down(me, sup)
    assert kept == [True, True, False]


@pytest.mark.otp("supervisor_SUITE", "simple_one_for_one_restart_ignore")
@pytest.mark.parametrize("restart", ["transient", "permanent"])
@among
async def test_a_child_that_ignores_its_restart_is_forgotten(me: Inbox, restart: Restart) -> None:
    outcomes = ["ok", "ok", "ignore"]
    sup = await crowd(alike(Failing, [], outcomes.__getitem__, restart=restart), 10)
    first = await start_child(sup)
    kill(first)
    (second,) = await pids_of(sup)
    assert second is not None
    assert second != first.pid
    kill(second)
    assert await pids_of(sup) == []
    await shut_down(me, sup)


@pytest.mark.otp("supervisor_SUITE", "hanging_restart_loop_simple")
@among
async def test_a_dynamic_supervisor_answers_between_attempts_to_restart(me: Inbox) -> None:
    switch = {"fail": False}
    sup = await Options(name="crowd").start_link(
        DynamicSupervisor, alike(Dead, switch, shutdown="brutal_kill"), intensity=8, period=10.0
    )
    for again in (False, True):
        child = await start_child(sup)
        link(child)
        switch["fail"] = True
        await end(me, child, "abnormal")
        await asyncio.sleep(2)
        for ask in (restart_child, delete_child):
            with pytest.raises(TypeError):
                await ask(sup, child.pid)
        assert [(one.pid, one.state) for one in await which_children(sup)] == [(None, "restarting")]
        assert await counts(sup) == [1, 0, 0, 1]
        assert isinstance(await gone(me, child.pid), Crash)
        if not again:
            await terminate_child(sup, child.pid)
            assert await which_children(sup) == []
            switch["fail"] = False
    await shut_down(me, sup)
    assert whereis("crowd") is None


@pytest.mark.otp("supervisor_SUITE", "significant_simple")
@among
async def test_significance_means_nothing_among_children_that_are_all_alike(me: Inbox) -> None:
    options: Any = {"auto_shutdown": "any_significant"}
    with pytest.raises(StartFailed, match="auto_shutdown"):
        await start_link(DynamicSupervisor, alike(), **options)
    with pytest.raises(StartFailed, match="significant"):
        await start_link(DynamicSupervisor, alike(restart="temporary", significant=True))
    sup = await crowd(alike())
    await shut_down(me, sup)
