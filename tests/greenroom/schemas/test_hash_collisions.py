"""Sets and dicts of a peer's values with colliding keys are refused before they are built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction  # noqa: TC003 - read by pydantic
from functools import partial
from ipaddress import IPv6Network
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel
from tests.fuzz.linearity import steps as bytecodes
from typing_extensions import TypeAliasType

from greenroom.protocol.hash_collisions import SAME_HASH_LIMIT, collision_check_for
from greenroom.protocol.type_schemas import Mismatch, arguments_of, typed_schema_of
from greenroom.protocol.validation_errors import STEPS_ON_LOOP, StepMeter, StepsExceeded

PRIME = (1 << 61) - 1
"""The modulus of Python's hash of integers."""
ONES = [PRIME * number for number in range(1, 1001)]
T = TypeVar("T")
B = TypeVar("B", bound=UUID)
Ids = NewType("Ids", set[int])
Id = NewType("Id", int)
Alias = TypeAliasType("Alias", dict[T, str], type_params=(T,))
TURNED = [sum(1 << (10 * bit - 10 * first) % 61 for bit in range(6)) for first in range(6)]
"""The rotations of a number of 61 bits, as floats: a float times 2**61 has the same hash."""
FLOATS = [float(one) * 2.0 ** (10 * first + 61 * turn) for first, one in enumerate(TURNED) for turn in range(-9, 15)]
UUIDS = [str(UUID(int=one)) for one in ONES]


@dataclass
class Held:
    inside: set[int]
    more: list[Held] | None = None


class Told(TypedDict):
    inside: frozenset[int]


class Struct(msgspec.Struct):
    inside: dict[int, str]


class Pair(NamedTuple):
    inside: set[int]


class Model(BaseModel):
    inside: set[int]


class Networks(BaseModel):
    """A model with keys that only pydantic makes."""

    inside: set[IPv6Network] = set()
    parts: dict[Fraction, str] = {}


@dataclass
class HeldBelow(Held):
    """Without a field of its own."""


class StructBelow(Struct):
    """Without a field of its own."""


class ModelBelow(Model):
    """Without a field of its own."""


@dataclass
class Of(Generic[T]):
    inside: set[T]


@dataclass
class OfBound(Generic[B]):
    inside: set[B]


@dataclass
class OfUuids(Of[UUID]):
    """Without a field of its own."""


@dataclass
class OfSets(Generic[T]):
    of: Of[tuple[T, T]]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (set[int], ONES),
        (frozenset[int], [-one for one in ONES]),
        (set, ONES),
        (set[int | str], ONES),
        (set[Annotated[int, msgspec.Meta(ge=0)]], ONES),
        (list[set[int]], [[1], ONES]),
        (dict[int, str], {str(one): "" for one in ONES}),
        (Mapping[int, Any], {str(one): 1 for one in ONES}),
        (dict[str, dict[int, int]], {"a": {str(one): 1 for one in ONES}}),
        (set[float], FLOATS),
        (dict[float, str], {str(one): "" for one in FLOATS}),
        (set[tuple[int, int]], [[one, 1] for one in ONES]),
        (set[frozenset[int]], [[one] for one in ONES]),
        (set[frozenset[int]], [ONES]),
        (set[UUID], [str(UUID(int=one)) for one in ONES]),
        (set[Decimal], [str(one) for one in ONES]),
        (set[int], [float(1 << 61 * power) for power in range(1, 16)] + ONES),
        (Held, {"inside": ONES}),
        (Held, {"inside": [], "more": [{"inside": ONES}]}),
        (Told, {"inside": ONES}),
        (Struct, {"inside": {str(one): "" for one in ONES}}),
        (Pair, [ONES]),
        (Model, {"inside": ONES}),
        (list[Model] | None, [{"inside": ONES}]),
        (Of[int], {"inside": ONES}),
        (Of[UUID], {"inside": UUIDS}),
        (OfBound, {"inside": UUIDS}),
        (OfUuids, {"inside": UUIDS}),
        (OfSets[int], {"of": {"inside": [[one, 1] for one in ONES]}}),
        (Ids, ONES),
        (set[Id], ONES),
        (list[HeldBelow], [{"inside": ONES}]),
        (StructBelow | None, {"inside": {str(one): "" for one in ONES}}),
        (ModelBelow, {"inside": ONES}),
        (Networks, {"inside": [str(IPv6Network((one * PRIME << 60, 68))) for one in range(99)]}),
        (Networks, {"parts": {str(one): "" for one in ONES}}),
        (list[set[int]], [ONES[:SAME_HASH_LIMIT]] * 99),
        (list[set[int]], [ONES[:20]] * 200),
        (set[int], ONES[:SAME_HASH_LIMIT] * 99),
        (set[int], [one for one in FLOATS if one.is_integer()]),
        (set[tuple[int, ...]], [[*[0] * 240, one] for one in ONES[:35]]),
    ],
)
def test_keys_of_one_hash_are_refused(kind: Any, value: Any) -> None:
    with pytest.raises(Mismatch, match=f"more than {SAME_HASH_LIMIT} different values of one hash"):
        typed_schema_of(kind).convert(value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (set[int], list(range(5000))),
        (set[int], [PRIME * 5] * 5000),
        (set[int], [PRIME + number for number in range(5000)]),
        (set[int], ONES[:SAME_HASH_LIMIT]),
        (set[float], [0.5 * number for number in range(5000)]),
        (set[float], [2.0**power for power in range(-600, 600)]),
        (set[int], [1 << power for power in range(900)]),
        (set[str], [str(one) for one in ONES]),
        (list[int], ONES),
        (dict[str, int], {str(one): one for one in ONES}),
        (dict[int, int], {str(number): number for number in range(5000)}),
        (set[UUID], [str(UUID(int=number)) for number in range(500)]),
    ],
)
def test_collections_without_collisions_are_converted(kind: Any, value: Any) -> None:
    assert typed_schema_of(kind).convert(value) == msgspec.convert(value, kind, str_keys=True)


