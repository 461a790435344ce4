"""pydantic's models as parameters and results."""

from __future__ import annotations

from datetime import date
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from greenroom.protocol.results import tool_result
from greenroom.protocol.returns import returns_of
from greenroom.protocol.schemas import Mismatch, arguments_of, into, schema_of


class Town(BaseModel):
    """A town."""

    name: str = Field(alias="Name")
    founded: date | None = None


class Trip(BaseModel):
    towns: list[Town]
    days: int = Field(ge=1)


def plan(trip: Trip, title: str | None = None, home: Town | None = None) -> Trip:
    """Plan a trip."""
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
        into(Trip, {"towns": [], "days": 0})


def test_a_model_is_a_result() -> None:
    returns = returns_of(plan)
    assert returns is not None
    assert not returns.wrapped
    wire = tool_result(Trip(towns=[Town(Name="Oslo")], days=1), returns)
    assert wire["structuredContent"] == {"towns": [{"Name": "Oslo", "founded": None}], "days": 1}
    assert returns.errors(wire["structuredContent"]) == []


def test_models_in_unions_and_lists() -> None:
    assert into(list[Town] | int, 3) == 3
    assert into(list[Town] | int, [{"Name": "a"}]) == [Town(Name="a")]
    assert into(Town | int, {"Name": "a"}) == Town(Name="a")
    assert schema_of(Trip)["type"] == "object"


def test_a_fields_description_in_annotated() -> None:
    def tool(days: Annotated[int, Field(ge=1, description="how many")]) -> None: ...

    assert arguments_of(tool).schema["properties"]["days"] == {
        "type": "integer",
        "minimum": 1,
        "description": "how many",
    }
