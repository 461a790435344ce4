"""When a worker counts as hanging: it has a call, had time to start it, and has not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.pools.scheduler import WorkerState, find_hung_workers

if TYPE_CHECKING:
    from collections.abc import Iterable


class FakeCall:
    def __init__(self, number: int, moves: int = 0, *, is_unwanted: bool = False) -> None:
        self.number, self.moves, self.is_unwanted = number, moves, is_unwanted


class StartLocks:
    """Its worker has begun these."""

    def __init__(self, *begun: int) -> None:
        self.begun = begun

    def take(self, call: int) -> bool:
        return call not in self.begun


def worker(*calls: FakeCall, begun: tuple[int, ...] = (), locks: Any = ...) -> WorkerState:
    no_proxy: Any = None
    made = WorkerState(no_proxy)
    made.locks = StartLocks(*begun) if locks is ... else locks  # type: ignore[assignment]
    made.calls.extend(calls)  # type: ignore[arg-type]
    return made


def numbers(calls: Iterable[Any]) -> list[int]:
    return [call.number for call in calls]


def test_a_worker_that_starts_no_call_hangs_and_its_calls_move_to_others() -> None:
    first, second, third = FakeCall(1), FakeCall(2), FakeCall(3)
    hung = worker(first, second, third)
    check = find_hung_workers([hung], 1.5, late=False)
    assert check.hung == [hung]
    assert numbers(check.back) == [3, 2, 1]
    assert not hung.calls
    assert hung.is_leaving
    assert (first.moves, second.moves) == (1, 0)


def test_a_worker_that_has_started_its_call_is_checked_once() -> None:
    good = worker(FakeCall(1), FakeCall(2), begun=(1,))
    assert find_hung_workers([good], 1.5, late=False) == ([], [], False)
    assert len(good.calls) == 2
    good.locks = None  # it is not asked
    good.locks = StartLocks()  # type: ignore[assignment]
    assert find_hung_workers([good], 60, late=False) == ([], [], False)


def test_a_worker_that_starts_a_call_during_the_check_is_not_ended() -> None:
    awake = worker(FakeCall(1), FakeCall(2), begun=(2,))
    check = find_hung_workers([awake], 1.5, late=False)
    assert check.hung == []
    assert numbers(check.back) == [1]
    assert numbers(awake.calls) == [2]
    assert awake.since == 1.5
    assert not awake.is_leaving


@pytest.mark.parametrize(("moves", "longest"), [(0, 1.0), (1, 2.0), (3, 8.0)])
def test_where_all_are_slow_each_next_one_has_longer(moves: int, longest: float) -> None:
    slow = worker(FakeCall(1, moves))
    assert find_hung_workers([slow], longest - 0.01, late=False) == ([], [], True)
    assert find_hung_workers([slow], longest, late=False).hung == [slow]


def test_a_scheduler_that_was_held_up_ends_no_worker() -> None:
    slow = worker(FakeCall(1))
    assert find_hung_workers([slow], 60, late=True) == ([], [], True)


def test_a_worker_whose_call_cannot_move_is_not_checked() -> None:
    idle, unknown, unwanted, leaving = (
        worker(),
        worker(FakeCall(1), locks=None),
        worker(FakeCall(1, is_unwanted=True)),
        worker(FakeCall(1)),
    )
    leaving.is_leaving = True
    assert find_hung_workers([idle, unknown, unwanted, leaving], 60, late=False) == ([], [], False)