@pytest.mark.parametrize(
    "kind", [int, list[int], set[str], dict[str, int], set[Literal[1, 2]], dict[str, list[set[str]]], set[bytes | None]]
)
def test_types_without_such_keys_are_not_looked_at(kind: Any) -> None:
    assert collision_check_for(kind) is None


def test_no_two_keys_of_one_hash_are_compared_with_all_others() -> None:
    """Counted, not timed: the number of comparisons is bounded by the number of keys."""
    compared = 0

    class Key(int):
        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int.__eq__(self, other)

    checked = collision_check_for(set)
    assert checked is not None
    with pytest.raises(Mismatch):
        checked.check([Key(one) for one in ONES], StepMeter())
    assert compared <= (SAME_HASH_LIMIT + 1) ** 2


def test_floats_of_one_hash_are_what_they_are_called() -> None:
    assert len({hash(one) for one in FLOATS}) == 1
    assert len(set(FLOATS)) == len(FLOATS) > 2 * SAME_HASH_LIMIT


def test_an_alias_with_a_parameter_is_looked_into() -> None:
    checked = collision_check_for(list[Alias[UUID]])
    assert checked is not None
    with pytest.raises(Mismatch):
        checked.check([dict.fromkeys(UUIDS, "")], StepMeter())


def test_looking_through_keys_is_charged() -> None:
    """The charge moves a call with many keys to a thread, where it releases the interpreter."""
    checked = collision_check_for(list[set[int]])
    assert checked is not None
    values: list[Any] = [
        [list(range(5_000))],
        [[]] * 5_000,
        [list(range(9))] * 500,
        [[["x"] * 9] * 9] * 50,
        [[PRIME * one for one in range(9)]] * 300,
    ]
    for value in values:
        meter = StepMeter()
        checked.check(value, meter)
        assert bytecodes(partial(checked.check, value, StepMeter())) < 60 * (STEPS_ON_LOOP - meter.left)
    with pytest.raises(StepsExceeded):
        checked.check([[]] * STEPS_ON_LOOP, StepMeter())
    with pytest.raises(StepsExceeded):
        typed_schema_of(set[int]).convert(list(range(STEPS_ON_LOOP)), StepMeter())
    with pytest.raises(Mismatch, match="too much in it to be checked"):
        typed_schema_of(set[int]).convert(list(range(STEPS_ON_LOOP)))


def test_an_argument_of_a_tool_is_refused_with_its_name() -> None:
    def tool(numbers: set[int]) -> None:
        """Takes them."""

    with pytest.raises(Mismatch, match="numbers"):
        arguments_of(tool).bind({"numbers": ONES})
