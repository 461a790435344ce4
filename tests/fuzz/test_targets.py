"""The fuzz targets without a fuzzer: their seeds and mutations by Hypothesis violate no property.

So a target stays valid between two runs of `make fuzz`, and a finding can be added here as an example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from .catalogue import TARGETS
from .fuzz_target import dictionary, numbers, pieces

if TYPE_CHECKING:
    from hypothesis.strategies import DataObject

    from .fuzz_target import Target

EACH = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


def mutated(target: Target) -> st.SearchStrategy[bytes]:
    """Mutated seeds of a target."""
    scraps = st.sampled_from([*target.words, b""]) | st.binary(max_size=3)
    return st.builds(
        _damaged,
        st.sampled_from(list(target.seeds())),
        st.lists(st.tuples(st.integers(0, target.longest), st.integers(0, 8), scraps), max_size=6),
    ).map(lambda data: data[: target.longest])


def _damaged(data: bytes, damage: list[tuple[int, int, bytes]]) -> bytes:
    for place, length, scrap in damage:
        at = place % (len(data) + 1)
        data = data[:at] + scrap + data[at + length :]
    return data


@EACH
def test_the_seeds_of_a_target_violate_no_property(target: Target) -> None:
    seeds = list(target.seeds())
    assert len(seeds) > 4
    assert max(map(len, seeds)) <= target.longest
    for seed in seeds:
        target.check(seed)


@pytest.mark.deep
@EACH
@settings(max_examples=examples(100))
@given(data=st.data())
def test_damage_breaks_no_promise(target: Target, data: DataObject) -> None:
    target.check(data.draw(mutated(target)))


@EACH
@settings(max_examples=examples(50))
@given(data=st.binary(max_size=100))
def test_no_bytes_break_a_promise(target: Target, data: bytes) -> None:
    target.check(data)


@given(st.binary(max_size=100), st.binary(min_size=1, max_size=4))
def test_pieces_are_the_whole(data: bytes, steps: bytes) -> None:
    assert b"".join(pieces(data, steps)) == data
    assert all(pieces(data, steps))


def test_numbers_are_in_front() -> None:
    assert numbers(b"abc", 2) == (b"ab", b"c")
    assert numbers(b"a", 2) == (b"a\0", b"")


def test_words_are_written_as_the_fuzzer_reads_them() -> None:
    assert dictionary([b'a"\n', b""]) == '"\\x61\\x22\\x0a"\n'
