"""Hints and defaults of common libraries: each is enforced, or refused with what to write instead."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import re
from collections.abc import Callable  # noqa: TC003 - read by a model
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, Required, TypedDict, TypeVar, cast

import annotated_types as at
import attrs
import fastapi
import msgspec
import pytest
import typing_extensions as te
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    HttpUrl,
    JsonValue,
    PositiveInt,
    SecretStr,
    StringConstraints,
    conint,
)
from pydantic import dataclasses as pydantic_dataclasses
from pydantic.v1 import BaseModel as OldModel

from greenroom import Server
from greenroom.protocol.function_parameters import BadHint
from greenroom.protocol.type_schemas import FunctionArguments, Mismatch, arguments_of, schema_of

REQUIRED = object()


def taking(hint: Any, default: Any = REQUIRED) -> Callable[..., Any]:
    """A function with one parameter."""
    if default is REQUIRED:

        def required(x: Any) -> None: ...

        made: Any = required
    else:

        def optional(x: Any = default) -> None: ...

        made = optional
    made.__annotations__["x"] = hint
    return cast("Callable[..., Any]", made)


def arguments(hint: Any, default: Any = REQUIRED) -> FunctionArguments:
    return arguments_of(taking(hint, default))


def refusal(hint: Any, sent: Any, default: Any = REQUIRED) -> str:
    with pytest.raises(Mismatch) as caught:
        arguments(hint, default).bind(sent)
    return str(caught.value)


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Size(enum.Enum):
    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"


class Shirt(BaseModel):
    size: Size


def doubled(value: int) -> int:
    return value * 2


def not_negative(value: int) -> int:
    if value < 0:
        raise ValueError("negative")
    return value


def parted(value: Any) -> Any:
    return value.split(",") if isinstance(value, str) else value


# --- pydantic


def test_a_field_as_default_describes_limits_and_requires() -> None:
    found = arguments(str, Field(description="what to look for", max_length=5))
    assert found.schema["properties"] == {"x": {"type": "string", "description": "what to look for", "maxLength": 5}}
    assert found.schema["required"] == ["x"]
    assert "expected at most 5 characters" in refusal(str, {"x": "far too long"}, Field(max_length=5))


def test_a_fields_default_is_what_the_function_gets() -> None:
    assert arguments(int, Field(3, ge=1)).bind({}) == {"x": 3}
    assert arguments(int, Field(3, ge=1)).schema["properties"]["x"]["default"] == 3
    assert arguments(Annotated[int, Field(default=7)]).bind({}) == {"x": 7}
    made = arguments(list[str], Field(default_factory=lambda: ["a"]))
    assert made.bind({}) == {"x": ["a"]}
    assert made.bind({})["x"] is not made.bind({})["x"]


def test_a_default_may_be_made_of_the_arguments_before_it() -> None:
    def tool(a: int, b: int = Field(default_factory=lambda before: before["a"] + 1)) -> None: ...

    assert arguments_of(tool).bind({"a": 1}) == {"a": 1, "b": 2}


def test_a_made_default_is_checked_where_that_was_asked_for() -> None:
    made = arguments(
        Annotated[int, AfterValidator(not_negative)], Field(default_factory=lambda: -1, validate_default=True)
    )
    with pytest.raises(msgspec.ValidationError, match="negative"):
        made.bind({})


def test_an_alias_is_what_peers_call_it() -> None:
    found = arguments(str, Field("a", alias="query"))
    assert list(found.schema["properties"]) == ["query"]
    assert found.bind({"query": "b"}) == {"x": "b"}
    assert found.bind({}) == {"x": "a"}
    assert "there is no such member" in refusal(str, {"x": "b"}, Field("a", alias="query"))
    assert arguments(str, Field(validation_alias="query")).bind({"query": "b"}) == {"x": "b"}


def test_two_parameters_of_one_alias_are_refused() -> None:
    def tool(a: int = Field(alias="n"), n: int = 0) -> None: ...

    with pytest.raises(BadHint, match="two parameters are called n by peers"):
        arguments_of(tool)


def test_a_discriminator_chooses() -> None:
    found = arguments(Cat | Dog, Field(discriminator="kind"))
    assert found.bind({"x": {"kind": "dog", "name": "Rex"}}) == {"x": Dog(kind="dog", name="Rex")}
    assert refusal(Cat | Dog, {"x": {"kind": "dog"}}, Field(discriminator="kind")) == "x: dog.name: Field required"


def test_validators_in_annotated_run() -> None:
    assert arguments(Annotated[int, AfterValidator(doubled), Field(gt=1)]).bind({"x": 3}) == {"x": 6}
    assert arguments(Annotated[list[str], BeforeValidator(parted)]).bind({"x": "a,b"}) == {"x": ["a", "b"]}
    assert "negative" in refusal(list[Annotated[int, AfterValidator(not_negative)]], {"x": [1, -3]})
    assert "expected an integer" in refusal(Annotated[int, AfterValidator(doubled)], {"x": "3"})
    upper = Annotated[str, StringConstraints(to_upper=True, strip_whitespace=True)]
    assert arguments(upper).bind({"x": " a "}) == {"x": "A"}


def test_types_of_pydantics_own() -> None:
    assert arguments(HttpUrl).bind({"x": "https://a.example/b"}) == {"x": HttpUrl("https://a.example/b")}
    assert "valid URL" in refusal(HttpUrl, {"x": "nope"})
    assert arguments(JsonValue).bind({"x": {"a": [1]}}) == {"x": {"a": [1]}}
    assert "expected more than 0" in refusal(PositiveInt, {"x": -1})
    assert "expected more than 3" in refusal(conint(gt=3), {"x": 3})


def test_limits_of_an_optional_are_of_what_is_there() -> None:
    for found in (arguments(Optional[int], Field(None, ge=1)), arguments(Annotated[int | None, at.Ge(1)], None)):  # noqa: UP045
        assert found.schema["properties"]["x"]["anyOf"] == [{"type": "integer", "minimum": 1}, {"type": "null"}]
        with pytest.raises(Mismatch, match="expected at least 1, got 0"):
            found.bind({"x": 0})


def test_limits_that_msgspec_cannot_keep_are_kept_by_pydantic() -> None:
    assert "greater than 2020-01-01" in refusal(Annotated[dt.date, Field(gt=dt.date(2020, 1, 1))], {"x": "2019-01-01"})
    assert "greater than or equal to 1" in refusal(Annotated[Decimal, Field(ge=1, max_digits=3)], {"x": "0"})


@pydantic_dataclasses.dataclass
class Checked:
    x: int = Field(gt=1)


@dataclass
class PlainWithField:
    x: int = Field(gt=1)


@dataclass
class Inside:
    x: Annotated[int, Field(gt=1)]
    many: list[int] = field(default_factory=list[int])


class Partial(te.TypedDict, total=False):
    x: Required[Annotated[int, Field(gt=1)]]
    y: NotRequired[str]


NEW_TYPE: Any = NewType
UserId = NEW_TYPE("UserId", Annotated[int, Field(gt=1)])


@pytest.mark.parametrize("kind", [Checked, PlainWithField, Inside, Partial], ids=lambda kind: kind.__name__)
def test_fields_inside_of_classes_are_kept(kind: Any) -> None:
    assert "expected more than 1, got 1" in refusal(kind, {"x": {"x": 1}})
    assert arguments(kind).bind({"x": {"x": 2}})
    assert "x.x: is missing" in refusal(kind, {"x": {}})


def test_a_secret_is_in_no_message_schema_or_repr() -> None:
    for hint in (SecretStr, Annotated[SecretStr, Field(min_length=20)]):
        for sent in (["hunter2"], {"hunter2": 1}):
            assert "hunter2" not in refusal(hint, {"x": sent})
    assert "hunter2" not in refusal(Annotated[SecretStr, Field(min_length=20)], {"x": "hunter2"})
    bound = arguments(SecretStr).bind({"x": "hunter2"})
    assert bound["x"].get_secret_value() == "hunter2"
    assert "hunter2" not in repr(bound)
    assert "hunter2" not in str(arguments(SecretStr, SecretStr("hunter2")).schema)


class Login(BaseModel):
    name: str
    password: SecretStr


def test_a_secret_in_a_model_or_list_is_in_no_message() -> None:
    for hint in (Login, list[Login], dict[str, SecretStr]):
        assert "hunter2" not in refusal(hint, {"x": ["hunter2"] if hint == list[Login] else {"password": ["hunter2"]}})


def test_an_enum_may_be_a_parameter_and_in_a_model() -> None:
    def tool(size: Size, shirt: Shirt) -> None: ...

    found = arguments_of(tool)
    assert [each["enum"] for each in found.schema["$defs"].values()] == [["small", "medium", "large"]] * 2
    assert found.bind({"size": "small", "shirt": {"size": "large"}})["shirt"].size is Size.LARGE


class Callback(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    call: Callable[[int], int]


class Struct(msgspec.Struct):
    x: Annotated[int, Field(gt=1)]


class Old(OldModel):
    x: int


@attrs.define
class Converted:
    x: int = attrs.field(converter=int)


@attrs.define
class Renamed:
    x: int = attrs.field(alias="y")


@attrs.define
class SetByItself:
    x: int = attrs.field(init=False, default=3)


@attrs.define
class OfItself:
    x: int = 1
    y: int = attrs.field(default=attrs.Factory(lambda self: self.x, takes_self=True))


@attrs.define
class Bare:
    x = attrs.field(default=3)  # type: ignore[var-annotated]  # pyright: ignore[reportGeneralTypeIssues] - the mistake under test


@dataclass
class SetByClass:
    x: int = field(init=False, default=3)


@dataclass
class ForInit:
    x: InitVar[int] = 3


def dependency() -> str:
    return "a"


@pytest.mark.parametrize(
    ("hint", "default", "why"),
    [
        (int, Field(exclude=True), r"x: Field\(exclude=…\) has no effect on a parameter"),
        (
            int,
            Field(validation_alias=AliasChoices("a", "b")),
            r'AliasChoices is no argument name.*Field\(alias="one_name"\)',
        ),
        (int, Field(serialization_alias="a"), r"serialization_alias is for output.*Field\(alias=…\)"),
        (int, Field(3, le=2), "the default of x, 3, does not fit its hint"),
        (list[Annotated[int, Field(alias="a")]], REQUIRED, "pydantic would ignore a part of it: The 'alias' attribute"),
        (Struct, REQUIRED, r"Struct\.x: .*it does not know Struct: .*msgspec\.Meta"),
        (Callback, REQUIRED, "x has no schema: Cannot generate a JsonSchema"),
        (Old, REQUIRED, "Old is a model of pydantic 1"),
        (str, fastapi.Query("a"), r"its default is fastapi\.params\.Query, which means nothing here"),
        (str, fastapi.Depends(dependency), r"fastapi\.params\.Depends, which means nothing here"),
        (Annotated[str, fastapi.Depends(dependency)], REQUIRED, r"fastapi\.params\.Depends has no effect here"),
        (int, dataclasses.field(default=1), "its default is a field.*write the value itself"),
        (int, msgspec.field(default=1), "its default is a field.*write the value itself"),
        (int, attrs.field(default=1), "which means nothing here: write the value itself"),
        (Annotated[int, attrs.validators.gt(1)], REQUIRED, "has no effect here: write msgspec.Meta"),
        (Annotated[int, doubled], REQUIRED, "is code, which no schema can express.*AfterValidator"),
        (Annotated[str, re.compile("^a")], REQUIRED, r"write msgspec\.Meta\(pattern='\^a'\)"),
        (Annotated[int, range(3)], REQUIRED, r"write msgspec\.Meta with ge="),
        (Annotated[dt.date, at.Gt(dt.date(2020, 1, 1))], REQUIRED, "a limit is a number"),
        (Annotated[str, at.LowerCase], REQUIRED, "is code, which no schema can express"),
        (Annotated[str, at.Timezone("Europe/Oslo")], REQUIRED, "cannot be expressed in a schema"),
        (Annotated[int, at.MaxLen(3)], REQUIRED, "Can only set `max_length` on"),
        (Annotated[list[int] | list[str], at.MinLen(1)], REQUIRED, "write it at the member"),
        (Converted, REQUIRED, r"Converted\.x: its converter would not run"),
        (Renamed, REQUIRED, r"Renamed\.x: its alias y would not be used"),
        (SetByItself, REQUIRED, r"SetByItself\.x: a field with init=False"),
        (OfItself, REQUIRED, r"OfItself\.y: its factory needs the object"),
        (Bare, REQUIRED, r"Bare\.x has no hint"),
        (SetByClass, REQUIRED, r"SetByClass\.x: a field with init=False"),
        (ForInit, REQUIRED, "InitVar"),
        ("what to look for", REQUIRED, r"is no type.*Annotated\[str"),
    ],
)
def test_metadata_that_would_be_lost_is_refused_at_registration(hint: Any, default: Any, why: str) -> None:
    with pytest.raises(BadHint, match=why):
        arguments(hint, default)


def test_metadata_for_other_tools_is_ignored() -> None:
    assert schema_of(Annotated[int, {"for": "others"}, int]) == {"type": "integer"}


# --- attrs, dataclasses, TypedDict, NewType, annotated-types


@attrs.define
class Order:
    cups: int = attrs.field(validator=attrs.validators.gt(1))
    tags: list[str] = attrs.field(factory=list[str])


def test_attrs_classes_keep_factories_and_validators() -> None:
    assert arguments(Order).bind({"x": {"cups": 2}}) == {"x": Order(2, [])}
    assert "must be > 1" in refusal(Order, {"x": {"cups": 1}})
    assert arguments(Order).schema["$defs"]["Order"]["required"] == ["cups"]


@dataclass
class Made:
    many: list[int] = field(default_factory=lambda: [1])

    def __post_init__(self) -> None:
        if self.many == [9]:
            raise ValueError("no nines")


def test_dataclasses_keep_factories_and_their_own_checks() -> None:
    assert arguments(Made).bind({"x": {}}) == {"x": Made([1])}
    assert "no nines" in refusal(Made, {"x": {"many": [9]}})


class Half(TypedDict, total=False):
    a: int
    b: Required[str]


class Whole(TypedDict):
    a: NotRequired[int]
    b: str


@pytest.mark.parametrize("kind", [Half, Whole])
def test_typed_dicts_require_what_they_say(kind: Any) -> None:
    assert arguments(kind).schema["$defs"][kind.__name__]["required"] == ["b"]
    assert "x.b: is missing" in refusal(kind, {"x": {"a": 1}})


LimitedId = NEW_TYPE("LimitedId", Annotated[int, at.Gt(1)])
Alias = te.TypeAliasType("Alias", Annotated[int, at.Gt(1)])
T = TypeVar("T")
NotEmpty = te.TypeAliasType("NotEmpty", Annotated[list[T], at.MinLen(1)], type_params=(T,))


@pytest.mark.parametrize("hint", [UserId, LimitedId, Alias])
def test_limits_behind_another_name_are_kept(hint: Any) -> None:
    assert refusal(hint, {"x": 1}) == "x: expected more than 1, got 1"


def test_a_generic_alias_is_filled_in() -> None:
    assert refusal(NotEmpty.__getitem__(int), {"x": []}) == "x: expected at least 1 item, got 0"


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (Annotated[float, at.Unit("m")], {"type": "number", "x-unit": "m"}),
        (Annotated[int, at.doc("how many")], {"type": "integer", "description": "how many"}),
        (Annotated[dt.datetime, at.Timezone(...)], {"type": "string", "format": "date-time"}),
        (Annotated[dt.datetime, at.Timezone(None)], {"type": "string"}),
    ],
    ids=str,
)
def test_further_annotated_types(hint: Any, schema: Any) -> None:
    assert schema_of(hint) == schema


# --- written order and descriptions


class Stat(TypedDict):
    name: str
    minimum: int
    average: int


@dataclass
class Poll:
    size: Annotated[Size, "how large"]
    unit: Annotated[Literal["s", "min", "h"], te.Doc("of time")] = "min"


def test_choices_and_members_stay_as_they_were_written() -> None:
    def tool(
        size: Size, stat: Stat, poll: Poll, how: Literal["small", "medium", "large"], many: list[Literal["b", "a"]]
    ) -> None: ...

    schema = arguments_of(tool).schema
    assert schema["properties"]["how"]["enum"] == ["small", "medium", "large"]
    assert schema["properties"]["many"]["items"]["enum"] == ["b", "a"]
    defs = schema["$defs"]
    assert defs["Size"]["enum"] == ["small", "medium", "large"]
    assert list(defs["Stat"]["properties"]) == ["name", "minimum", "average"] == defs["Stat"]["required"]
    assert defs["Poll"]["properties"]["unit"]["enum"] == ["s", "min", "h"]


def test_a_description_inside_of_a_class_is_in_the_schema() -> None:
    members = schema_of(Poll)["properties"]
    assert members["size"]["description"] == "how large"
    assert members["unit"]["description"] == "of time"


# --- prompts, templates and schemas written by hand


def test_a_prompts_argument_is_described_by_its_field() -> None:
    server = Server("x")

    @server.prompt
    def ask(topic: str = Field(description="of what"), tone: str = Field("dry", alias="voice")) -> str:
        return f"{topic} {tone}"

    entry = server.registry.catalogue.prompt("ask")
    assert entry is not None
    assert entry.wire["arguments"] == [
        {"name": "topic", "description": "of what", "required": True},
        {"name": "voice"},
    ]
    assert entry.binder.bind({"topic": "a"}) == {"topic": "a", "tone": "dry"}


def test_a_field_beside_a_schema_by_hand_is_refused() -> None:
    with pytest.raises(ValueError, match="this schema is written by hand"):
        Server("x").tool(input_schema={"type": "object"})(taking(str, Field(description="a")))
