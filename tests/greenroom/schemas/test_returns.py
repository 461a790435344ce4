"""Return hints as output schemas, and the check of returned data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest

from greenroom.protocol.content import Block, Image, Text
from greenroom.protocol.errors import ToolError
from greenroom.protocol.function_parameters import BadHint
from greenroom.protocol.handler_results import CallToolResult, ReturnSchema, Structured, return_schema_of, tool_result


@dataclass
class Day:
    name: str
    high: float = 0.0


def promising(hint: Any) -> Callable[..., Any]:
    def tool() -> None: ...

    tool.__annotations__["return"] = hint
    return tool


def returns(hint: Any) -> ReturnSchema:
    found = return_schema_of(promising(hint))
    assert found is not None
    return found


DAY = {
    "title": "Day",
    "type": "object",
    "properties": {"name": {"type": "string"}, "high": {"type": "number", "default": 0.0}},
    "required": ["name"],
}


def test_an_object_is_its_own_schema() -> None:
    assert returns(Day).schema == DAY
    assert not returns(Day).wrapped


@pytest.mark.parametrize(
    ("hint", "inner"),
    [
        (int, {"type": "integer"}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (Day | None, {"anyOf": [{"$ref": "#/$defs/Day"}, {"type": "null"}]}),
        (Annotated[int, msgspec.Meta(ge=0)], {"type": "integer", "minimum": 0}),
        (int | ToolError, {"type": "integer"}),
    ],
    ids=str,
)
def test_a_value_that_is_no_object_goes_under_result(hint: Any, inner: Any) -> None:
    schema = dict(returns(hint).schema)
    schema.pop("$defs", None)
    assert schema == {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    assert returns(hint).wrapped


def test_definitions_stay_where_references_look_for_them() -> None:
    assert returns(list[Day]).schema["$defs"] == {"Day": DAY}


@pytest.mark.parametrize(
    "hint",
    [
        None, Any, object, str, bytes, dict, dict[str, Any], list, list[Any], tuple, str | None, Text, Block, list[Block],
        list[Text | str], Sequence[Image], tuple[Text, ...], CallToolResult, Structured, ToolError, Day | str, str | ToolError,
        Day | CallToolResult, Annotated[str, "said"],
    ],
    ids=str,
)  # fmt: skip
def test_text_blocks_and_anything_promise_nothing(hint: Any) -> None:
    assert return_schema_of(promising(hint)) is None


def test_no_hint_promises_nothing() -> None:
    def tool(): ...  # type: ignore[no-untyped-def]  # noqa: ANN202

    assert return_schema_of(tool) is None


def test_a_return_hint_without_a_schema_is_refused_at_registration() -> None:
    with pytest.raises(BadHint, match=r"complex.*cannot be expressed in JSON"):
        return_schema_of(promising(complex))


def test_a_hint_for_checkers_only_promises_nothing() -> None:
    assert return_schema_of(promising("OnlyForCheckers")) is None


@pytest.mark.row("TF-05")
def test_a_promised_value_is_structured_and_shown() -> None:
    assert tool_result(Day("Mon", 3), returns(Day)) == {
        "content": [{"type": "text", "text": '{"name":"Mon","high":3}'}],
        "structuredContent": {"name": "Mon", "high": 3},
        "isError": False,
    }
    assert tool_result([Day("Mon")], returns(list[Day]))["structuredContent"] == {
        "result": [{"name": "Mon", "high": 0.0}],
    }
    assert tool_result(None, returns(Day | None))["structuredContent"] == {"result": None}
    assert tool_result(7, returns(int))["content"] == [{"type": "text", "text": "7"}]


def test_a_whole_result_is_sent_as_returned() -> None:
    assert "structuredContent" not in tool_result(ToolError("no"), returns(Day))
    assert "structuredContent" not in tool_result(CallToolResult.ok("x"), returns(Day))
    assert tool_result(Structured({"name": "a"}), returns(Day))["structuredContent"] == {"name": "a"}


@pytest.mark.row("TF-08")
def test_a_result_that_breaks_its_schema_is_reported_with_all_problems() -> None:
    assert returns(Day).errors({"name": "Mon", "high": 3}) == []
    assert [(path, reason.kind) for path, reason in returns(Day).errors({"high": "x"})] == [
        (("high",), "type_mismatch"),
        (("name",), "missing_required"),
    ]
    found = returns(list[Day]).errors({"result": [{"name": 1}]})
    assert [path for path, _ in found] == [("result", 0, "name")]
    assert returns(int).errors({"result": 1, "more": 2}) != []
    assert returns(int).errors({}) != []


def test_the_checked_data_is_the_sent_data() -> None:
    assert [(path, str(reason)) for path, reason in returns(float).errors({"result": float("nan")})] == [
        (("result",), "expected a number, got NaN is null in JSON, which the hint must allow (`float | None`)"),
    ]
