"""Fair queues: owners take turns, only the first item of each is examined, and a full queue displaces the owner with most items."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.supervision.fair_queue import FairQueue, FairSemaphore, QueueFull

if TYPE_CHECKING:
    from collections.abc import Sequence


def queue_of(items: Sequence[tuple[str, int]]) -> FairQueue[tuple[str, int]]:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for item in items:
        queue.add(item[0], item)
    return queue


def test_an_owner_with_a_thousand_items_delays_another_by_one() -> None:
    queue = queue_of([("greedy", n) for n in range(1000)])
    queue.add("other", ("other", 0))
    assert [queue.take() for _ in range(4)] == [("greedy", 0), ("other", 0), ("greedy", 1), ("greedy", 2)]
    assert (len(queue), queue.count("greedy"), queue.count("other")) == (997, 997, 0)


def test_only_the_first_of_each_owner_is_looked_at() -> None:
    queue = queue_of([(owner, n) for owner in ("a", "b", "c") for n in range(1000)])
    looked: list[tuple[str, int]] = []

    def never(item: tuple[str, int]) -> bool:
        looked.append(item)
        return False

    assert queue.take(never) is None
    assert looked == [("a", 0), ("b", 0), ("c", 0)]
    assert queue.take(lambda item: item[0] == "b") == ("b", 0)
    assert queue.take() == ("a", 0)  # the owner that was passed over has not lost its turn


def test_an_item_put_back_is_next_and_then_its_owner_goes_last() -> None:
    queue = queue_of([("a", 1), ("b", 1), ("a", 2)])
    queue.add_first("a", ("a", 0))
    assert [queue.take() for _ in range(5)] == [("a", 0), ("b", 1), ("a", 1), ("a", 2), None]


def test_a_full_queue_takes_the_latest_of_the_owner_with_most() -> None:
    queue = queue_of([("a", 1), ("a", 2), ("a", 3), ("b", 1)])
    assert queue.displace("b") == ("a", 3)
    assert queue.displace("b") is None  # both would have two
    assert queue.displace("c") == ("a", 2)
    assert queue.displace("c") is None
    assert queue.displace("a") is None
    assert sorted(queue) == [("a", 1), ("b", 1)]
    assert FairQueue[int]().displace("a") is None


def test_a_removed_item_is_not_taken() -> None:
    queue = queue_of([("a", 1), ("a", 2), ("b", 1)])
    assert ("a", 1) in queue
    assert queue.remove(("a", 1))
    assert not queue.remove(("a", 1))
    assert ("a", 1) not in queue
    assert queue.remove(("b", 1))
    assert [queue.take(), queue.take()] == [("a", 2), None]
    assert not queue._waiting


@given(st.lists(st.sampled_from("abcd"), max_size=40))
def test_no_owner_is_more_than_one_ahead_of_another_that_still_waits(owners: list[str]) -> None:
    queue = queue_of([(owner, n) for n, owner in enumerate(owners)])
    taken: dict[str, int] = dict.fromkeys("abcd", 0)
    while (item := queue.take()) is not None:
        taken[item[0]] += 1
        waiting = [owner for owner in "abcd" if queue.count(owner)]
        assert all(taken[item[0]] - taken[owner] <= 1 for owner in waiting)
    assert sum(taken.values()) == len(owners)


# --- turns


async def test_a_single_owner_has_half_of_the_turns_and_the_others_half_of_the_rest() -> None:
    turns, going, go = FairSemaphore(8, 100), list[str](), asyncio.Event()

    async def take(owner: str) -> None:
        async with turns.turn(owner):
            going.append(owner)
            await go.wait()

    tasks = [asyncio.create_task(take(owner)) for owner in (*["a"] * 20, *["b"] * 20, *["c"] * 20)]
    await settled()
    assert [going.count(each) for each in "abc"] == [4, 2, 1]
    go.set()
    await asyncio.gather(*tasks)
    assert len(going) == 60
    assert (turns._total, turns._taken, len(turns._waiting)) == (0, {}, 0)


async def test_a_turn_that_is_given_up_goes_on_and_a_full_queue_takes_from_the_owner_with_most() -> None:
    turns, going = FairSemaphore(2, 3), list[str]()
    go = asyncio.Event()

    async def take(owner: str) -> None:
        async with turns.turn(owner):
            going.append(owner)
            await go.wait()

    first = asyncio.create_task(take("a"))
    waiting = [asyncio.create_task(take("a")) for _ in range(3)]
    await settled()
    assert going == ["a"]
    one_too_many = asyncio.create_task(take("a"))
    other = [asyncio.create_task(take("b")) for _ in range(2)]
    await settled()
    assert going == ["a", "b"]
    with pytest.raises(QueueFull):
        await one_too_many
    with pytest.raises(QueueFull):  # the latest of those that waited
        await waiting[2]
    waiting[0].cancel()
    first.cancel()
    other[0].cancel()
    await settled()
    assert sorted(going) == ["a", "a", "b", "b"]
    go.set()
    await asyncio.wait([first, *waiting, *other])
    assert (turns._total, turns._taken, len(turns._waiting)) == (0, {}, 0)


@pytest.mark.parametrize("moment", ["after its turn was given", "before"])
async def test_a_wait_that_is_cancelled_as_another_leaves_keeps_no_turn(moment: str) -> None:
    turns, go = FairSemaphore(1, 4), asyncio.Event()

    async def take(owner: str) -> None:
        async with turns.turn(owner):
            await go.wait()

    first = asyncio.create_task(take("a"))
    await settled()
    other = asyncio.create_task(take("b"))
    await settled()
    go.set()
    if moment != "before":
        await asyncio.sleep(0)  # `first` has left; `other` has its turn, and has not run yet
        assert (turns._total, other.done()) == (1, False)
    other.cancel()
    await first
    with pytest.raises(asyncio.CancelledError):
        await other
    assert (turns._total, turns._taken, len(turns._waiting)) == (0, {}, 0)


async def test_leaving_examines_only_the_owners_that_can_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, looked = FairSemaphore(4, 2000), 0
    may = FairSemaphore._may

    def counted(self: FairSemaphore, owner: str) -> bool:
        nonlocal looked
        looked += 1
        return may(self, owner)

    async def take(owner: str) -> None:
        async with turns.turn(owner):
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(take(f"owner {n}")) for n in range(1000)]
    monkeypatch.setattr(FairSemaphore, "_may", counted)
    await asyncio.gather(*tasks)
    assert looked <= 4 * 1000


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
