"""Functions as input schemas, conversion of arguments, and the errors."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict
from uuid import UUID

import annotated_types
import msgspec
import pytest
from typing_extensions import Doc

from greenroom.protocol.function_parameters import BadHint
from greenroom.protocol.type_schemas import Mismatch, arguments_of, convert_json, schema_of


class Color(Enum):
    """A color."""

    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    """A place.

    Attributes:
        x: to the right
        y: up
    """

    x: float
    y: float = 0.0
    tags: list[str] = field(default_factory=list[str])


@dataclass
class Circle:
    middle: Point
    radius: float


@dataclass
class Square:
    corner: Point
    side: float


class Options(TypedDict):
    deep: bool
    name: NotRequired[str]


class Range(NamedTuple):
    low: int
    high: int


class Tagged(msgspec.Struct):
    value: int = 0


UserId = NewType("UserId", int)


def problems(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[tuple[str | int, ...], str]:
    """Path -> the kind of the mistake there."""
    with pytest.raises(Mismatch) as caught:
        arguments_of(function).bind(arguments)
    return {path: reason.kind for path, reason in caught.value.errors}


# --- schemas


@pytest.mark.row("TF-10")
def test_a_function_without_parameters_takes_nothing() -> None:
    def tool() -> None: ...

    arguments = arguments_of(tool)
    assert arguments.schema == {"type": "object", "additionalProperties": False}
    assert arguments.bind({}) == {}
    assert problems(tool, {"a": 1}) == {("a",): "unexpected_property"}


def test_a_function_becomes_a_schema() -> None:
    async def forecast(
        city: Annotated[str, msgspec.Meta(description="Where", min_length=1)],
        days: Annotated[int, msgspec.Meta(ge=1, le=14)] = 3,
        unit: Literal["C", "F"] = "C",
        near: Point | None = None,
        ctx: object = None,
    ) -> None: ...

    forecast.__doc__ = """Forecast the weather.

    Args:
        city: never read, as the hint says it better
        days: how many,
            from today on
    """
    schema = arguments_of(forecast).schema
    assert schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 1, "description": "Where"},
            "days": {"type": "integer", "minimum": 1, "maximum": 14, "description": "how many, from today on", "default": 3},
            "unit": {"enum": ["C", "F"], "default": "C"},
            "near": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "default": None},
        },
        "required": ["city"],
        "additionalProperties": False,
        "$defs": {
            "Point": {
                "title": "Point",
                "description": "A place.",
                "type": "object",
                "properties": {
                    "x": {"type": "number", "description": "to the right"},
                    "y": {"type": "number", "default": 0.0, "description": "up"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                },
                "required": ["x"],
            }
        },
    }  # fmt: skip


HINTS: list[tuple[Any, Any]] = [
        (Any, {}),
        (object, {}),
        (None, {"type": "null"}),
        (bool, {"type": "boolean"}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (date, {"type": "string", "format": "date"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (list[datetime], {"type": "array", "items": {"type": "string", "format": "date-time"}}),
        (timedelta, {"type": "string", "format": "duration"}),
        (UUID, {"type": "string", "format": "uuid"}),
        (Path, {"type": "string"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (Iterable[int], {"type": "array", "items": {"type": "integer"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (UserId, {"type": "integer"}),
        (Annotated[int, annotated_types.Gt(1), annotated_types.Le(5)], {"type": "integer", "exclusiveMinimum": 1, "maximum": 5}),
        (Annotated[int, annotated_types.Interval(ge=1, lt=5)], {"type": "integer", "minimum": 1, "exclusiveMaximum": 5}),
        (Annotated[list[int], annotated_types.Len(1, 3)], {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3}),
        (Annotated[int, annotated_types.MultipleOf(5)], {"type": "integer", "multipleOf": 5}),
        (list[Annotated[int, annotated_types.Ge(0)]], {"type": "array", "items": {"type": "integer", "minimum": 0}}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (Annotated[int, Doc("how many")], {"type": "integer", "description": "how many"}),
        (Optional[Annotated[int, "how many"]], {"anyOf": [{"type": "integer", "description": "how many"}, {"type": "null"}]}),  # noqa: UP045
        (Annotated[int, {"another": "tool's"}, int], {"type": "integer"}),
        (date | str, {"anyOf": [{"type": "string", "format": "date"}, {"type": "string"}]}),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "schema"), HINTS, ids=str)
def test_hints(hint: Any, schema: Any) -> None:
    assert schema_of(hint) == schema


def test_the_schema_of_an_object_stands_at_the_root() -> None:
    assert schema_of(Options) == {
        "title": "Options",
        "type": "object",
        "properties": {"deep": {"type": "boolean"}, "name": {"type": "string"}},
        "required": ["deep"],
    }
    assert schema_of(Circle)["type"] == "object"
    assert set(schema_of(Circle)["$defs"]) == {"Point"}


# --- values


@pytest.mark.parametrize(
    ("hint", "sent", "value"),
    [
        (float, 3, 3.0),
        (int, 3.0, 3),
        (int | None, None, None),
        (date, "2026-01-02", date(2026, 1, 2)),
        (datetime, "2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (timedelta, "PT1M", timedelta(minutes=1)),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
        (Decimal, "1.10", Decimal("1.10")),
        (bytes, "AP8=", b"\x00\xff"),
        (Path, "/a/b", Path("/a/b")),
        (Color, "red", Color.RED),
        (Level, 2, Level.HIGH),
        (Point, {"x": 1}, Point(1.0)),
        (Range, [1, 2], Range(1, 2)),
        (Options, {"deep": True}, {"deep": True}),
        (Tagged, {"value": 1}, Tagged(1)),
        (set[int], [1, 2], {1, 2}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[str, Point], {"a": {"x": 1}}, {"a": Point(1.0)}),
        (Iterable[Point], [{"x": 1}], [Point(1.0)]),
        (Circle | Square, {"corner": {"x": 1}, "side": 2}, Square(Point(1.0), 2.0)),
        (list[Circle | Square], [{"middle": {"x": 1}, "radius": 2}], [Circle(Point(1.0), 2.0)]),
        (date | str, "2026-01-02", date(2026, 1, 2)),
        (date | str, "soon", "soon"),
        (Any, {"a": [1]}, {"a": [1]}),
    ],
    ids=str,
)
def test_values(hint: Any, sent: Any, value: Any) -> None:
    def tool(it: Any) -> None: ...

    tool.__annotations__["it"] = hint
    assert arguments_of(tool).bind({"it": sent}) == {"it": value}
    made = convert_json(hint, sent)
    assert made == value
    assert type(made) is type(value)


def test_the_member_that_knows_more_keys_is_chosen() -> None:
    @dataclass
    class Less:
        a: int

    @dataclass
    class More:
        a: int
        b: int = 0

    assert convert_json(Less | More, {"a": 1, "b": 2}) == More(1, 2)
    assert convert_json(Less | More, {"a": 1}) == Less(1)


def test_defaults_are_the_functions_own() -> None:
    def tool(a: int, many: list[int] = [], when: datetime = datetime(1, 1, 1, tzinfo=UTC)) -> None: ...  # noqa: B006 - the subject of this test

    arguments = arguments_of(tool)
    assert arguments.bind({"a": 1}) == {"a": 1}
    assert arguments.schema["properties"]["many"]["default"] == []
    assert arguments.schema["required"] == ["a"]


def test_a_default_of_none_means_that_none_may_be_sent() -> None:
    def tool(city: str = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013 - as people write it

    assert arguments_of(tool).bind({"city": None}) == {"city": None}


def test_a_default_that_is_no_json_is_not_shown() -> None:
    def tool(a: int = object()) -> None: ...  # type: ignore[assignment]

    assert arguments_of(tool).schema["properties"] == {"a": {"type": "integer"}}


@pytest.mark.parametrize(
    ("hint", "sent"),
    [
        (int, "3"),
        (int, 3.5),
        (int, True),
        (float, "3"),
        (float, None),
        (bool, 1),
        (bool, "true"),
        (str, 3),
        (str, None),
        (Literal[1], True),
        (list[int], 3),
        (list[int], ["3"]),
        (date, 20260102),
        (date, "tomorrow"),
        (bytes, "?"),
        (Color, "RED"),
        (UUID, "x"),
        (tuple[int, str], [1]),
        (Point, {"x": "1"}),
        (Annotated[int, annotated_types.Gt(1)], 1),
        (Path, 3),
        (Circle | Square, {"side": 1}),
    ],
    ids=str,
)
def test_nothing_is_coerced(hint: Any, sent: Any) -> None:
    with pytest.raises(Mismatch):
        convert_json(hint, sent)


@pytest.mark.row("TF-07")
@pytest.mark.row("SM-01")
def test_all_mistakes_are_reported_at_once() -> None:
    def tool(city: str, days: int, when: date, at: list[Point], unit: Color, opt: int | None = None) -> None: ...

    sent = {
        "days": "3",
        "when": "soon",
        "at": [{"x": 1}, {"x": "2", "y": None}],
        "unit": "green",
        "opt": "x",
        "cityy": 1,
    }
    assert problems(tool, sent) == {
        ("city",): "missing_required",
        ("days",): "type_mismatch",
        ("when",): "bad_format",
        ("at", 1, "x"): "type_mismatch",
        ("at", 1, "y"): "type_mismatch",
        ("unit",): "not_in_enum",
        ("opt",): "type_mismatch",
        ("cityy",): "unexpected_property",
    }


def test_reasons_say_what_is_expected() -> None:
    def tool(city: str, days: int | None = 3) -> None: ...

    with pytest.raises(Mismatch) as caught:
        arguments_of(tool).bind({"days": "3", "citty": "Oslo"})
    assert str(caught.value).split("; ") == [
        'days: expected an integer or null, got "3"',
        "city: is missing",
        "citty: there is no such member",
        "was city meant?",
    ]


def test_mistakes_beyond_the_schema_are_reported_by_the_conversion() -> None:
    def tool(by_number: dict[int, str]) -> None: ...

    assert arguments_of(tool).bind({"by_number": {"1": "a"}}) == {"by_number": {1: "a"}}
    assert problems(tool, {"by_number": {"one": "a"}}) == {("by_number",): "type_mismatch"}


# --- unions that crash msgspec

LETTERS = Annotated[str, msgspec.Meta(pattern="^[a-c]*$")]


@pytest.mark.parametrize("other", [list[int], set[int], tuple[int, ...], dict[str, int], list[Any]], ids=str)
def test_a_text_with_a_pattern_beside_a_list_is_taken_apart(other: Any) -> None:
    """In msgspec 0.22 the conversion reads the list's items as the pattern, and crashes the process."""
    hint = LETTERS | other
    for _ in range(100):
        assert convert_json(hint, "abc") == "abc"
        with pytest.raises(Mismatch):
            convert_json(hint, "xyz")


