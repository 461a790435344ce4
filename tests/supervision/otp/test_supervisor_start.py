"""Starts of supervisors, with children whose start fails."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.supervision import (
    BadSpec,
    ChildNotFound,
    ChildSpec,
    Crash,
    Ref,
    Shutdown,
    StartFailed,
    StartIgnored,
    child,
    get_childspec,
    inbox,
    is_alive,
    restart_child,
    start_child,
    start_link,
    terminate_child,
)
from greenroom.supervision.behaviours.gen_server import BadReturn
from greenroom.supervision.behaviours.replies import IGNORE
from greenroom.supervision.supervisors.supervisor import FailedToStartChild, Supervisor

from .supervised_children import (
    Died,
    Worker,
    counts,
    end,
    failing,
    ignore_first,
    nothing_ends,
    office,
    shut_down,
    which,
    worker,
)


@pytest.mark.otp("supervisor_SUITE", "sup_start_normal")
async def test_a_supervisor_without_children_starts_and_stops() -> None:
    async with office() as (sup, me):
        assert is_alive(sup)
        await end(me, sup, "shutdown")


class Ignoring(Supervisor):
    """Chooses not to run."""

    async def init(self) -> Any:
        return IGNORE


class Wrong(Supervisor):
    """Returns a wrong value from `init`."""

    async def init(self) -> Any:
        return "invalid"


class Crashing(Supervisor):
    """Raises."""

    async def init(self) -> Any:
        raise Died("fail")


@pytest.mark.otp("supervisor_SUITE", "sup_start_ignore_init")
async def test_a_supervisor_may_choose_not_to_run() -> None:
    async with inbox() as me:
        with pytest.raises(StartIgnored):
            await start_link(Ignoring)
        await nothing_ends(me)


@pytest.mark.otp("supervisor_SUITE", "sup_start_error_return")
async def test_a_wrong_answer_of_init_is_a_failed_start() -> None:
    async with inbox() as me:
        with pytest.raises(StartFailed) as failed:
            await start_link(Wrong)
        assert isinstance(failed.value.reason, Crash)
        assert isinstance(failed.value.reason.error, BadReturn)
        assert "'invalid'" in str(failed.value)
        await nothing_ends(me)


@pytest.mark.otp("supervisor_SUITE", "sup_start_fail")
async def test_a_crash_in_init_is_a_failed_start_with_its_cause() -> None:
    async with inbox() as me:
        with pytest.raises(StartFailed) as failed:
            await start_link(Crashing)
        assert isinstance(failed.value.__cause__, Died)
        assert failed.value.__cause__.__traceback__ is not None
        await nothing_ends(me)


@pytest.mark.otp("supervisor_SUITE", "sup_start_ignore_child")
async def test_a_child_that_ignores_its_start_is_kept_and_does_not_run() -> None:
    async with office() as (sup, _):
        with pytest.raises(StartIgnored):
            await start_child(sup, failing("child1", ignore_first))
        second: Ref[Worker] = await start_child(sup, worker("child2"))
        assert await which(sup) == [("child2", second.pid), ("child1", None)]
        assert await counts(sup) == [2, 1, 0, 2]


@pytest.mark.otp("supervisor_SUITE", "sup_start_ignore_temporary_child")
async def test_a_temporary_child_that_ignores_its_start_is_not_kept() -> None:
    specs = [failing("child1", ignore_first, restart="temporary"), worker("child2", restart="temporary")]
    async with office(specs) as (sup, _):
        ((name, pid),) = await which(sup)
        assert name == "child2"
        assert is_alive(pid)
        assert await counts(sup) == [1, 1, 0, 1]


@pytest.mark.otp("supervisor_SUITE", "sup_start_ignore_temporary_child_start_child")
async def test_a_temporary_child_that_ignores_being_added_is_not_kept() -> None:
    async with office() as (sup, _):
        with pytest.raises(StartIgnored):
            await start_child(sup, failing("child1", ignore_first, restart="temporary"))
        second: Ref[Worker] = await start_child(sup, worker("child2", restart="temporary"))
        assert await which(sup) == [("child2", second.pid)]
        assert await counts(sup) == [1, 1, 0, 1]


@pytest.mark.otp("supervisor_SUITE", "sup_start_child_returns_error")
async def test_a_child_whose_start_fails_is_not_added() -> None:
    async def refuse() -> Any:
        raise StartFailed(Crash(Died("reason")))

    async def nonsense() -> Any:
        return "error_reason"

    async with office() as (sup, _):
        with pytest.raises(StartFailed, match="Died: reason"):
            await start_child(sup, ChildSpec(id="child1", start=refuse))
        with pytest.raises(StartFailed, match="'child1' returned 'error_reason'"):
            await start_child(sup, ChildSpec(id="child1", start=nonsense))
        assert await which(sup) == []


@pytest.mark.otp("supervisor_SUITE", "sup_start_restart_child_returns_error")
async def test_a_child_that_cannot_be_started_again_stays_known() -> None:
    async with office([failing("child1")]) as (sup, _):
        await terminate_child(sup, "child1")
        with pytest.raises(StartFailed) as failed:
            await restart_child(sup, "child1")
        assert isinstance(failed.value.__cause__, Died)
        assert await which(sup) == [("child1", None)]


@pytest.mark.otp("supervisor_SUITE", "sup_start_map")
async def test_the_defaults_of_a_spec_are_filled_in() -> None:
    async def run() -> Ref[Worker]:
        return await start_link(Worker)

    specs = [
        ChildSpec(id="child1", start=run),
        ChildSpec(id="child2", start=run, shutdown="brutal_kill"),
        ChildSpec(id="child3", start=run, type="supervisor"),
    ]
    async with office(specs) as (sup, me):
        found = [await get_childspec(sup, id) for id in ("child1", "child2", "child3")]
        assert [spec.restart for spec in found] == ["permanent"] * 3
        assert [spec.type for spec in found] == ["worker", "worker", "supervisor"]
        assert [spec.shutdown for spec in found] == [5.0, "brutal_kill", "infinity"]
        assert [spec.significant for spec in found] == [False] * 3
        assert all(spec.start is run for spec in found)
        with pytest.raises(ChildNotFound, match="'child4'"):
            await get_childspec(sup, "child4")
        await shut_down(me, sup)


@pytest.mark.otp("supervisor_SUITE", "sup_start_map_faulty_specs")
async def test_specs_that_cannot_be_are_refused_before_anything_starts() -> None:
    tries: list[str] = []

    def starting(_: int) -> str:
        tries.append("started")
        return "ok"

    good = failing("child1", starting)
    with pytest.raises(TypeError, match="id"):
        ChildSpec(start=good.start)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="start"):
        ChildSpec(id="child2")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="surprise"):
        ChildSpec(id="child3", start=good.start, surprise=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    async with inbox() as me:
        specs: Any = [good, "child4"]
        with pytest.raises(StartFailed) as failed:
            await start_link(Supervisor, specs)
        assert isinstance(failed.value.__cause__, BadSpec)
        assert "'child4'" in str(failed.value.__cause__)
        assert not tries
        await nothing_ends(me)


@pytest.mark.otp("supervisor_SUITE", "faulty_application_shutdown")
async def test_the_whole_error_of_a_faulty_branch_comes_out_at_the_top() -> None:
    def broken(_: int) -> str:
        raise NameError("no_such_function")

    branch = child(Supervisor, [worker("good"), failing("faulty", broken)]).but(id="branch")
    async with inbox() as me:
        with pytest.raises(StartFailed) as failed:
            await start_link(Supervisor, [worker("first"), branch])
        assert isinstance(failed.value.reason, Shutdown)
        outer = failed.value.reason.detail
        assert isinstance(outer, FailedToStartChild)
        assert outer.id == "branch"
        assert isinstance(outer.reason, Shutdown)
        inner = outer.reason.detail
        assert isinstance(inner, FailedToStartChild)
        assert inner.id == "faulty"
        assert isinstance(inner.reason, Crash)
        assert isinstance(inner.reason.error, NameError)
        trace = inner.reason.error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        assert trace is not None
        assert trace.tb_frame.f_code.co_name == "broken"
        await nothing_ends(me)
