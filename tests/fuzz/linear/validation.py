"""Values checked against a schema, and schemas of a peer, within the steps of one check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fuzz.linearity import Reader

from greenroom.protocol.validation import BadSchema, Validator
from greenroom.protocol.validation_errors import StepMeter, StepsExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PRIME = (1 << 61) - 1
"""The modulus of Python's hash of integers."""

Shape = tuple[Any, Any]
"""A schema, and a value for it."""


def _check(given: Shape) -> None:
    schema, value = given
    Validator(schema, meter=StepMeter()).check(value, StepMeter())


def _items(schema: Any, one: Callable[[int], Any], length: int) -> Callable[[int], Shape]:
    return lambda size: (schema, [one(number) for number in range(size // length)])


def _members(schema: Any) -> Callable[[int], Shape]:
    return lambda size: (schema, {f"a{number}": number for number in range(size // 8)})


VALUES: Mapping[str, Callable[[int], Shape]] = {
    "items": _items({"items": {"type": "integer"}}, lambda number: number, 4),
    "wrong items": _items({"items": {"type": "string"}}, lambda number: number, 4),
    "items that are unique": _items({"uniqueItems": True}, lambda number: number, 4),
    "unique items of one hash": _items({"uniqueItems": True}, lambda number: PRIME * number, 20),
    "unique lists": _items({"uniqueItems": True}, lambda number: [number], 6),
    "choices of one hash": _items({"items": {"enum": [PRIME * number for number in range(50)]}}, lambda number: PRIME * number, 20),
    "items that are none of three": _items(
        {"items": {"anyOf": [{"minLength": 1}, {"type": "null"}, {"const": 1.5}]}}, lambda number: number, 4
    ),
    "items that some contain": _items({"contains": {"const": -1}, "unevaluatedItems": False}, lambda number: number, 4),
    "members": _members({"additionalProperties": {"type": "integer"}}),
    "members that there are not": _members({"additionalProperties": False}),
    "members by pattern": _members({"patternProperties": {"^(a+)+$": False}, "unevaluatedProperties": False}),
    "a text of a pattern": lambda size: ({"pattern": "^(a+)+$"}, "a" * size + "b"),
    "a text of any part": lambda size: ({"pattern": "(a|aa)*c"}, "a" * size),
    "lists in lists": _items({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}}, lambda _: [[0]] * 8, 40),
}  # fmt: skip

SCHEMAS: Mapping[str, Callable[[int], Shape]] = {
    "properties": lambda size: ({"properties": {f"a{number}": True for number in range(size // 10)}}, {}),
    "required": lambda size: ({"required": [f"a{number}" for number in range(size // 8)]}, {}),
    "choices": lambda size: ({"enum": [PRIME * number for number in range(size // 20)]}, PRIME),
    "branches": lambda size: ({"anyOf": [{"const": number} for number in range(size // 16)]}, -1),
    "patterns": lambda size: ({"allOf": [{"pattern": "^(a|b)*c$"}] * (size // 24)}, ""),
    "references": lambda size: (
        {"allOf": [{"$ref": "#/$defs/a"}] * (size // 24), "$defs": {"a": {"type": "null"}}},
        None,
    ),
}

READERS = (
    Reader("checks", _check, VALUES, (StepsExceeded, BadSchema), short=(1024, 2048, 4096, 8192)),
    Reader("written", _check, SCHEMAS, (StepsExceeded, BadSchema), short=(1024, 2048, 4096, 8192)),
)
