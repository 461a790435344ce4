"""pydantic's models as parameters and results."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from greenroom.protocol import pydantic_models
from greenroom.protocol.handler_results import return_schema_of, tool_result
from greenroom.protocol.pydantic_models import MOST
from greenroom.protocol.type_schemas import Mismatch, arguments_of, convert_json, schema_of, typed_schema_of
from greenroom.protocol.validation_errors import STEPS_IN_THREAD, StepMeter, StepsExceeded


class Town(BaseModel):
    """A town."""

    name: str = Field(alias="Name")
    founded: date | None = None


class Trip(BaseModel):
    towns: list[Town]
    days: int = Field(ge=1)


def plan(trip: Trip, title: str | None = None, home: Town | None = None) -> Trip:
    """Plans a trip."""
    return trip


def test_a_model_is_a_parameter() -> None:
    arguments = arguments_of(plan)
    assert arguments.schema["properties"]["trip"]["properties"]["days"] == {
        "minimum": 1,
        "title": "Days",
        "type": "integer",
    }
    assert set(arguments.schema["$defs"]) >= {"Town"}
    sent = {"trip": {"towns": [{"Name": "Oslo", "founded": "1048-01-01"}], "days": 2}}
    trip = arguments.bind(sent)["trip"]
    assert trip == Trip(towns=[Town(Name="Oslo", founded=date(1048, 1, 1))], days=2)


def test_a_model_coerces_no_more_than_anything_else() -> None:
    with pytest.raises(Mismatch) as caught:
        arguments_of(plan).bind({"trip": {"towns": [{}], "days": "2"}})
    assert {(path, reason.kind) for path, reason in caught.value.errors} == {
        (("trip", "towns", 0, "Name"), "missing_required"),
        (("trip", "days"), "type_mismatch"),
    }
    with pytest.raises(Mismatch):
        convert_json(Trip, {"towns": [], "days": 0})


def test_a_model_is_a_result() -> None:
    returns = return_schema_of(plan)
    assert returns is not None
    assert not returns.wrapped
    wire = tool_result(Trip(towns=[Town(Name="Oslo")], days=1), returns)
    assert wire["structuredContent"] == {"towns": [{"Name": "Oslo", "founded": None}], "days": 1}
    assert returns.errors(wire["structuredContent"]) == []


def test_models_in_unions_and_lists() -> None:
    assert convert_json(list[Town] | int, 3) == 3
    assert convert_json(list[Town] | int, [{"Name": "a"}]) == [Town(Name="a")]
    assert convert_json(Town | int, {"Name": "a"}) == Town(Name="a")
    assert schema_of(Trip)["type"] == "object"


def test_a_fields_description_in_annotated() -> None:
    def tool(days: Annotated[int, Field(ge=1, description="how many")]) -> None: ...

    assert arguments_of(tool).schema["properties"]["days"] == {
        "type": "integer",
        "minimum": 1,
        "description": "how many",
    }


class Parcel(BaseModel):
    numbers: list[int] = []
    towns: list[Town] = []
    words: list[str] = []
    lists: list[list[int]] = []


WRONG: list[Any] = [
    {"numbers": [None] * 5_000},
    {"numbers": [0.5] * 5_000},
    {"numbers": [*range(5_000), "1"]},
    {"towns": [1] * 5_000},
    {"towns": [{}] * 5_000},
    {"numbers": {str(number): number for number in range(5_000)}},
]
TOO_MUCH: list[Any] = [
    {"towns": [{"Name": "a"}] * (MOST // 2)},
    {"towns": [{"Name": "a", "founded": None}] * MOST},
    {"words": ["a"] * MOST},
    {"lists": [[]] * MOST},
]


@pytest.mark.parametrize("sent", WRONG)
@pytest.mark.parametrize("kind", [Parcel, list[Parcel], Parcel | None])
def test_pydantic_is_not_given_many_values_that_its_schema_refuses(
    monkeypatch: pytest.MonkeyPatch, sent: Any, kind: Any
) -> None:
    """An error is allocated by pydantic for each mistake, which blocks the interpreter meanwhile."""
    given: list[Any] = []

    def spied(_: Any, value: Any, **__: Any) -> None:
        given.append(value)

    monkeypatch.setattr(pydantic_models, "from_json", spied)
    with pytest.raises(Mismatch):
        convert_json(kind, [sent] if kind == list[Parcel] else sent)
    assert not given


def test_many_whole_numbers_with_a_point_come_to_pydantic_as_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    real = pydantic_models.from_json

    def spied(kind: Any, value: Any, **options: Any) -> Any:
        given.append(value)
        return real(kind, value, **options)

    monkeypatch.setattr(pydantic_models, "from_json", spied)
    made = convert_json(Parcel, {"numbers": [3.0] * 2_000})
    assert made.numbers == [3] * 2_000
    assert [{type(one) for one in each["numbers"]} for each in given] == [{int}]


@pytest.mark.parametrize("sent", TOO_MUCH)
def test_pydantic_is_not_given_more_than_it_makes_in_a_moment(monkeypatch: pytest.MonkeyPatch, sent: Any) -> None:
    def spied(*_: Any, **__: Any) -> None:
        pytest.fail("it was given them")

    monkeypatch.setattr(Parcel, "model_validate_json", spied)
    with pytest.raises(Mismatch, match=f"more than {MOST} strings, lists and objects, which is too much for a Parcel"):
        typed_schema_of(Parcel).convert(sent, StepMeter(STEPS_IN_THREAD))


def test_only_models_are_bounded() -> None:
    many = ["a"] * (MOST + 1)

    def tool(parcel: Parcel, others: list[str]) -> None:
        """Takes a parcel and others."""

    assert arguments_of(tool).bind({"parcel": {}, "others": many}, StepMeter(STEPS_IN_THREAD))["others"] == many
    assert (
        len(typed_schema_of(list[Parcel]).convert([{"words": ["a"] * 9}] * (MOST // 9), StepMeter(STEPS_IN_THREAD)))
        == MOST // 9
    )


def test_much_for_a_model_goes_on_in_a_thread() -> None:
    sent = {"numbers": [1] * 100_000}
    with pytest.raises(StepsExceeded):
        typed_schema_of(Parcel).convert(sent, StepMeter())
    assert typed_schema_of(Parcel).convert(sent, StepMeter(STEPS_IN_THREAD)).numbers == sent["numbers"]
    with pytest.raises(StepsExceeded):
        typed_schema_of(Parcel).convert({"numbers": [1] * 900}, StepMeter(900))


def test_pydantic_is_given_much_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that fits the schema but not the model has no differently written number."""
    given: list[Any] = []

    def refused(_: Any, value: Any, **__: Any) -> Any:
        given.append(value)
        raise ValueError("not these")

    monkeypatch.setattr(pydantic_models, "from_json", refused)
    with pytest.raises(Mismatch, match="not these"):
        convert_json(Parcel, {"numbers": [1] * 2_000})
    assert len(given) == 1


@pytest.mark.parametrize("hint", [Parcel, list[Parcel], Parcel | Trip])
def test_a_result_of_ours_may_be_larger(hint: Any) -> None:
    def tool() -> None:
        """Returns one."""

    tool.__annotations__["return"] = hint
    returns = return_schema_of(tool)
    assert returns is not None
    parcel = {"words": ["a"] * (MOST + 1)}
    value = [parcel] if hint == list[Parcel] else parcel
    # The result is checked against the announced schema, which costs steps: as many as a thread has.
    assert returns.errors({"result": value} if returns.wrapped else value, StepMeter(STEPS_IN_THREAD)) == []