@dataclass
class Dangerous:
    inner: list[LETTERS | list[int]]


def test_a_dangerous_union_inside_a_class_is_refused() -> None:
    with pytest.raises(BadHint, match="a union of a string with a pattern and a list or dict"):
        schema_of(dict[str, Dangerous])


def test_members_of_one_kind_are_all_tried() -> None:
    assert convert_json(Annotated[int, msgspec.Meta(ge=5)] | float, 3) == 3.0
    assert convert_json(str | Annotated[str, msgspec.Meta(min_length=1)], "") == ""
    assert convert_json(Literal[1, 2] | float, 7) == 7.0


@dataclass
class Overlapping:
    amount: Literal[1, 2] | float


@dataclass
class Apart:
    amount: int | float | Literal["all"] | None
    color: Color | int = 1


def test_overlapping_members_inside_a_class_are_refused() -> None:
    with pytest.raises(BadHint, match=r"Overlapping\.amount: two members of the union are of the same kind"):
        schema_of(list[Overlapping])
    assert convert_json(Apart, {"amount": 1.5, "color": "red"}) == Apart(1.5, Color.RED)


def test_limits_without_effect_are_refused() -> None:
    @dataclass
    class Limited:
        amount: Annotated[int, annotated_types.Gt(1)]

    with pytest.raises(BadHint, match=r"Limited\.amount: inside a class, write limits with msgspec\.Meta"):
        schema_of(Limited)


