"""The simulated hash tables agree with Python's, and keys that are chosen to fill them are refused."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

from greenroom.protocol.hash_collisions import DictTable, SetTable
from greenroom.protocol.type_schemas import Mismatch, typed_schema_of
from greenroom.protocol.validation_errors import StepMeter

SIZE = 1 << 13
ENOUGH = 1 << 40
RANDOM = random.Random(1).sample(range(1 << 40), 20_000)
PATTERNS = [
    list(range(20_000)),
    RANDOM,
    [each << 20 for each in range(20_000)],
    [86_400_000 * each for each in range(20_000)],
    [-(each**2) - 3 for each in range(20_000)],
]


def walk(key: int) -> list[int]:
    """All slots that a key probes in a dict, until its hash is used up: written independently of the product."""
    slots = [key % SIZE]
    while key:
        key >>= 5
        slots.append((5 * slots[-1] + key + 1) % SIZE)
    return slots


def chosen(room: int) -> list[int]:
    """Keys with different hashes that fill one cycle of slots, and keys that then probe most of it."""
    at = 0
    circle: dict[int, int] = {}
    while len(circle) < room * 0.62:
        circle[at] = len(circle)
        at = (5 * at + 1) % SIZE
    found: list[int] = []
    key = SIZE
    while len(circle) + len(found) < room:
        way = walk(key)
        if all(slot in circle for slot in way) and circle[way[-1]] < len(circle) * 0.5:
            found.append(key)
        key += 1
    return [*circle, *found]


def chosen_for_sets(size: int) -> list[int]:
    """The same for a set: rows of ten slots along the cycle, a full part of the table, and keys that probe from there into the cycle."""
    mask = size - 1
    taken = bytearray(size + 16)
    dense, rows = size * 2 // 5, size * 3 // 20
    taken[:dense] = bytes([1]) * dense
    circle: dict[int, int] = {}
    at = dense
    while rows > 0:
        circle[at] = len(circle)
        for slot in range(at, min(at + 10, size)):
            rows -= not taken[slot]
            taken[slot] = 1
        at = (5 * at + 1) & mask
    full = [slot + 10 > size or all(taken[slot : slot + 10]) for slot in range(size)]
    full = [is_full and bool(taken[slot]) for slot, is_full in enumerate(full)]
    begin = {slot for slot, place in circle.items() if place < len(circle) * 0.7}
    found: list[int] = []
    for key in range(size, size << 5):
        at = key & mask
        if (
            full[at]
            and full[at := (5 * at + (key >> 5) + 1) & mask]
            and full[at := (5 * at + (key >> 10) + 1) & mask]
            and (5 * at + (key >> 15) + 1) & mask in begin
        ):
            found.append(key)
            if len(found) > size // 25:
                break
    return [*(slot for slot in range(size) if taken[slot]), *found]


def probes(table: type[DictTable], keys: list[int]) -> int:
    made = table(StepMeter(ENOUGH))
    return sum([made.add(hash(key), known=True) for key in keys])


FOR_DICTS = chosen(SIZE * 2 // 3)
FOR_SETS = chosen_for_sets(1 << 15)


def test_tables_grow_when_pythons_own_do() -> None:
    known: dict[int, int] = {}
    some: set[int] = set()

    def put(key: int) -> None:
        known[key] = 0
        some.add(key)

    tables = (DictTable(StepMeter(ENOUGH)), SetTable(StepMeter(ENOUGH)))
    put(-1)
    for table in tables:
        table.add(hash(-1), known=True)
    for key in range(150_000):
        before = [(sys.getsizeof(real), table.size) for table, real in zip(tables, (known, some), strict=True)]
        put(key)
        for table in tables:
            table.add(key, known=True)
        after = [(sys.getsizeof(real), table.size) for table, real in zip(tables, (known, some), strict=True)]
        for one, other in zip(before, after, strict=True):
            assert (one[0] != other[0]) == (one[1] != other[1]), key


def test_the_slots_of_a_set_are_those_in_which_python_finds_its_keys() -> None:
    """A set iterates in slot order, which shows where each key is."""
    for keys in (*(pattern[:5000] for pattern in PATTERNS), FOR_SETS[-8000:]):
        table, real = SetTable(StepMeter(ENOUGH)), set[int]()
        for key in keys:
            table.add(hash(key), known=True)
            real.add(key)
        assert [slot for slot in table._slots if slot is not None] == [hash(key) & (1 << 64) - 1 for key in real]


@pytest.mark.parametrize("table", [DictTable, SetTable])
def test_a_key_that_is_there_takes_no_slot_and_one_of_the_same_hash_does(table: type[DictTable]) -> None:
    made = table(StepMeter())
    assert [made.add(7, known=True) for _ in range(100)] == [0] * 100
    assert [made.add(7) for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (dict[int, int], FOR_DICTS),
        (dict[float, int], FOR_DICTS),
        (dict[int | float, Any], FOR_DICTS),
        (list[dict[int, int]], FOR_DICTS),
        (set[int], FOR_SETS),
        (frozenset[float], FOR_SETS),
    ],
)
def test_keys_that_walk_through_the_same_slots_are_refused(kind: Any, keys: list[int]) -> None:
    def value(keys: list[int]) -> Any:
        made = dict.fromkeys(map(str, keys), 1) if "dict" in str(kind) else keys
        return [made] if "list" in str(kind) else made

    others = random.Random(2).sample(range(max(keys)), len(keys))
    assert typed_schema_of(kind).convert(value(others), StepMeter(ENOUGH))
    assert typed_schema_of(kind).convert(value(sorted(keys)[:1000]), StepMeter(ENOUGH))
    times = 8 if "dict" in str(kind) else 1
    value_of_all = [value(keys)] * times if "list" not in str(kind) else value(keys) * times
    kind = kind if "list" in str(kind) else list[kind]
    with pytest.raises(Mismatch, match="values whose hashes fill the same slots of a table"):
        typed_schema_of(kind).convert(value_of_all, StepMeter(ENOUGH))


def test_probes_are_counted_and_charged() -> None:
    for table, keys in ((DictTable, FOR_DICTS), (SetTable, FOR_SETS)):
        assert probes(table, random.Random(3).sample(range(max(keys)), len(keys))) < 6 * len(keys)
        meter = StepMeter(ENOUGH)
        made = table(meter)
        found = sum([made.add(hash(key), known=True) for key in keys])
        assert found > 1_200_000
        assert ENOUGH - meter.left >= found // 10


@pytest.mark.parametrize("keys", PATTERNS, ids=lambda keys: f"{keys[1]}…")
def test_numbers_of_honest_shapes_are_made(keys: list[int]) -> None:
    assert typed_schema_of(dict[int, int]).convert(
        dict.fromkeys(map(str, keys), 1), StepMeter(ENOUGH)
    ) == dict.fromkeys(keys, 1)
    assert typed_schema_of(set[int]).convert(keys, StepMeter(ENOUGH)) == set(keys)


def test_texts_of_tiny_floats_are_counted_as_what_they_cost() -> None:
    """Keys such as 1.5e-310, which msgspec converts to floats slowly."""
    honest = {f"{each}e-50": 1 for each in range(5000)}
    assert len(typed_schema_of(dict[float, int]).convert(honest, StepMeter(ENOUGH))) == 5000
    with pytest.raises(Mismatch, match="fill the same slots"):
        typed_schema_of(dict[float, int]).convert({f"{each}e-310": 1 for each in range(9000)}, StepMeter(ENOUGH))
