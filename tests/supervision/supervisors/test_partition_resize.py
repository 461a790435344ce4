"""Partition supervisors as a whole: their names and counts, their end, and how many partitions share the keys."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.supervision import (
    ActorError,
    BadSpec,
    ChildNotFound,
    DynamicSupervisor,
    NotRegistered,
    Options,
    PartitionSupervisor,
    Ref,
    Registry,
    StartFailed,
    child,
    count_children,
    count_partitions,
    draw,
    inbox,
    is_alive,
    kill,
    partition,
    resize_partitions,
    restart_child,
    start,
    start_child,
    start_link,
    stop,
    tree,
    via,
    whereis,
    which_children,
)

from .sample_children import Broken, Counter, Dependent, Polite, World, settled


async def started(partitions: int = 8, **options: Any) -> Ref[PartitionSupervisor]:
    """One of counters, under a name."""
    return await Options(name="counters").start_link(
        PartitionSupervisor, child(Counter), partitions=partitions, **options
    )


def reached(sup: Any, keys: int = 8) -> set[Any]:
    """The partitions of the first keys."""
    return {partition(sup, key).pid for key in range(keys)}


@pytest.mark.otp("partition_supervisor_test", "start_link/1 on success with atom name")
async def test_many_keys_are_spread_over_supervisors_that_start_a_child_for_each() -> None:
    async with inbox():
        await Options(name="sups").start_link(PartitionSupervisor, child(DynamicSupervisor), partitions=4)
        assert count_partitions("sups") == 4
        for key in range(100):
            await start_child(partition("sups", str(key)), child(Counter, key))
        totals: list[int] = []
        for each in await which_children("sups"):
            assert each.pid is not None
            found = await which_children(each.pid)
            assert found
            totals += [await Ref[Counter](one.pid).call(Counter.add, 0) for one in found if one.pid is not None]
        assert sorted(totals) == list(range(100))


@pytest.mark.otp("partition_supervisor_test", "start_link/1 on success with via name")
@pytest.mark.otp("partition_supervisor_test", "stop/1 with via tuple")
@pytest.mark.otp("partition_supervisor_test", "count_children/1 with via tuple")
async def test_a_partition_supervisor_may_have_a_name_in_a_registry() -> None:
    registry = await start(Registry)
    async with inbox():
        name = via(registry, "counters")
        ref = await Options(name=name).start_link(PartitionSupervisor, child(Counter, 5), partitions=2)
        assert count_partitions(name) == 2
        assert await count_children(name) == (2, 2, 0, 2)
        assert await partition(name, 0).call(Counter.add, 1) == 6
        await stop(Ref[Any](name))
        assert not is_alive(ref)


@pytest.mark.otp("partition_supervisor_test", "stop/1 is synchronous")
async def test_a_partition_supervisor_and_its_partitions_are_stopped_when_stop_returns() -> None:
    async with inbox():
        ref = await Options(name="counters").start_link(PartitionSupervisor, child(Polite, 1.0), partitions=3)
        pids = reached(ref)
        await stop(Ref[Any]("counters"))
        assert whereis("counters") is None
        assert not any(is_alive(pid) for pid in pids)


@pytest.mark.otp("partition_supervisor_test", "partitions/1 raises noproc for unknown atom partition supervisor")
@pytest.mark.otp("partition_supervisor_test", "partitions/1 raises noproc for unknown via partition supervisor")
@pytest.mark.otp("partition_supervisor_test", "count_children/1 raises noproc for unknown partition supervisor")
async def test_a_missing_partition_supervisor_is_not_counted() -> None:
    registry = await start(Registry)
    for name in ("missing", via(registry, "missing")):
        with pytest.raises(NotRegistered):
            count_partitions(name)
        with pytest.raises(NotRegistered):
            await count_children(name)
        with pytest.raises(NotRegistered):
            await resize_partitions(name, 1)


@pytest.mark.otp("partition_supervisor_test", "count_children/1 with workers")
@pytest.mark.otp("partition_supervisor_test", "count_children/1 with supervisors")
@pytest.mark.parametrize(("spec", "supervisors"), [(child(Counter), 0), (child(DynamicSupervisor), 3)])
async def test_its_partitions_are_counted_as_children(spec: Any, supervisors: int) -> None:
    async with inbox():
        sup = await start_link(PartitionSupervisor, spec, partitions=3)
        assert await count_children(sup) == (3, 3, supervisors, 3 - supervisors)


@pytest.mark.otp("partition_supervisor_test", "resize!/1 resizes the number of children")
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
@pytest.mark.parametrize("sizes", [range(8, -1, -1), range(9), [3, 0, 8, 5, 1, 7, 2, 6, 4, 4]])
async def test_any_number_of_partitions_up_to_the_first_may_share_the_keys(sizes: Any, restart: Any) -> None:
    async with inbox():
        sup = await start_link(PartitionSupervisor, child(Counter).but(restart=restart), partitions=8)
        before = 8
        for size in sizes:
            assert await resize_partitions(sup, size) == before
            assert count_partitions(sup) == before - (before - size) == size
            specs = size if restart == "temporary" else 8
            assert await count_children(sup) == (specs, size, 0, specs)
            if size:
                pids = reached(sup)
                assert len(pids) == size
                assert all(is_alive(pid) for pid in pids)
            before = size


@pytest.mark.otp("partition_supervisor_test", "resize!/1 raises on lookup after resizing to zero")
async def test_no_partition_has_a_key_after_resizing_to_zero() -> None:
    async with inbox():
        sup = await started()
        assert await resize_partitions("counters", 0) == 8
        with pytest.raises(ActorError, match=r"no partition has 'oslo': .* was resized to zero partitions"):
            partition(sup, "oslo").cast(Counter.add, 1)
        assert await resize_partitions(sup, 8) == 0
        assert await partition(sup, "oslo").call(Counter.add, 1) == 1


@pytest.mark.otp("partition_supervisor_test", "resize!/1 raises if trying to increase the number of partitions")
@pytest.mark.parametrize("value", [9, -1, 1.5, None, True])
async def test_more_partitions_than_it_was_started_with_are_refused(value: Any) -> None:
    async with inbox():
        sup = await started()
        with pytest.raises(BadSpec, match="partitions must be a whole number, 0 to 8"):
            await resize_partitions(sup, value)
        assert count_partitions(sup) == 8


async def test_keys_move_before_their_partition_is_stopped() -> None:
    async with inbox():
        sup = await Options(name="counters").start_link(PartitionSupervisor, child(Polite, 2.0), partitions=2)
        first, second = partition(sup, 0).pid, partition(sup, 1).pid
        shrinking = asyncio.create_task(resize_partitions(sup, 1))
        await asyncio.sleep(1)
        assert is_alive(second)
        assert partition(sup, 1).pid == first
        assert await partition(sup, 1).call(Counter.add, 1) == 1
        await shrinking
        assert not is_alive(second)


async def test_a_partition_that_does_not_come_up_gets_no_keys() -> None:
    async with inbox():
        world = World()
        sup = await start_link(PartitionSupervisor, child(Dependent, world), partitions=3)
        await resize_partitions(sup, 1)
        world.there = False
        with pytest.raises(StartFailed) as failed:
            await resize_partitions(sup, 3)
        assert isinstance(failed.value.__cause__, Broken)
        assert count_partitions(sup) == 1
        assert len(reached(sup)) == 1
        world.there = True
        assert await resize_partitions(sup, 3) == 1
        assert len(reached(sup)) == 3


async def test_a_partition_whose_init_is_ignored_keeps_its_keys_without_a_pid() -> None:
    async with inbox():
        world = World()
        sup = await start_link(PartitionSupervisor, child(Shy, world).but(restart="temporary"), partitions=2)
        await resize_partitions(sup, 0)
        world.there = False
        await resize_partitions(sup, 2)
        assert count_partitions(sup) == 2
        assert not any(is_alive(partition(sup, key)) for key in range(2))


class Shy(Counter):
    """Runs only if its dependency is available."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def init(self) -> Any:
        from greenroom.supervision import IGNORE  # noqa: PLC0415 - the only place

        return None if self.world.there else IGNORE


async def test_a_partition_started_by_hand_is_taken_as_it_is() -> None:
    async with inbox():
        sup = await started(2)
        await resize_partitions(sup, 0)
        one = await restart_child(sup, 1)
        await resize_partitions(sup, 2)
        assert partition(sup, 1).pid == one.pid
        with pytest.raises(ChildNotFound):
            await restart_child(sup, 2)


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
async def test_a_restart_does_not_bring_back_those_that_are_too_many(strategy: Any) -> None:
    async with inbox():
        sup = await started(4, strategy=strategy)
        await resize_partitions(sup, 2)
        before = reached(sup)
        kill(partition(sup, 0))
        await settled(sup)
        assert await count_children(sup) == (4, 2, 0, 4)
        assert len(reached(sup) - before) == (1 if strategy == "one_for_one" else 2)
        assert "2 partitions" in draw(tree(sup))