def test_a_hostile_text_does_not_stall_a_careless_pattern() -> None:
    def tool(code: Annotated[str, msgspec.Meta(pattern="^(a+)+$")]) -> None: ...

    assert arguments_of(tool).bind({"code": "aaa"}) == {"code": "aaa"}
    assert problems(tool, {"code": "a" * 5_000 + "b"}) == {("code",): "pattern_mismatch"}


def test_a_pattern_may_be_in_pythons_dialect() -> None:
    def tool(code: Annotated[str, msgspec.Meta(pattern=r"\A(?i:ab)\Z")]) -> None: ...

    assert arguments_of(tool).bind({"code": "AB"}) == {"code": "AB"}
    assert problems(tool, {"code": "abc"}) == {("code",): "pattern_mismatch"}


def test_unrelated_metadata_need_not_be_hashable() -> None:
    assert convert_json(Annotated[int, {"for": "others"}], 3) == 3
    with pytest.raises(BadHint):
        convert_json(Annotated[complex, {"for": "others"}], 3)


class _Side(Enum):
    LEFT = "left"
    RIGHT = "right"


class _Floor(IntEnum):
    FIRST = 1


@pytest.mark.row("SM-01")
@pytest.mark.parametrize(
    ("hint", "keys", "good", "bad"),
    [
        (dict[_Side, int], ["left", "right"], {"left": 1}, {"middle": 1}),
        (dict[_Side, int] | None, ["left", "right"], {"right": 1}, {"Left": 1}),
        (Mapping[Literal["a", "b"], int], ["a", "b"], {"b": 1}, {"c": 1}),
        (dict[_Floor, list[int]], ["1"], {"1": [2]}, {"2": [2]}),
    ],
)
def test_the_keys_of_a_dict_that_are_listed_are_in_the_schema(hint: Any, keys: list[str], good: Any, bad: Any) -> None:
    schema = schema_of(hint)
    (of_dict,) = [one for one in schema.get("anyOf", [schema]) if one.get("type") == "object"]
    assert of_dict["propertyNames"] == {"enum": keys}
    assert len(convert_json(hint, good)) == 1
    with pytest.raises(Mismatch):
        convert_json(hint, bad)


@pytest.mark.row("SM-01")
def test_a_default_that_does_not_fit_its_hint_is_refused() -> None:
    def wrong(x: int = "abc") -> None:  # type: ignore[assignment]
        """Its default is a string for a number."""

    def outside(x: Annotated[int, annotated_types.Gt(0)] = 0) -> None:
        """Its default is a value that a peer may not send."""

    for function in (wrong, outside):
        with pytest.raises(BadHint, match=r"the default of x, .*, does not fit its hint"):
            arguments_of(function)


def test_a_default_that_fits_in_pythons_way_is_taken() -> None:
    own = object()

    def right(  # noqa: PLR0913, PLR0917 - one of each
        a: float = 1,
        b: int = True,  # noqa: FBT002 - the subject of this test
        c: Sequence[str] = (),
        d: _Side = _Side.LEFT,
        e: str = None,  # type: ignore[assignment]  # noqa: RUF013
        f: str = own,  # type: ignore[assignment]
        g: Path = Path("x"),
        h: bytes = b"x",
        i: datetime = datetime(2020, 1, 1, tzinfo=UTC),
        j: Decimal = Decimal(1),
    ) -> None:
        """Takes one of each."""

    assert arguments_of(right).names == set("abcdefghij")
