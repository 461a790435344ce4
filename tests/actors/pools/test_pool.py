"""The options of a pool are checked where they are written."""

from __future__ import annotations

import os
from typing import Any

import pytest

from greenroom.actors.pools import pool_options as pools
from greenroom.actors.pools.pool_options import MIB, BadPool, Pool

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"size": 0}, "size must be a whole number, 1 or more or None"),
    ({"size": 2.0}, "size must be"),
    ({"size": True}, "size must be"),
    ({"warm": -1}, "warm must be a whole number, 0 or more"),
    ({"size": 2, "warm": 3}, "warm must be at most its size, 2"),
    ({"max_calls": 0}, "max_calls must be"),
    ({"memory": 1}, "memory must be a whole number of bytes, 64 MiB .* or more, or None for no limit, not 1$"),
    ({"memory": 60 * MIB}, "memory must be .* not 60 MiB$"),
    ({"memory": "all"}, "memory must be"),
    ({"cpu": 0}, "cpu must be a number of seconds, more than 0"),
    ({"cpu": "1"}, "cpu must be"),
    ({"queue": -1}, "queue must be"),
    ({"idle": 0}, "idle must be"),
    ({"start": float("inf")}, "start must be"),
]


@pytest.mark.parametrize(("words", "why"), WRONG)
def test_a_pool_that_cannot_be_is_refused(words: dict[str, Any], why: str) -> None:
    with pytest.raises(BadPool, match=why):
        Pool(**words)


def test_a_pool_without_words_is_as_large_as_the_machine() -> None:
    pool = Pool()
    assert pool.most == len(os.sched_getaffinity(0))
    assert pool.memory_limit == pools.memory_of_the_machine() // 2 > 0
    assert Pool(memory=None).memory_limit is None
    assert Pool(memory=100 * MIB).memory_limit == 100 * MIB


def test_two_pools_with_the_same_words_are_two() -> None:
    assert Pool() != Pool()
    assert Pool().serial != Pool().serial
