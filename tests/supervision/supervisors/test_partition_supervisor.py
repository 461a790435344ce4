"""The partition supervisor: every key has one child, the same in each run and for each caller."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.supervision import (
    ActorError,
    BadSpec,
    NotRegistered,
    Options,
    Partition,
    PartitionSupervisor,
    Pid,
    StartFailed,
    Supervisor,
    child,
    inbox,
    is_alive,
    kill,
    partition,
    start_link,
    terminate_child,
    which_children,
)
from greenroom.supervision.supervisors.partition_supervisor import key_hash

from .sample_children import Counter, settled


@pytest.mark.otp("partition_supervisor_test", "start_link/1 raises without name")
@pytest.mark.otp("partition_supervisor_test", "which_children/1 returns all partitions")
async def test_a_key_has_one_child_and_different_keys_share_them() -> None:
    async with inbox():
        sup = await start_link(PartitionSupervisor, child(Counter), partitions=4)
        assert [each.id for each in await which_children(sup)] == [3, 2, 1, 0]
        assert await partition(sup, "oslo").call(Counter.add, 1) == 1
        assert await partition(sup, "oslo").call(Counter.add, 1) == 2
        pids = {partition(sup, number).pid for number in range(100)}
        assert pids == {each.pid for each in await which_children(sup)}


@pytest.mark.otp("partition_supervisor_test", "start_link/1 with_arguments")
async def test_each_partition_may_have_a_spec_of_its_own() -> None:
    async with inbox():
        sup = await start_link(PartitionSupervisor, lambda number: child(Counter, number * 100), partitions=3)
        assert [await partition(sup, number).call(Counter.add, 1) for number in range(4)] == [1, 101, 201, 2]


async def test_a_partition_is_found_by_name_and_used_wherever_a_name_is() -> None:
    async with inbox():
        await Options(name="counters").start_link(PartitionSupervisor, child(Counter), partitions=2)
        key = Partition("counters", "oslo")
        assert is_alive(key)
        assert partition("counters", "oslo").pid == key.whereis()
        assert str(key) == "the partition of counters for 'oslo'"
        with pytest.raises(ActorError, match="cannot register"):
            await Options(name=key).start(Counter)


async def test_a_restarted_partition_is_found_again_and_a_stopped_one_has_no_pid() -> None:
    async with inbox():
        sup = await start_link(PartitionSupervisor, child(Counter), partitions=2)
        ref = partition(sup, 1)
        await ref.call(Counter.add, 7)
        kill(ref)
        await settled(sup)
        assert await ref.call(Counter.add, 1) == 1
        await terminate_child(sup, 1)
        with pytest.raises(NotRegistered):
            await ref.call(Counter.add, 1)
        assert not is_alive(ref)


async def test_a_missing_or_wrong_partition_supervisor_is_an_error() -> None:
    async with inbox():
        with pytest.raises(NotRegistered):
            await partition("missing", 1).call(Counter.add, 1)
        sup = await start_link(Supervisor)
        with pytest.raises(ActorError, match="no PartitionSupervisor"):
            await partition(sup, 1).call(Counter.add, 1)


@pytest.mark.otp("partition_supervisor_test", "start_link/1 raises on bad partitions")
@pytest.mark.parametrize("value", [0, -1, True, 1.5, None])
async def test_a_bad_number_of_partitions_is_refused(value: Any) -> None:
    async with inbox():
        with pytest.raises(StartFailed) as caught:
            await start_link(PartitionSupervisor, child(Counter), partitions=value)
        assert isinstance(caught.value.__cause__, BadSpec)
        assert caught.value.__cause__.field == "partitions"


@pytest.mark.otp("partition_supervisor_test", "start_link/1 raises without child_spec")
@pytest.mark.otp("partition_supervisor_test", "start_link/1 raises on bad with_arguments")
@pytest.mark.otp("partition_supervisor_test", "start_link/1 raises with bad auto_shutdown")
@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ([], {}, "missing 1 required positional argument: 'child'"),
        ([123], {}, "child must be a ChildSpec"),
        ([lambda: None], {}, "takes 0 positional arguments but 1 was given"),
        ([child(Counter)], {"auto_shutdown": "any_significant"}, "unexpected keyword argument 'auto_shutdown'"),
        ([child(Counter).but(restart="transient", significant=True)], {}, "significant must be False"),
    ],
)
async def test_arguments_that_make_no_partitions_are_refused(args: Any, options: Any, message: str) -> None:
    async with inbox():
        with pytest.raises(StartFailed) as caught:
            await start_link(PartitionSupervisor, *args, partitions=2, **options)
        assert message in str(caught.value.__cause__)


@pytest.mark.parametrize("key", [object(), [1], {"a": 1}, ("a", object())])
def test_a_key_that_is_not_the_same_in_each_run_is_refused(key: object) -> None:
    with pytest.raises(TypeError, match="cannot choose a partition"):
        partition("counters", key)


@pytest.mark.parametrize(
    ("key", "number"),
    [
        (7, 7),
        (True, 1),
        (-1, -1),
        ("oslo", 15971874),
        (b"oslo", 15971874),
        (None, 3751981041),
        (1.5, 2270993338),
        ((), 0),
        (("oslo", 1), 2405242600),
        (Pid("node", 12345, 42), 42),
    ],
)
def test_a_key_has_the_same_number_for_ever(key: object, number: int) -> None:
    assert key_hash(key) == number


@given(st.lists(st.text(), min_size=200, max_size=200, unique=True))
def test_keys_are_spread(keys: list[str]) -> None:
    assert len({key_hash(key) % 4 for key in keys}) == 4
