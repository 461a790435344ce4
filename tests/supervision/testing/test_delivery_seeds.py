"""A seed determines the delivery order and replays it; Hypothesis tries orders and finds the simplest that fails."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, find, given, settings
from tests.example_counts import examples

from greenroom.supervision import GenServer, Node, current_node, send, start
from greenroom.supervision.testing import Probe, Seed, run, seeds

if TYPE_CHECKING:
    from collections.abc import Sequence

HANDS = 5


class Hand(GenServer):
    def __init__(self, number: int, probe: Probe) -> None:
        self.number = number
        self.probe = probe

    def wave(self) -> None:
        send(self.probe, self.number)


async def waves() -> Sequence[int]:
    """The order in which five processes handle simultaneous messages."""
    probe = Probe()
    hands = [await start(Hand, number, probe) for number in range(HANDS)]
    for hand in hands:
        hand.cast(Hand.wave)
    return [await probe.expect(int) for _ in hands]


def test_a_seed_replays_its_order() -> None:
    for number in range(1, 20):
        assert run(waves, seed=number) == run(waves, seed=Seed(number))


def test_different_seeds_are_different_orders() -> None:
    assert len({tuple(run(waves, seed=number)) for number in range(1, 30)}) > 10


def test_the_plain_order_is_number_zero() -> None:
    assert run(waves, seed=0) == run(waves) == list(range(HANDS))


def test_a_source_of_ones_own_decides_too() -> None:
    assert run(waves, seed=random.Random(7)) == run(waves, seed=Seed(7))


def test_a_drawn_seed_does_not_depend_on_the_state_of_random() -> None:
    random.seed(1)
    first = Seed.draw()
    random.seed(1)
    assert Seed.draw() != first
    assert first == Seed(first.number)
    assert hash(first) == hash(Seed(first.number))
    assert repr(Seed(3)) == "Seed(3)"


def test_messages_between_two_processes_stay_in_order_with_any_seed() -> None:
    async def main() -> list[int]:
        probe = Probe()
        for number in range(20):
            send(probe, number)
        return [await probe.expect(int) for _ in range(20)]

    for number in range(1, 10):
        assert run(main, seed=number) == list(range(20))


# --- Hypothesis


@given(seeds())
@settings(max_examples=examples(20))
async def test_each_example_has_a_node_of_its_own_in_the_order_that_was_drawn(seed: Seed) -> None:
    node = current_node()
    assert len(node.processes) == 0
    assert node.loop.time() == 0
    assert await waves() == run_apart(seed)


def run_apart(seed: Seed) -> Sequence[int]:
    """Run in a loop of another thread, since this thread's loop is running."""
    found: list[Sequence[int]] = []
    thread = threading.Thread(target=lambda: found.append(run(waves, seed=seed, leaks=False)))
    thread.start()
    thread.join()
    return found[0]


@given(seeds(each_choice=True))
@settings(max_examples=examples(20))
async def test_hypothesis_can_make_each_choice(seed: Seed) -> None:
    assert sorted(await waves()) == list(range(HANDS))


def test_a_failure_shrinks_to_the_simplest_order() -> None:
    quick = settings(phases=(Phase.generate, Phase.shrink), database=None, derandomize=True)
    assert find(seeds(), lambda seed: len(run(waves, seed=seed)) == HANDS, settings=quick) == Seed(0)


def test_shrinking_each_choice_moves_no_more_than_has_to_be() -> None:
    quick = settings(phases=(Phase.generate, Phase.shrink), database=None, derandomize=True)
    orders: list[Sequence[int]] = []

    def last_comes_before_the_first(seed: Seed) -> bool:
        order = run(waves, seed=seed, leaks=False)
        wrong = order.index(HANDS - 1) < order.index(0)
        if wrong:
            orders.append(order)
        return wrong

    find(seeds(each_choice=True), last_comes_before_the_first, settings=quick)
    assert orders[-1] == [1, 2, 3, 4, 0]  # one single choice: the second goes first, and the first has lost its turn


@pytest.mark.greenroom(seed=11)
async def test_the_marker_chooses_an_order(node: Node) -> None:
    assert node.seed is not None


@pytest.mark.greenroom(seeds=3)
async def test_the_marker_tries_several_orders(node: Node) -> None:
    assert node.seed is not None
    assert sorted(await waves()) == list(range(HANDS))
