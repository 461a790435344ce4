"""The cost of a peer's bytes grows linearly: the short form, which counts Python steps; `make fuzz` counts instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.example_counts import one_in

from .linearity import SIZES, Cost, Reader, instructions, readers, repeated, run, short, steps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

READERS = readers()
SHAPES: Mapping[str, Callable[[int], bytes]] = {"x": lambda size: repeated(b"x", size)}
CASES = [(reader, shape) for reader in READERS.values() for shape in reader.shapes]


@pytest.mark.parametrize(
    ("reader", "shape"), one_in(4, CASES), ids=[f"{reader.name} {shape}" for reader, shape in CASES]
)
def test_steps_grow_with_the_size(reader: Reader, shape: str) -> None:
    cost = short(reader, shape)
    assert cost.linear, str(cost)


def test_each_family_of_readers_is_there() -> None:
    assert {
        "requests",
        "answers",
        "mirrored",
        "preflights",
        "annotations",
        "states",
        "retries",
        "events",
        "tokens",
        "proofs",
        "uris",
        "names",
        "updates",
        "mentions",
        "schemas",
        "checks",
        "written",
    } <= set(READERS)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_reader_has_inputs_of_the_sizes_it_names(reader: Reader) -> None:
    assert len(reader.sizes) == len(SIZES)
    assert list(reader.sizes) == sorted(set(reader.sizes))
    for made in reader.shapes.values():
        assert len(repr(made(reader.sizes[1]))) > len(repr(made(reader.sizes[0])))


def test_a_loop_that_looks_at_everything_again_is_noticed() -> None:
    def read(data: bytes) -> int:
        return sum(1 for end in range(0, len(data), 16) for _ in data[:end])

    cost = short(Reader("slow", read, SHAPES), "x")
    assert not cost.linear
    assert cost.growth > 2.5


def test_a_loop_that_looks_once_is_linear() -> None:
    def read(data: bytes) -> int:
        return sum(1 for _ in data)

    cost = short(Reader("quick", read, SHAPES), "x")
    assert cost.linear
    assert 0.9 < cost.growth < 1.1


def test_steps_are_the_same_each_time() -> None:
    assert len({steps(lambda: sum(1 for _ in range(100))) for _ in range(5)}) == 1
    assert steps(lambda: sum(1 for _ in range(200))) > steps(lambda: sum(1 for _ in range(100))) > 100


@pytest.mark.parametrize(
    ("counts", "linear"),
    [
        ((1000, 4000, 16000, 64000), True),
        ((1000, 4000, 16000, 73000), False),
        ((101_000, 104_000, 116_000, 164_000), True),  # most of the cost is constant
        ((1000, 1000, 1000, 1000), True),  # refused for its length
        ((1000, 1000, 1000, 500_000), False),
        ((1000, 4100, 16900, 270_000), False),
        ((1000, 16000, 256_000, 4_096_000), False),
    ],
)
def test_growth_is_judged_by_what_a_byte_costs_at_first(counts: tuple[int, ...], linear: int) -> None:
    assert Cost("any", "any", SIZES, counts).linear == linear


def test_a_refused_input_has_a_cost_and_other_errors_propagate() -> None:
    reader = Reader("strict", int, {}, (ValueError,))
    run(reader, "no number")
    with pytest.raises(TypeError):
        run(reader, None)


def test_without_valgrind_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="apt-get install valgrind"):
        next(instructions(["events"]))


def test_a_unit_is_repeated_between_two_ends() -> None:
    assert repeated(b"ab", 9, b"<", b">") == b"<ababab>"
    assert repeated(b"ab", 1, b"<", b">") == b"<>"
