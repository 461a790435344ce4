"""Children that are added, stopped, restarted, deleted and inspected; wrong specs and flags."""

from __future__ import annotations

import gc
import weakref
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import pytest

from greenroom.supervision import (
    SHUTDOWN,
    BadSpec,
    ChildNotFound,
    ChildSpec,
    ProcessExited,
    Ref,
    StartFailed,
    child,
    delete_child,
    inbox,
    introspect,
    is_alive,
    link,
    restart_child,
    start_child,
    start_link,
    terminate_child,
    which_child,
    which_children,
)
from greenroom.supervision.supervisors.child_spec import AlreadyPresent, AlreadyStarted, ChildRunning, Flags
from greenroom.supervision.supervisors.supervisor import Supervisor

from .supervised_children import Worker, counts, end, gone, nothing_ends, office, pid_of, shut_down, which, worker

if TYPE_CHECKING:
    from greenroom.supervision.supervisors.child_spec import Restart


@pytest.mark.otp("supervisor_SUITE", "child_adm")
@pytest.mark.otp("supervisor_test", "child life cycle")
async def test_children_can_be_administered_one_by_one() -> None:
    async with office([worker("child1")], 1, 1000) as (sup, me):
        first = await pid_of(sup, "child1")
        assert await counts(sup) == [1, 1, 0, 1]
        link(first)
        with pytest.raises(AlreadyStarted) as running:
            await start_child(sup, worker("child1"))
        assert running.value.pid == first
        for ask in (terminate_child, restart_child, delete_child):
            with pytest.raises(ChildNotFound):
                await ask(sup, "child2")
        for refused in (restart_child, delete_child):
            with pytest.raises(ChildRunning) as error:
                await refused(sup, "child1")
            assert error.value.pid == first
        assert await which(sup) == [("child1", first)]
        await terminate_child(sup, "child1")
        assert await gone(me, first) == SHUTDOWN
        assert await which(sup) == [("child1", None)]
        assert await counts(sup) == [1, 0, 0, 1]
        await terminate_child(sup, "child1")
        with pytest.raises(AlreadyPresent):
            await start_child(sup, worker("child1"))
        second: Ref[Worker] = await restart_child(sup, "child1")
        assert await which(sup) == [("child1", second.pid)]
        assert await counts(sup) == [1, 1, 0, 1]
        await terminate_child(sup, "child1")
        await delete_child(sup, "child1")
        with pytest.raises(ChildNotFound):
            await restart_child(sup, "child1")
        assert await which(sup) == []
        assert await counts(sup) == [0, 0, 0, 0]
        third: Ref[Worker] = await start_child(sup, worker("child1"))
        with pytest.raises(ChildNotFound):
            await terminate_child(sup, third.pid)
        assert await which(sup) == [("child1", third.pid)]
        assert await counts(sup) == [1, 1, 0, 1]
        await shut_down(me, sup)
        for look in (which_children, counts):
            with pytest.raises(ProcessExited):
                await look(sup)
        with pytest.raises(ProcessExited):
            await start_child(sup, worker("child1"))


@pytest.mark.otp("supervisor_SUITE", "extra_return")
async def test_a_start_function_may_return_more_than_the_child() -> None:
    async def run() -> tuple[Ref[Worker], str]:
        return await start_link(Worker), "extra"

    spec = ChildSpec(id="child1", start=run, shutdown=1.0)
    async with office([spec]) as (sup, me):
        first = await pid_of(sup, "child1")
        link(first)
        with pytest.raises(ChildRunning):
            await restart_child(sup, "child1")
        await terminate_child(sup, "child1")
        assert await gone(me, first) == SHUTDOWN
        second, extra = await restart_child(sup, "child1")
        assert extra == "extra"
        assert await which(sup) == [("child1", second.pid)]
        await terminate_child(sup, "child1")
        await delete_child(sup, "child1")
        third, extra = await start_child(sup, spec)
        assert extra == "extra"
        await end(me, third, "abnormal")
        ((_, fourth),) = await which(sup)
        assert fourth != third.pid
        assert is_alive(fourth)
        assert await counts(sup) == [1, 1, 0, 1]


