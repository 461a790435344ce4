"""A form made from the schema of a tool: what it asks for, what it makes of the answers, and schemas that are none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.observe.schema_form import FormFault, form_arguments, form_fields

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "note": {"type": "string", "description": "What\nto say", "default": "hello"},
        "count": {"type": "integer"},
        "share": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "mode": {"$ref": "#/$defs/Mode"},
        "level": {"enum": [1, 2, "high"]},
        "sure": {"type": ["boolean", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}, "default": []},
    },
    "required": ["count", "note"],
    "$defs": {"Mode": {"enum": ["fast", "exact"]}},
}


def test_each_argument_is_asked_for_by_its_kind_and_the_required_ones_come_first() -> None:
    fields = {each.name: each for each in form_fields(SCHEMA)}
    assert [*fields][:2] == ["note", "count"]
    assert {name: each.kind for name, each in fields.items()} == {
        "note": "string",
        "count": "integer",
        "share": "number",
        "mode": "string",
        "level": "json",
        "sure": "json",
        "tags": "json",
    }
    assert (fields["note"].hint, fields["note"].value, fields["tags"].value) == ("What to say", "hello", "[]")
    assert (fields["mode"].choices, fields["level"].choices) == (["fast", "exact"], ["1", "2", '"high"'])
    assert fields["sure"].choices == ["true", "false"]


def test_what_was_filled_in_becomes_arguments_of_their_types() -> None:
    filled = {
        "argument.note": "{{7*7}}",
        "argument.count": " 3 ",
        "argument.share": "0.5",
        "argument.mode": "exact",
        "argument.level": "2",
        "argument.sure": "false",
        "argument.tags": '["a"]',
        "argument.other": "ignored",
    }
    assert form_arguments(SCHEMA, filled) == {
        "note": "{{7*7}}",
        "count": 3,
        "share": 0.5,
        "mode": "exact",
        "level": 2,
        "sure": False,
        "tags": ["a"],
    }


def test_empty_fields_are_left_out_and_required_text_may_be_empty() -> None:
    assert form_arguments(SCHEMA, dict.fromkeys((each.key for each in form_fields(SCHEMA)), "")) == {"note": ""}


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("count", "three", "must be a number"),
        ("count", "true", "must be a number"),
        ("count", '"3"', "must be a number"),
        ("tags", "[1,", "must be JSON"),
        ("mode", "slow", "must be one of fast, exact"),
        ("tags", "[" * 100_000, "must be JSON"),
    ],
)
def test_an_answer_that_cannot_be_read_is_refused_by_name(name: str, text: str, says: str) -> None:
    with pytest.raises(FormFault, match=f"{name} {says}"):
        form_arguments(SCHEMA, {f"argument.{name}": text})


MEANINGLESS: list[Any] = [
    {},
    {"properties": []},
    {"properties": {"a": None, "b": True, "c": 3}},
    {"properties": {"a": {"$ref": "#/properties/a"}}},
    {"properties": {"a": {"$ref": "https://elsewhere/x"}, "b": {"$ref": 3}}, "required": "a"},
    {"properties": {"a": {"enum": []}, "b": {"enum": [{}] * 1000}, "c": {"type": {}}}},
    {"properties": {"a": {"anyOf": [{"anyOf": [{"anyOf": "x"}]}]}, "b": {"type": ["string", "integer"]}}},
]


@pytest.mark.parametrize("schema", MEANINGLESS)
def test_a_schema_that_says_nothing_is_asked_for_as_json(schema: dict[str, Any]) -> None:
    assert {each.kind for each in form_fields(schema)} <= {"json"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "enum", "$ref", "anyOf", "properties", "default", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(properties=st.dictionaries(st.text(max_size=8), JSON, max_size=4), required=JSON, text=st.text(max_size=30))
@settings(max_examples=examples(200))
def test_no_schema_and_no_answer_breaks_the_form(properties: dict[str, Any], required: Any, text: str) -> None:
    schema = {"properties": properties, "required": required}
    fields = form_fields(schema)
    assert len(fields) == len(properties)
    try:
        found = form_arguments(schema, {each.key: text for each in fields})
    except FormFault as fault:
        assert str(fault)
    else:
        assert found.keys() <= properties.keys()
