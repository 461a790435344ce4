"""Forms as fields, and typed text as values, for every type of field in the protocol."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.actors.elicitation.bridge import FormChoice, InvalidAnswer, fields_of


def field(**schema: Any) -> Any:
    return fields_of({"properties": {"it": schema}})[0]


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, " Ada ", "Ada"),
        ({"type": "string", "default": "Ada"}, "", "Ada"),
        ({"type": "string"}, "", None),
        ({"type": "string", "format": "email"}, "ada@example.org", "ada@example.org"),
        ({"type": "string", "format": "uri"}, "https://example.org/x", "https://example.org/x"),
        ({"type": "string", "format": "date"}, "2026-02-28", "2026-02-28"),
        ({"type": "string", "format": "date-time"}, "2026-02-28T01:02:03Z", "2026-02-28T01:02:03Z"),
        ({"type": "integer", "minimum": 1, "maximum": 3}, "3", 3),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean", "default": True}, "n", False),
        ({"type": "boolean", "default": False}, "", False),
        ({"type": "string", "enum": ["a", "b"]}, "b", "b"),
        ({"type": "string", "enum": ["a", "b"]}, "2", "b"),
        ({"type": "string", "enum": ["2", "1"]}, "2", "2"),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["Apple", "Berry"]}, "berry", "b"),
        ({"type": "string", "oneOf": [{"const": "a", "title": "Apple"}]}, "Apple", "a"),
        ({"type": "array", "items": {"enum": ["a", "b", "c"]}}, "c, 1, c", ["c", "a"]),
        ({"type": "array", "items": {"anyOf": [{"const": "x", "title": "Ex"}]}}, "ex", ["x"]),
    ],
)
def test_typed_text_becomes_a_value(schema: dict[str, Any], typed: str, value: Any) -> None:
    assert field(**schema).read(typed) == value


@pytest.mark.parametrize(
    ("schema", "typed", "says"),
    [
        ({"type": "string", "minLength": 3}, "ab", "at least 3 characters, not 2"),
        ({"type": "string", "maxLength": 3}, "abcd", "at most 3 characters"),
        ({"type": "string", "format": "email"}, "ada", "is not an e-mail address"),
        ({"type": "string", "format": "uri"}, "example", "is not a URI"),
        ({"type": "string", "format": "date"}, "2026-02-30", "is not a date"),
        ({"type": "string", "format": "date-time"}, "2026-02-28T01:02:03", "is not a moment with its zone"),
        ({"type": "integer"}, "2.5", "is not a whole number"),
        ({"type": "integer", "minimum": 1, "maximum": 3}, "4", "4 is not 1 to 3"),
        ({"type": "number"}, "nan", "is not a finite number"),
        ({"type": "number"}, "much", "is not a number"),
        ({"type": "boolean"}, "perhaps", "neither yes nor no"),
        ({"type": "string", "enum": ["a", "b"]}, "3", "is not one of a, b"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2}, "a", "pick at least 2 of them, not 1"),
        ({"type": "string", "enum": ["a", "b"]}, "²", "'²' is not one of a, b"),
        ({"type": "string", "enum": ["a", "b"]}, "٢", "is not one of a, b"),
        ({"type": "string", "enum": ["a", "b"]}, "1" * 5000, "is not one of a, b"),
        ({"type": "integer"}, "9" * 400, "is not a finite number"),
        ({"type": "number"}, "-1e999", "is not a finite number"),
        ({"type": "integer", "minimum": 1, "maximum": 10**400}, "0", "0 is not at least 1"),
    ],
)
def test_invalid_input_is_reported_in_words(schema: dict[str, Any], typed: str, says: str) -> None:
    with pytest.raises(InvalidAnswer, match=says):
        field(**schema).read(typed)


def test_a_form_is_its_fields_in_order() -> None:
    fields = fields_of(
        {
            "properties": {
                "name": {"type": "string", "title": "Your name", "description": "As on the badge"},
                "days": {"type": "integer", "minimum": 1, "default": 2},
                "kind": {"type": "string", "enum": ["a"], "enumNames": ["Apple"]},
            },
            "required": ["name"],
        }
    )

    assert [(each.name, each.label, each.kind, each.required) for each in fields] == [
        ("name", "Your name", "text", True),
        ("days", "days", "integer", False),
        ("kind", "kind", "one of", False),
    ]
    assert [each.hint for each in fields] == ["", "a whole number, at least 1", "Apple"]
    assert fields[2].choices == [FormChoice("a", "Apple")]
    with pytest.raises(InvalidAnswer, match="Your name is required"):
        fields[0].read("")


@pytest.mark.parametrize(("value", "text"), [(True, "yes"), (False, "no"), (["a", "b"], "a, b"), (None, ""), (2, "2")])
def test_a_value_is_shown_as_it_would_be_typed(value: Any, text: str) -> None:
    assert field(type="string").shown(value) == text


@pytest.mark.parametrize(
    "schema", [{}, {"properties": []}, {"properties": {"a": 1}}, {"properties": {}, "required": 3}]
)
def test_a_schema_that_is_no_form_has_no_fields(schema: dict[str, Any]) -> None:
    assert fields_of(schema) == []
