"""When a worker hangs, as far as that can be seen from home: it has a call, had time to begin with it, and has not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.pools.scheduler import Hand, judged

if TYPE_CHECKING:
    from collections.abc import Iterable


class Order:
    def __init__(self, number: int, moved: int = 0, *, is_unwanted: bool = False) -> None:
        self.number, self.moved, self.is_unwanted = number, moved, is_unwanted


class Claims:
    """Its worker has begun these."""

    def __init__(self, *begun: int) -> None:
        self.begun = begun

    def take(self, call: int) -> bool:
        return call not in self.begun


def hand(*orders: Order, begun: tuple[int, ...] = (), claims: Any = ...) -> Hand:
    nobody: Any = None
    made = Hand(nobody)
    made.claims = Claims(*begun) if claims is ... else claims  # type: ignore[assignment]
    made.orders.extend(orders)  # type: ignore[arg-type]
    return made


def numbers(orders: Iterable[Any]) -> list[int]:
    return [order.number for order in orders]


def test_one_that_begins_with_nothing_hangs_and_its_calls_are_for_others() -> None:
    first, second, third = Order(1), Order(2), Order(3)
    hung = hand(first, second, third)
    verdict = judged([hung], 1.5, late=False)
    assert verdict.hung == [hung]
    assert numbers(verdict.back) == [3, 2, 1]
    assert not hung.orders
    assert hung.is_leaving
    assert (first.moved, second.moved) == (1, 0)


def test_one_that_has_begun_is_asked_once() -> None:
    good = hand(Order(1), Order(2), begun=(1,))
    assert judged([good], 1.5, late=False) == ([], [], False)
    assert len(good.orders) == 2
    good.claims = None  # it is not asked
    good.claims = Claims()  # type: ignore[assignment]
    assert judged([good], 60, late=False) == ([], [], False)


def test_one_that_comes_to_itself_in_that_moment_is_let_alone() -> None:
    awake = hand(Order(1), Order(2), begun=(2,))
    verdict = judged([awake], 1.5, late=False)
    assert verdict.hung == []
    assert numbers(verdict.back) == [1]
    assert numbers(awake.orders) == [2]
    assert awake.since == 1.5
    assert not awake.is_leaving


@pytest.mark.parametrize(("moved", "longest"), [(0, 1.0), (1, 2.0), (3, 8.0)])
def test_where_all_are_slow_each_next_one_has_longer(moved: int, longest: float) -> None:
    slow = hand(Order(1, moved))
    assert judged([slow], longest - 0.01, late=False) == ([], [], True)
    assert judged([slow], longest, late=False).hung == [slow]


def test_whoever_was_held_up_judges_nobody() -> None:
    slow = hand(Order(1))
    assert judged([slow], 60, late=True) == ([], [], True)


def test_nobody_is_judged_whose_call_could_not_be_given_to_another() -> None:
    idle, unknown, unwanted, leaving = (
        hand(),
        hand(Order(1), claims=None),
        hand(Order(1, is_unwanted=True)),
        hand(Order(1)),
    )
    leaving.is_leaving = True
    assert judged([idle, unknown, unwanted, leaving], 60, late=False) == ([], [], False)