@pytest.mark.otp("supervisor_SUITE", "child_specs")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("start", "no function"),
        ("restart", "prmanent"),
        ("shutdown", -10),
        ("shutdown", "soon"),
        ("shutdown", float("nan")),
        ("type", "wrker"),
        ("significant", "maybe"),
        ("id", []),
    ],
)
def test_a_spec_that_cannot_be_names_its_field(field: str, value: Any) -> None:
    with pytest.raises(BadSpec) as refused:
        worker("child1").but(**{field: value})
    assert refused.value.field == field
    assert repr(value) in str(refused.value)


@pytest.mark.otp("supervisor_SUITE", "child_specs")
async def test_every_combination_of_good_values_is_good() -> None:
    restarts: list[Restart] = ["permanent", "transient", "temporary"]
    shutdowns: list[Any] = [0, 1000, "infinity", "brutal_kill"]
    kinds: list[Any] = ["worker", "supervisor"]
    for restart, shutdown, kind in product(restarts, shutdowns, kinds):
        spec = worker("child1", restart=restart, shutdown=shutdown, type=kind)
        assert (spec.restart, spec.shutdown, spec.type) == (restart, shutdown, kind)
    async with inbox() as me:
        with pytest.raises(StartFailed) as twice:
            await start_link(Supervisor, [worker("child"), worker("child")])
        assert isinstance(twice.value.__cause__, BadSpec)
        assert "'child'" in str(twice.value.__cause__)
        await nothing_ends(me)
    async with office() as (sup, me):
        nonsense: Any = "child4"
        with pytest.raises(BadSpec):
            await start_child(sup, nonsense)
        await shut_down(me, sup)


@pytest.mark.otp("supervisor_SUITE", "child_specs_map")
@pytest.mark.parametrize("auto_shutdown", [None, "never", "any_significant", "all_significant"])
@pytest.mark.parametrize("restart", [None, "permanent", "transient", "temporary"])
@pytest.mark.parametrize("significant", [None, True, False])
async def test_significance_has_to_make_sense(
    auto_shutdown: Any, restart: Restart | None, significant: Literal[True, False] | None
) -> None:
    changes = {"restart": restart, "significant": significant}
    given = {name: value for name, value in changes.items() if value is not None}
    if significant and restart in (None, "permanent"):
        with pytest.raises(BadSpec) as refused:
            child(Worker).but(**given)  # type: ignore[arg-type]
        assert refused.value.field == "significant"
        return
    spec = child(Worker).but(**given)  # type: ignore[arg-type]
    flags = {} if auto_shutdown is None else {"auto_shutdown": auto_shutdown}
    async with inbox() as me:
        if significant and auto_shutdown in (None, "never"):
            with pytest.raises(StartFailed) as failed:
                await start_link(Supervisor, [spec], **flags)
            assert isinstance(failed.value.__cause__, BadSpec)
            sup = await start_link(Supervisor, [], **flags)
            with pytest.raises(BadSpec):
                await start_child(sup, spec)
        else:
            sup = await start_link(Supervisor, [spec], **flags)
            assert len(await which(sup)) == 1
        await shut_down(me, sup)


@pytest.mark.otp("supervisor_SUITE", "sup_flags")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("strategy", "none_for_one"),
        ("intensity", "infinity"),
        ("intensity", -1),
        ("intensity", 1.5),
        ("period", 0),
        ("period", "infinity"),
        ("period", float("nan")),
        ("auto_shutdown", "sometimes"),
    ],
)
async def test_a_flag_that_cannot_be_names_its_field(field: str, value: Any) -> None:
    with pytest.raises(BadSpec) as refused:
        Flags(**{field: value})
    assert refused.value.field == field
    async with inbox() as me:
        with pytest.raises(StartFailed) as failed:
            await start_link(Supervisor, **{field: value})
        assert isinstance(failed.value.__cause__, BadSpec)
        assert failed.value.__cause__.field == field
        surprise: Any = {"surprise": 1}
        with pytest.raises(StartFailed, match="surprise"):
            await start_link(Supervisor, **surprise)
        await nothing_ends(me)


