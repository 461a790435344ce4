"""The schema of a type accepts exactly what the conversion to that type accepts: two implementations are each other's referee.

Known to be wider than their schemas, and left out here: a set takes an array that repeats itself, a Decimal takes numbers, and the keys
of a `dict[int, …]` are texts of which a schema cannot say that they are numbers.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import time
from dataclasses import make_dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict, Union, cast
from uuid import UUID

import msgspec
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from tests.example_counts import examples

from greenroom.protocol.conversions import convert
from greenroom.protocol.function_parameters import BadHint, refined
from greenroom.protocol.serialization import is_array, is_object
from greenroom.protocol.type_schemas import Mismatch, arguments_of, convert_json, schema_of
from greenroom.protocol.validation import BadSchema, HintSchemaValidator, Validator, check_schema

if TYPE_CHECKING:
    from collections.abc import Callable

Kind = tuple[Any, st.SearchStrategy[Any]]
"""A hint and values that fit it."""

COUNT = itertools.count()
NAMES = ["a", "b", "c"]
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers()


class Color(Enum):
    RED = "red"
    BLUE = "blue"


SCALARS: list[Kind] = [
    (int, st.integers()),
    (float, NUMBERS),
    (bool, st.booleans()),
    (str, st.text(max_size=4)),
    (None, st.none()),
    (Any, st.just({"a": [None]})),
    (Literal["x", "y"], st.sampled_from(["x", "y"])),
    (Literal[1, 2], st.sampled_from([1, 2])),
    (Color, st.sampled_from(["red", "blue"])),
    (date, st.dates().map(str)),
    (datetime, st.datetimes().map(lambda one: one.isoformat() + "Z")),
    (timedelta, st.integers(0, 10**6).map(lambda one: f"PT{one}S")),
    (UUID, st.uuids().map(str)),
    (bytes, st.binary(max_size=4).map(lambda one: base64.b64encode(one).decode())),
    (Annotated[int, msgspec.Meta(ge=-1, lt=3)], st.integers(-1, 2)),
    (Annotated[float, msgspec.Meta(gt=0, le=2.5)], st.floats(0, 2.5, exclude_min=True)),
    (Annotated[str, msgspec.Meta(min_length=1, max_length=2)], st.text(min_size=1, max_size=2)),
    (Annotated[str, msgspec.Meta(pattern="^[a-c]*$")], st.text("abc", max_size=3)),
]  # fmt: skip


LIST: Any = list
DICT: Any = dict
TUPLE: Any = tuple


def listed(inner: Kind) -> Kind:
    return LIST[inner[0]], st.lists(inner[1], max_size=2)


def bounded(inner: Kind) -> Kind:
    hint = Annotated[LIST[inner[0]], msgspec.Meta(min_length=1, max_length=2)]
    return hint, st.lists(inner[1], min_size=1, max_size=2)


def mapped(inner: Kind) -> Kind:
    return DICT[str, inner[0]], st.dictionaries(st.sampled_from(NAMES), inner[1], max_size=2)


def paired(pair: tuple[Kind, Kind]) -> Kind:
    return TUPLE[pair[0][0], pair[1][0]], st.tuples(pair[0][1], pair[1][1]).map(list)


def either(members: list[Kind]) -> Kind:
    return Union[tuple(member[0] for member in members)], st.one_of([member[1] for member in members])  # noqa: UP007


def fields(of: dict[str, tuple[Kind, bool]]) -> tuple[list[tuple[str, Kind]], list[tuple[str, Kind]]]:
    needed = [(name, kind) for name, (kind, required) in of.items() if required]
    return needed, [(name, kind) for name, (kind, required) in of.items() if not required]


def values(of: dict[str, tuple[Kind, bool]]) -> st.SearchStrategy[Any]:
    needed, others = fields(of)
    return st.fixed_dictionaries(
        {name: kind[1] for name, kind in needed}, optional={name: kind[1] for name, kind in others}
    )


def dataclassed(of: dict[str, tuple[Kind, bool]]) -> Kind:
    needed, others = fields(of)
    made = make_dataclass(f"Made{next(COUNT)}", [(name, kind[0]) for name, kind in needed] + [(name, kind[0], None) for name, kind in others])  # fmt: skip
    return made, values(of)


def dicted(of: dict[str, tuple[Kind, bool]]) -> Kind:
    members = {name: kind[0] if required else NotRequired[kind[0]] for name, (kind, required) in of.items()}
    make = cast("Callable[[str, Any], Any]", TypedDict)
    return make(f"Dicted{next(COUNT)}", members), values(of)


def grown(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    members = st.dictionaries(st.sampled_from(NAMES), st.tuples(inner, st.booleans()), max_size=3)
    return st.one_of(
        inner.map(listed),
        inner.map(bounded),
        inner.map(mapped),
        st.tuples(inner, inner).map(paired),
        st.lists(inner, min_size=1, max_size=3).map(either),
        members.map(dataclassed),
        members.map(dicted),
    )


KINDS = st.recursive(st.sampled_from(SCALARS), grown, max_leaves=5)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=4) | st.sampled_from(["x", "red", "", "2026-01-01", "AA=="]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any]:
    """A hint and a value that fits it, nearly fits it, or is arbitrary."""
    hint, right = draw(KINDS)
    value = draw(st.one_of(right, right, JSON))
    if draw(st.booleans()):
        value = broken(draw, value)
    return hint, value


def broken(draw: st.DrawFn, value: Any) -> Any:
    """The value with one part replaced."""
    deeper = draw(st.booleans())
    if deeper and is_object(value) and value:
        name = draw(st.sampled_from(sorted(value)))
        rest = {one: inner for one, inner in value.items() if one != name}
        return rest if draw(st.booleans()) else {**rest, name: broken(draw, value[name])}
    if deeper and is_array(value) and value:
        place = draw(st.integers(0, len(value) - 1))
        return [*value[:place], broken(draw, value[place]), *value[place + 1 :]]
    return draw(JSON)


def converts(hint: Any, value: Any) -> bool:
    """The result of msgspec alone; a whole float counts as an integer."""
    for one in (value, integral(value)):
        with contextlib.suppress(msgspec.ValidationError):
            convert(one, refined(hint))
            return True
    return False


def integral(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if is_object(value):
        return {name: integral(one) for name, one in value.items()}
    return [integral(one) for one in value] if is_array(value) else value


def others_accept(schema: Any, value: Any) -> bool:
    """The result of jsonschema alone."""
    validator: Any = Draft202012Validator(schema)
    return bool(validator.is_valid(value))


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_a_schema_accepts_what_the_conversion_accepts(case: tuple[Any, Any]) -> None:
    hint, value = case
    try:
        schema = schema_of(hint)
    except BadHint:
        reject()  # such as two literals that are the same number
    Draft202012Validator.check_schema(schema)
    found = HintSchemaValidator(schema).errors(value)
    assert converts(hint, value) is (found == []), (schema, found)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_binding_and_conversion_agree(case: tuple[Any, Any]) -> None:
    hint, value = case

    def tool(it: Any) -> None: ...

    tool.__annotations__["it"] = hint
    try:
        arguments = arguments_of(tool)
    except BadHint:
        reject()  # as above
    alone: Any = None
    bound: Any = None
    with contextlib.suppress(Mismatch):
        alone = [convert_json(hint, value)]
    with contextlib.suppress(Mismatch):
        bound = [arguments.bind({"it": value})["it"]]
    assert alone == bound
    assert bound is None or others_accept(arguments.schema, {"it": value})


def some_of(members: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional=members)


REFERENCES = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/$defs/a/items", "#x", "http://a/b", "#/no"])
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.booleans() | some_of({
        "$ref": REFERENCES,
        "type": st.sampled_from(["object", "array", "string", "integer", ["null", "number"], "no"]),
        "enum": st.lists(JSON, max_size=3),
        "pattern": st.sampled_from(["^(a+)+$", "a|b", "(", "(.*)*x", r"\d+"]),
        "minimum": NUMBERS,
        "multipleOf": NUMBERS,
        "uniqueItems": st.booleans(),
        "required": st.lists(st.sampled_from(NAMES), max_size=2),
        "$anchor": st.just("x"),
        "maxLength": st.integers(-1, 3),
    }),
    lambda inner: some_of({
        **dict.fromkeys(["allOf", "anyOf", "oneOf", "prefixItems"], st.lists(inner, max_size=3)),
        **dict.fromkeys(["$defs", "properties", "patternProperties", "dependentSchemas"], st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)),
        **dict.fromkeys(["items", "not", "if", "then", "contains", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "propertyNames"], inner),
        "$ref": REFERENCES,
    }),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.too_slow])
@given(SCHEMAS, JSON)
def test_a_hostile_schema_is_refused_or_bounded(schema: Any, value: Any) -> None:
    began = time.process_time()
    try:
        check_schema(schema)
    except BadSchema:
        pass
    else:
        found = Validator(schema, steps=20_000).errors(value)
        if not any(reason.kind == "too_complex" for _, reason in found) and "(" not in str(schema):
            assert (found == []) is others_accept(schema, value)
    assert time.process_time() - began < 5
