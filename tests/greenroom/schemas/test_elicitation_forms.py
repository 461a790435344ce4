"""Elicitation forms from types, and conversion of answers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pytest
from pydantic import BaseModel

from greenroom.protocol.elicitation_forms import Email, Titles, Uri, form_of, parse_answer
from greenroom.protocol.function_parameters import BadHint
from greenroom.protocol.type_schemas import Mismatch


class Status(Enum):
    INACTIVE = "inactive"
    ACTIVE = "active"
    PENDING = "pending"


TITLES = Titles({"r": "Red", "g": "Green"})


@dataclass
class Defaults:
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Status = Status.ACTIVE
    verified: bool = True


@dataclass
class Choices:
    untitled: Literal["r", "g"]
    titled: Annotated[Literal["r", "g"], TITLES]
    legacy: Annotated[Literal["r", "g"], Titles(TITLES.of, legacy=True)]
    many: Annotated[list[Literal["r", "g"]], msgspec.Meta(min_length=1, max_length=2)]
    many_titled: Annotated[list[Literal["r", "g"]], TITLES]


@dataclass
class Texts:
    """A person.

    Attributes:
        mail: where to write to
    """

    mail: Email
    page: Uri
    born: date
    seen: datetime
    nick: Annotated[str, msgspec.Meta(title="Nickname", min_length=2, max_length=5, pattern="^[a-z]+$")] = "abc"
    spouse: str | None = None
    age: Annotated[int, msgspec.Meta(gt=0, lt=150)] = 1


def field(kind: Any) -> Any:
    """The field of a form from a single type."""
    return form_of(kind)["properties"]["value"]


def test_defaults_of_every_kind() -> None:
    assert form_of(Defaults) == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["inactive", "active", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        },
    }
    assert parse_answer(Defaults, {}) == Defaults()
    assert parse_answer(Defaults, {"status": "pending", "score": 3}) == Defaults(status=Status.PENDING, score=3.0)


def test_all_five_shapes_of_choices() -> None:
    titled = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]
    assert form_of(Choices)["properties"] == {
        "untitled": {"type": "string", "enum": ["r", "g"]},
        "titled": {"type": "string", "oneOf": titled},
        "legacy": {"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]},
        "many": {"type": "array", "items": {"type": "string", "enum": ["r", "g"]}, "minItems": 1, "maxItems": 2},
        "many_titled": {"type": "array", "items": {"anyOf": titled}},
    }
    answer = {"untitled": "r", "titled": "g", "legacy": "r", "many": ["g"], "many_titled": []}
    assert parse_answer(Choices, answer) == Choices("r", "g", "r", ["g"], [])
    wrong = {"untitled": "b", "titled": "b", "legacy": "b", "many": [], "many_titled": ["b"]}
    assert refused(Choices, wrong) == {("untitled",), ("titled",), ("legacy",), ("many",), ("many_titled", 0)}


def refused(kind: Any, answer: Any) -> set[tuple[str | int, ...]]:
    with pytest.raises(Mismatch) as caught:
        parse_answer(kind, answer)
    return {path for path, _ in caught.value.errors}


def test_formats_limits_and_descriptions() -> None:
    form = form_of(Texts)
    assert form["required"] == ["mail", "page", "born", "seen"]
    assert form["properties"] == {
        "mail": {"type": "string", "format": "email", "description": "where to write to"},
        "page": {"type": "string", "format": "uri"},
        "born": {"type": "string", "format": "date"},
        "seen": {"type": "string", "format": "date-time"},
        "nick": {"type": "string", "title": "Nickname", "minLength": 2, "maxLength": 5, "default": "abc"},
        "spouse": {"type": "string"},
        "age": {"type": "integer", "minimum": 1, "maximum": 149, "default": 1},
    }
    answer = {"mail": "a@b.c", "page": "https://b.c", "born": "2026-01-02", "seen": "2026-01-02T03:04:05Z"}
    assert parse_answer(Texts, answer) == Texts(
        "a@b.c", "https://b.c", date(2026, 1, 2), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    )
    assert refused(Texts, {"mail": "a", "page": "b", "born": "c", "seen": "d", "nick": "e", "age": 0}) == {
        ("mail",), ("page",), ("born",), ("seen",), ("nick",), ("age",),
    }  # fmt: skip


def test_constraints_beyond_the_form_are_still_checked() -> None:
    answer = {"mail": "a@b.c", "page": "https://b.c", "born": "2026-01-02", "seen": "2026-01-02T03:04:05Z"}
    assert refused(Texts, {**answer, "nick": "ABC"}) == {("nick",)}


@pytest.mark.parametrize(
    ("kind", "value", "sent"),
    [(int, 3, 3), (str, "a", "a"), (bool, True, True), (float, 2.0, 2), (Status, Status.ACTIVE, "active"), (list[Status], [Status.ACTIVE], ["active"])],
)  # fmt: skip
def test_a_single_type_is_a_form_with_one_field(kind: Any, value: Any, sent: Any) -> None:
    form = form_of(kind)
    assert form["required"] == ["value"]
    assert parse_answer(kind, {"value": sent}) == value
    assert refused(kind, {}) == {("value",)}


def test_other_classes_with_fields() -> None:
    class Dict(TypedDict):
        a: int
        b: NotRequired[Annotated[Literal["r", "g"], TITLES]]

    class Struct(msgspec.Struct):
        a: int = 3

    class Model(BaseModel):
        a: int
        s: Status = Status.ACTIVE

    assert form_of(Dict)["required"] == ["a"]
    assert parse_answer(Dict, {"a": 1}) == {"a": 1}
    assert parse_answer(Struct, {}) == Struct(3)
    assert form_of(Model)["properties"]["s"] == {
        "type": "string",
        "enum": ["inactive", "active", "pending"],
        "default": "active",
    }
    assert parse_answer(Model, {"a": 1}) == Model(a=1)


@pytest.mark.parametrize("content", [None, [], "a", 3])
def test_an_answer_is_an_object(content: Any) -> None:
    assert refused(Defaults, content) == {()}


@dataclass
class Nested:
    inner: Defaults


class Numbers(Enum):
    ONE = 1


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Nested, "inner is no string, number.*flat"),
        (list[int], "list without choices"),
        (dict[str, int], "flat"),
        (bytes, "flat"),
        (Numbers, "choices that are not strings"),
        (int | str, "flat"),
        ({"type": "array"}, "a form must be an object"),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, "a has the type 'object'"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "items without choices"),
    ],
)
def test_a_type_that_is_no_flat_form_is_refused(kind: Any, why: str) -> None:
    with pytest.raises(BadHint, match=why):
        form_of(kind)


def test_a_form_written_by_hand() -> None:
    form = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    assert form_of(form) == form
    assert parse_answer(form, {"ok": True}) == {"ok": True}
    assert refused(form, {"ok": "yes"}) == {("ok",)}