@pytest.mark.otp("supervisor_SUITE", "which_children")
async def test_children_can_be_looked_at_together_and_one_by_one() -> None:
    async with office() as (sup, _):
        assert await which_children(sup) == []
        with pytest.raises(ChildNotFound):
            await which_child(sup, "childx")
        first: Ref[Worker] = await start_child(sup, worker("child1"))
        (shown,) = await which_children(sup)
        assert (shown.id, shown.pid, shown.type, shown.state) == ("child1", first.pid, "worker", "running")
        assert await which_child(sup, "child1") == shown
        await start_child(sup, worker("child2"))
        both = await which_children(sup)
        assert [one.id for one in both] == ["child2", "child1"]
        assert [await which_child(sup, one.id) for one in both] == both
        await terminate_child(sup, "child1")
        assert (await which_child(sup, "child1")).pid is None
        assert (await which_children(sup))[1] == await which_child(sup, "child1")
        await delete_child(sup, "child1")
        assert [one.id for one in await which_children(sup)] == ["child2"]
        with pytest.raises(ChildNotFound):
            await which_child(sup, "child1")


ENDINGS: list[Any] = ["kill", "normal", "abnormal", "by its supervisor"]


@pytest.mark.otp("supervisor_SUITE", "do_not_save_child_specs_for_temporary_children")
@pytest.mark.parametrize("strategy", ["one_for_all", "one_for_one", "rest_for_one"])
@pytest.mark.parametrize("how", ENDINGS)
async def test_only_what_may_be_started_again_is_kept(strategy: Any, how: Any) -> None:
    restarts: list[Restart] = ["permanent", "transient", "temporary"]
    for restart in restarts:
        async with office([worker("child1", restart=restart)], strategy=strategy) as (sup, me):
            if how == "by its supervisor":
                await terminate_child(sup, "child1")
            else:
                await end(me, await pid_of(sup, "child1"), how)
            if restart == "temporary":
                await start_child(sup, worker("child1", restart=restart))
            elif how == "by its supervisor" or (restart == "transient" and how == "normal"):
                with pytest.raises(AlreadyPresent) as present:
                    await start_child(sup, worker("child1", restart=restart))
                assert not isinstance(present.value, AlreadyStarted)
                await restart_child(sup, "child1")
            else:
                with pytest.raises(AlreadyStarted):
                    await start_child(sup, worker("child1", restart=restart))
            await shut_down(me, sup)


class Big:
    """A large argument."""


class Forgetful(Worker):
    """Does not keep its argument either."""

    def __init__(self, argument: Big) -> None:
        super().__init__(type(argument))


@pytest.mark.otp("supervisor_SUITE", "do_not_save_start_parameters_for_temporary_children")
@pytest.mark.parametrize("strategy", ["one_for_all", "one_for_one", "rest_for_one"])
async def test_the_arguments_of_a_temporary_child_are_not_kept(strategy: Any) -> None:
    restarts: list[Restart] = ["permanent", "transient", "temporary"]
    async with office(strategy=strategy) as (sup, me):
        kept: list[bool] = []
        for restart in restarts:
            argument = Big()
            alive = weakref.ref(argument)
            await start_child(sup, child(Forgetful, argument).but(id=restart, restart=restart))
            del argument
            gc.collect()
            kept.append(alive() is not None)
        assert kept == [True, True, False]
        await shut_down(me, sup)


@pytest.mark.otp("supervisor_SUITE", "get_callback_module")
async def test_a_running_supervisor_can_be_asked_what_made_it() -> None:
    class Office(Supervisor):
        pass

    async with inbox():
        sup = await start_link(Office)
        assert (await introspect.status(sup)).behaviour is Office


@pytest.mark.otp("supervisor_SUITE", "scale_start_stop_many_children")
async def test_many_children_are_started_stopped_and_kept() -> None:
    async with office() as (sup, me):
        for number in range(2000):
            await start_child(sup, worker("child").but(id=number))
        assert await counts(sup) == [2000, 2000, 0, 2000]
        for number in range(2000):
            await terminate_child(sup, number)
        assert await counts(sup) == [2000, 0, 0, 2000]
        with pytest.raises(AlreadyPresent):
            await start_child(sup, worker("child").but(id=7))
        await shut_down(me, sup)
