"""The dynamic supervisor: children that come and go, alike or each with a spec of its own."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from greenroom.supervision import (
    BadSpec,
    ChildNotFound,
    ChildTerminated,
    DynamicSupervisor,
    MaxChildren,
    ReachedMaxRestartIntensity,
    StartError,
    StartFailed,
    StartIgnored,
    Supervisor,
    child,
    count_children,
    delete_child,
    exit,
    get_childspec,
    inbox,
    is_alive,
    kill,
    restart_child,
    start,
    start_child,
    start_link,
    stop,
    template,
    terminate_child,
    wait_down,
    which_child,
    which_children,
)
from greenroom.supervision.kernel.process_messages import Crash

from .sample_children import Broken, Counter, Dependent, World, heard, of, pids, settled


async def test_without_a_template_each_child_brings_its_spec_and_ids_mean_nothing() -> None:
    async with inbox():
        sup = await start_link(DynamicSupervisor)
        refs = [await start_child(sup, child(Counter, number)) for number in range(3)]
        assert [await ref.call(Counter.add, 1) for ref in refs] == [1, 2, 3]
        inner = await start_child(sup, child(Supervisor))
        assert await count_children(sup) == (4, 4, 1, 3)
        assert [each.id for each in await which_children(sup)] == [None] * 4
        assert (await which_child(sup, refs[1])).pid == refs[1].pid
        assert (await get_childspec(sup, inner.pid)).type == "supervisor"


@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 supports extra arguments")
@pytest.mark.otp(
    "dynamic_supervisor_test", "start_child/2 restarting a child with extra_arguments successfully restarts child"
)
async def test_with_a_template_each_child_brings_its_arguments() -> None:
    async with inbox():
        sup = await start_link(DynamicSupervisor, template(Counter, 10))
        ref = await start_child(sup, "more")
        assert await ref.call(Counter.add, 1) == 11
        assert await ref.call(more_of) == ("more",)
        kill(ref)
        await settled(sup)
        (info,) = await which_children(sup)
        assert info.ref is not None
        assert await info.ref.call(more_of) == ("more",)
        assert await count_children(sup) == (1, 1, 0, 1)
        assert (await get_childspec(sup, "Counter")).id == "Counter"
        with pytest.raises(ChildNotFound):
            await get_childspec(sup, "Other")


def more_of(counter: Counter) -> tuple[Any, ...]:
    return counter.more


async def test_a_child_that_ends_orderly_or_is_stopped_is_forgotten() -> None:
    async with inbox():
        sup = await start_link(DynamicSupervisor)
        transient = child(Counter).but(restart="transient")
        first, second = [await start_child(sup, transient) for _ in range(2)]
        await stop(first)
        await terminate_child(sup, second)
        assert await count_children(sup) == (0, 0, 0, 0)
        await terminate_child(sup, second)  # it is gone, as was wished
        assert not is_alive(second)


@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 with invalid child spec")
async def test_strangers_and_ids_are_refused() -> None:
    async with inbox():
        sup = await start_link(DynamicSupervisor)
        stranger = await start(Counter)
        for function in (terminate_child, which_child, get_childspec):
            with pytest.raises(ChildNotFound):
                await function(sup, stranger)
        for function in (terminate_child, which_child, get_childspec):
            with pytest.raises(TypeError, match="by pid or Ref"):
                await function(sup, "Counter")
        for function in (restart_child, delete_child):
            with pytest.raises(TypeError, match="not a method of DynamicSupervisor"):
                await function(sup, "Counter")
        with pytest.raises(BadSpec):
            await start_child(sup, "Counter")
        with pytest.raises(BadSpec):
            await start_child(sup, child(Counter), "more")
        with pytest.raises(BadSpec, match="significant"):
            await start_child(sup, child(Counter).but(restart="transient", significant=True))
        assert is_alive(stranger)
        assert is_alive(sup)


@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 restarting on init children counted in max_children")
async def test_max_children_counts_those_that_are_being_restarted() -> None:
    async with inbox():
        world = World()
        sup = await start_link(DynamicSupervisor, max_children=2, intensity=1000)
        spec = child(Dependent, world)
        first = await start_child(sup, spec)
        second = await start_child(sup, spec)
        with pytest.raises(MaxChildren) as caught:
            await start_child(sup, spec)
        assert caught.value.limit == 2
        assert "2 children" in str(caught.value)
        world.there = False
        kill(second)
        assert await count_children(sup) == (2, 1, 0, 2)
        with pytest.raises(MaxChildren):
            await start_child(sup, spec)
        await terminate_child(sup, second)  # by the pid that it had
        assert await count_children(sup) == (1, 1, 0, 1)
        world.there = True
        assert is_alive(await start_child(sup, spec))
        assert is_alive(first)


async def test_a_start_that_fails_or_is_ignored_leaves_nothing() -> None:
    async with inbox():
        world = World(there=False)
        sup = await start_link(DynamicSupervisor)
        with heard() as reports, pytest.raises(StartFailed) as caught:
            await start_child(sup, child(Dependent, world))
        assert isinstance(caught.value.__cause__, Broken)
        assert not of(reports, StartError)
        with pytest.raises(StartIgnored):
            await start_child(sup, child(Shy))
        assert await which_children(sup) == []


class Shy(Counter):
    """Its `init` returns `IGNORE`."""

    def init(self) -> Any:
        from greenroom.supervision import IGNORE  # noqa: PLC0415 - the only place

        return IGNORE


async def test_too_many_restarts_of_whichever_children_are_too_many() -> None:
    async with inbox() as me:
        sup = await start_link(DynamicSupervisor, intensity=3)
        for _ in range(4):
            await start_child(sup, child(Counter))
        with heard() as reports:
            for pid in await pids(sup):
                kill(pid)
            assert (await me.receive()).pid == sup.pid
        assert len(of(reports, ChildTerminated)) == 4
        assert len(of(reports, ReachedMaxRestartIntensity)) == 1


class Load:
    """A start argument of a child."""


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize(("restart", "kept"), [("permanent", True), ("temporary", False)])
async def test_how_a_temporary_child_was_started_is_not_kept(*, free: bool, restart: Any, kept: bool) -> None:
    async with inbox():
        load = Load()
        seen = weakref.ref(load)
        if free:
            sup = await start_link(DynamicSupervisor)
            ref = await start_child(sup, child(Counter, 0, load).but(restart=restart))
        else:
            sup = await start_link(DynamicSupervisor, template(Counter, 0).but(restart=restart))
            ref = await start_child(sup, load)
        await ref.call(drop)
        del load
        gc.collect()
        assert (seen() is not None) == kept


def drop(counter: Counter) -> None:
    counter.more = ()


async def test_a_supervisor_that_is_killed_while_children_restart_leaves_nothing() -> None:
    async with inbox():
        world = World()
        sup = await start_link(DynamicSupervisor, template(Dependent, world), intensity=10**6)
        refs = [await start_child(sup) for _ in range(3)]
        world.there = False
        kill(refs[0])
        await settled(sup)
        kill(sup)
        await wait_down(refs[1])
        assert not is_alive(refs[2])


async def test_a_crash_is_told_with_the_childs_spec() -> None:
    async with inbox():
        sup = await start_link(DynamicSupervisor, template(Counter).but(restart="temporary"))
        ref = await start_child(sup, 3)
        with heard() as reports:
            exit(ref, Broken())
            await settled(sup)
        (report,) = of(reports, ChildTerminated)
        assert isinstance(report.reason, Crash)
        assert (report.child.pid, report.child.start, report.child.restart) == (ref.pid, "Counter()", "temporary")
        assert await which_children(sup) == []


@pytest.mark.deep
async def test_a_hundred_thousand_children() -> None:
    many = 100_000
    async with inbox():
        sup = await start_link(DynamicSupervisor, template(Counter).but(restart="temporary"))
        refs = [await start_child(sup, number) for number in range(many)]
        total = 0
        for ref in refs:
            total += await ref.call(Counter.add, 1)
        assert total == many * (many + 1) // 2
        assert (await count_children(sup)).active == many
        for ref in refs[::1000]:
            await terminate_child(sup, ref)
        assert (await count_children(sup)).active == many - many // 1000
        await stop(sup)
        assert not any(is_alive(ref) for ref in refs)
