"""Significant children, whose exit ends their supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    SHUTDOWN,
    Inbox,
    Pid,
    Ref,
    child,
    inbox,
    is_alive,
    link,
    restart_child,
    start_child,
    start_link,
    terminate_child,
)
from greenroom.supervision.supervisors.supervisor import Supervisor

from .supervised_children import HOUR, end, gone, link_all, nothing_ends, office, pid_of, shut_down, which, worker

if TYPE_CHECKING:
    from greenroom.supervision.supervisors.child_spec import Restart

ANY_OR_ALL: list[Any] = ["any_significant", "all_significant"]


@pytest.mark.otp("supervisor_SUITE", "nonsignificant_temporary")
@pytest.mark.parametrize("auto_shutdown", ["never", *ANY_OR_ALL])
async def test_a_temporary_child_that_is_not_significant_may_end_anyhow(auto_shutdown: Any) -> None:
    async with office(auto_shutdown=auto_shutdown) as (sup, me):
        for how in ("by its supervisor", "kill", "abnormal", "normal"):
            ref: Ref[Any] = await start_child(sup, worker("child1", restart="temporary"))
            link(ref)
            if how == "by its supervisor":
                await terminate_child(sup, "child1")
            else:
                await end(me, ref, how)  # type: ignore[arg-type]
            await gone(me, ref.pid)
            await nothing_ends(me, sup.pid)
        await shut_down(me, sup)


@pytest.mark.otp("supervisor_SUITE", "nonsignificant_transient")
@pytest.mark.parametrize("auto_shutdown", ["never", *ANY_OR_ALL])
async def test_a_transient_child_that_is_not_significant_may_end_anyhow(auto_shutdown: Any) -> None:
    async with office([worker("child1", restart="transient")], 5, auto_shutdown=auto_shutdown) as (sup, me):
        for how in ("by its supervisor", "kill", "abnormal", "normal"):
            pid = await pid_of(sup, "child1")
            link(pid)
            if how == "by its supervisor":
                await terminate_child(sup, "child1")
                await restart_child(sup, "child1")
            else:
                await end(me, pid, how)  # type: ignore[arg-type]
            await gone(me, pid)
            await nothing_ends(me, sup.pid)
        assert await which(sup) == [("child1", None)]
        await shut_down(me, sup)


async def three(me: Inbox, restart: Restart, auto_shutdown: Any) -> tuple[Ref[Supervisor], Pid, Pid, Pid]:
    """Two significant children and one that is not, all of them and their supervisor linked to the test."""
    specs = [
        worker("child1", restart=restart, significant=True),
        worker("child2", restart=restart, significant=True),
        worker("child3", restart=restart),
    ]
    sup = await start_link(Supervisor, specs, intensity=5, period=HOUR, auto_shutdown=auto_shutdown)
    pids = [await pid_of(sup, f"child{number}") for number in (1, 2, 3)]
    await link_all(*pids)
    return sup, pids[0], pids[1], pids[2]


async def all_gone(me: Inbox, *pids: Pid) -> None:
    """Each of these ends as it is told to."""
    assert [await gone(me, pid) for pid in pids] == [SHUTDOWN] * len(pids)


@pytest.mark.otp("supervisor_SUITE", "significant_temporary")
async def test_the_end_of_a_significant_temporary_child_ends_all() -> None:
    async with inbox() as me:
        sup, first, second, third = await three(me, "temporary", "any_significant")
        await terminate_child(sup, "child1")
        await gone(me, first)
        await nothing_ends(me, sup.pid, second, third)
        again: Ref[Any] = await start_child(sup, worker("child1", restart="temporary", significant=True))
        assert [id for id, _ in await which(sup)] == ["child1", "child3", "child2"]
        await end(me, again, "kill")
        await all_gone(me, third, second, sup.pid)
        for how in ("abnormal", "normal"):
            sup, first, second, third = await three(me, "temporary", "any_significant")
            await end(me, first, how)
            await gone(me, first)
            await all_gone(me, third, second, sup.pid)


@pytest.mark.otp("supervisor_SUITE", "significant_temporary")
async def test_the_last_significant_temporary_child_ends_the_others() -> None:
    async with inbox() as me:
        sup, first, second, third = await three(me, "temporary", "all_significant")
        await end(me, first, "normal")
        await gone(me, first)
        await nothing_ends(me, sup.pid, second, third)
        await end(me, second, "normal")
        await gone(me, second)
        await all_gone(me, third, sup.pid)


@pytest.mark.otp("supervisor_SUITE", "significant_transient")
async def test_a_significant_transient_child_ends_all_only_when_it_is_done() -> None:
    async with inbox() as me:
        sup, first, second, third = await three(me, "transient", "any_significant")
        await terminate_child(sup, "child1")
        await gone(me, first)
        await nothing_ends(me, sup.pid, second, third)
        await restart_child(sup, "child1")
        for how in ("kill", "abnormal"):
            await end(me, await pid_of(sup, "child1"), how)
            await nothing_ends(me, sup.pid, second, third)
            assert [id for id, _ in await which(sup)] == ["child3", "child2", "child1"], "it keeps its place"
        await end(me, await pid_of(sup, "child1"), "normal")
        await all_gone(me, third, second, sup.pid)
        sup, first, second, third = await three(me, "transient", "all_significant")
        await end(me, first, "normal")
        await gone(me, first)
        await nothing_ends(me, sup.pid, second, third)
        await end(me, second, "normal")
        await gone(me, second)
        await all_gone(me, third, sup.pid)


@pytest.mark.otp("supervisor_SUITE", "significant_bystander")
@pytest.mark.parametrize("auto_shutdown", ANY_OR_ALL)
@pytest.mark.parametrize(
    ("strategy", "ends"),
    [
        ("one_for_one", ["child2"]),
        ("one_for_all", ["child1", "child2", "child3"]),
        ("rest_for_one", ["child2", "child3"]),
    ],
)
async def test_a_significant_child_stopped_for_another_does_not_end_the_supervisor(
    auto_shutdown: Any, strategy: Any, ends: list[str]
) -> None:
    specs = [
        worker("child1", restart="transient", significant=True),
        worker("child2", restart="transient"),
        worker("child3", restart="transient", significant=True),
    ]
    async with office(specs, 5, strategy=strategy, auto_shutdown=auto_shutdown) as (sup, me):
        pids = {f"child{number}": await pid_of(sup, f"child{number}") for number in (1, 2, 3)}
        await link_all(*pids.values())
        await end(me, pids["child2"], "kill")
        for id in ends:
            await gone(me, pids[id])
        await nothing_ends(me, sup.pid, *(pid for id, pid in pids.items() if id not in ends))
        assert len([pid for _, pid in await which(sup) if is_alive(pid)]) == 3
        await shut_down(me, sup)


@pytest.mark.otp("supervisor_SUITE", "significant_escalation")
@pytest.mark.parametrize("significant", [True, False])
async def test_significance_climbs_as_far_as_it_is_said(significant: bool) -> None:  # noqa: FBT001
    leaf = worker("c", restart="transient", significant=True)
    branch = child(Supervisor, [leaf], auto_shutdown="any_significant")
    branch = branch.but(id="b", restart="transient", significant=significant)
    async with office([branch], auto_shutdown="any_significant") as (top, me):
        b: Ref[Any] = Ref(await pid_of(top, "b"))
        c = await pid_of(b, "c")
        await link_all(b.pid, c)
        await end(me, c, "normal")
        await gone(me, c)
        assert await gone(me, b.pid) == SHUTDOWN
        if significant:
            assert await gone(me, top.pid) == SHUTDOWN
        else:
            await nothing_ends(me, top.pid)
            await shut_down(me, top)
