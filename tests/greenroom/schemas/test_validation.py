"""Foreign JSON Schemas: validation, error texts, and refused schemas."""

from __future__ import annotations

import copy
import math
import socket
from typing import Any

import pytest

from greenroom.protocol import jsonrpc
from greenroom.protocol.definitions import Tool
from greenroom.protocol.revision_downgrade import downgrade
from greenroom.protocol.validation import BadSchema, Validator, check_schema, first_error, validate
from greenroom.protocol.validation_errors import STEPS_ON_LOOP
from greenroom.protocol.versions import SUPPORTED

# The parts of 2020-12 that a tool needs: a dialect, an anchor, composition, conditions, closed objects.
RICH: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "home": {"$ref": "#addressDef"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def kinds(value: Any, schema: Any) -> dict[tuple[str | int, ...], str]:
    """Path -> the kind of the mistake there."""
    return {path: reason.kind for path, reason in validate(value, schema)}


def test_a_rich_schema_survives_unchanged_and_works() -> None:
    before = copy.deepcopy(RICH)
    check_schema(RICH, root_object=True)
    validator = Validator(RICH)
    assert validator.errors({"email": "a@b", "address": {"city": "Oslo"}, "home": {"city": "Oslo"}}) == []
    found = validator.errors({"contactMethod": "phone", "email": "a", "address": {"city": 1}, "home": 3, "x": 1})
    assert {path: reason.kind for path, reason in found} == {
        ("phone",): "missing_required",
        ("address", "city"): "type_mismatch",
        ("home",): "type_mismatch",
        ("x",): "unexpected_property",
    }
    assert before == RICH
    listed = {"tools": [Tool("t", RICH).to_wire()]}
    for version in SUPPORTED:
        sent = downgrade("tools/list", listed, version)["tools"][0]["inputSchema"]
        assert jsonrpc.decode(jsonrpc.encode(sent)) == before
        assert list(sent) == list(before)


KEYWORDS: list[tuple[Any, list[Any], list[Any], str]] = [
        ({"type": "integer"}, [1, 1.0, -3], ["1", 1.5, True, None], "type_mismatch"),
        ({"type": "number"}, [1, 1.5], ["1", False], "type_mismatch"),
        ({"type": "string"}, [""], [1, None, []], "type_mismatch"),
        ({"type": "boolean"}, [True], [1, "true"], "type_mismatch"),
        ({"type": "null"}, [None], [0, ""], "type_mismatch"),
        ({"type": "array"}, [[]], [{}, "a"], "type_mismatch"),
        ({"type": ["string", "null"]}, ["a", None], [1], "type_mismatch"),
        ({"enum": ["a", 1, None]}, ["a", 1, None], ["b", True, 2], "not_in_enum"),
        ({"const": {"a": 1}}, [{"a": 1.0}], [{"a": 2}, {"a": True}], "not_in_enum"),
        ({"minLength": 2}, ["ab", "äö", 1], ["a", "ä"], "too_short"),
        ({"maxLength": 1}, ["a", "ä"], ["ab"], "too_long"),
        ({"minItems": 1}, [[1], {}], [[]], "too_short"),
        ({"maxItems": 1}, [[1]], [[1, 2]], "too_long"),
        ({"minProperties": 1}, [{"a": 1}], [{}], "too_short"),
        ({"maxProperties": 1}, [{"a": 1}], [{"a": 1, "b": 2}], "too_long"),
        ({"uniqueItems": True}, [[1, True], [{"a": 1}, {"a": 2}], [[1], [2]]], [[1, 1.0], [{"a": 1}, {"a": 1}], [[1], [1]]], "items_not_unique"),
        ({"pattern": "^a$"}, ["a", 1], ["ab", "a\n"], "pattern_mismatch"),
        ({"minimum": 1}, [1], [0.9], "too_small"),
        ({"maximum": 1}, [1], [1.1], "too_large"),
        ({"exclusiveMinimum": 1}, [1.1], [1], "too_small"),
        ({"exclusiveMaximum": 1}, [0], [1], "too_large"),
        ({"multipleOf": 0.5}, [1.5, 2], [0.7], "not_a_multiple"),
        ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, ["a", 5], [1], "no_anyof_match"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, ["a", 1], [None], "no_oneof_match"),
        ({"oneOf": [{"minimum": 1}, {"maximum": 5}]}, [0, 6], [3], "multiple_oneof_matches"),
        ({"allOf": [{"minimum": 1}, {"maximum": 5}]}, [3], [6], "too_large"),
        ({"not": {"type": "string"}}, [1], ["a"], "forbidden"),
        ({"contains": {"const": 1}}, [[1, 2]], [[2]], "too_few_matches"),
        ({"contains": {"const": 1}, "maxContains": 1}, [[1]], [[1, 1]], "too_many_matches"),
        ({"prefixItems": [{}], "items": False}, [[1]], [[1, 2]], "too_long"),
]  # fmt: skip


@pytest.mark.row("SM-02")
@pytest.mark.row("SM-03")
@pytest.mark.parametrize(("schema", "good", "bad", "kind"), KEYWORDS, ids=[str(one[0]) for one in KEYWORDS])
def test_keywords(schema: Any, good: list[Any], bad: list[Any], kind: str) -> None:
    for value in good:
        assert validate(value, schema) == [], value
    for value in bad:
        assert set(kinds(value, schema).values()) == {kind}, value


@pytest.mark.row("SM-01")
@pytest.mark.row("SM-02")
def test_all_errors_come_with_their_paths() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "object", "properties": {"b": {"minimum": 3}}, "required": ["c"]}},
            "d": {"patternProperties": {"^x": {"type": "string"}}, "additionalProperties": {"type": "integer"}},
            "e": False,
        },
        "required": ["f", "g"],
        "additionalProperties": False,
        "dependentRequired": {"d": ["h"]},
    }
    value = {"a": [{"c": 1, "b": 3}, {"b": 1}], "d": {"x1": 1, "y": "a"}, "e": 1, "i": 1}
    assert kinds(value, schema) == {
        ("a", 1, "b"): "too_small",
        ("a", 1, "c"): "missing_required",
        ("d", "x1"): "type_mismatch",
        ("d", "y"): "type_mismatch",
        ("e",): "unexpected_property",
        ("f",): "missing_required",
        ("g",): "missing_required",
        ("h",): "missing_required",
        ("i",): "unexpected_property",
    }


@pytest.mark.row("SM-03")
def test_a_value_of_the_wrong_type_has_no_other_problems() -> None:
    assert kinds(3, {"type": "string", "enum": ["a"], "minLength": 3}) == {(): "type_mismatch"}
    assert kinds({"a": 1}, {"properties": {"a": {"type": "string", "const": "b"}}}) == {("a",): "type_mismatch"}


@pytest.mark.row("SM-02")
def test_unknown_keywords_and_formats_are_taken_as_remarks() -> None:
    assert validate("x", {"type": "string", "format": "email", "x-own": {"a": 1}, "deprecated": True}) == []


@pytest.mark.row("SM-04")
def test_a_host_can_look_at_arguments_before_it_calls() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert validate({"city": "Oslo"}, schema) == []
    assert [str(problem) for problem in validate({"town": "Oslo"}, schema)] == ["city: is missing"]


@pytest.mark.row("SM-05")
def test_the_first_error_as_text() -> None:
    schema = {"type": "object", "properties": {"a": {"items": {"type": "integer"}}}, "required": ["b"]}
    assert first_error({"a": [1, "x"]}, schema) == 'a[1]: expected an integer, got "x"'
    assert first_error({"b": 1}, schema) is None
    assert first_error(3, {"type": "string"}) == "expected a string, got 3"


@pytest.mark.row("SM-05")
def test_without_a_schema_everything_is_right() -> None:
    assert first_error(object(), None) is None
    assert validate(object(), None) == []


def test_older_dialects_that_many_write_are_understood() -> None:
    draft7 = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {"type": "integer"}},
        "items": [{"$ref": "#/definitions/a"}],
        "additionalItems": False,
    }
    assert validate([1], draft7) == []
    assert kinds(["x", 2], draft7) == {(0,): "type_mismatch", (): "too_long"}


@pytest.mark.row("26-J1")
def test_a_schema_that_names_no_dialect_is_of_2020_12() -> None:
    pair = {"prefixItems": [{"type": "integer"}], "items": False}
    assert validate([1], pair) == []
    assert kinds(["x", 2], pair) == {(0,): "type_mismatch", (): "too_long"}
    assert validate(["x"], {**pair, "$schema": "http://json-schema.org/draft-07/schema#", "items": True}) == []


# --- refusals at registration


@pytest.mark.row("RG-24")
@pytest.mark.parametrize("schema", [{}, {"type": "array"}, {"type": ["object"]}, {"anyOf": [{"type": "object"}]}])
def test_the_root_of_a_tools_schema_is_an_object(schema: Any) -> None:
    check_schema(schema)
    with pytest.raises(BadSchema, match='root must have the type "object"'):
        check_schema(schema, root_object=True)


@pytest.mark.row("26-J1")
@pytest.mark.row("26-J3")
@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (True, "a schema must be an object"),
        ([], "a schema must be an object"),
        ({"$schema": "https://json-schema.org/draft/2030-01/schema"}, r"\$schema: .* is not supported"),
        ({"$schema": 3}, "is not supported"),
        ({"type": "strin"}, "type"),
        ({"properties": {"a": {"minimum": "1"}}}, r"properties\.a\.minimum"),
        ({"required": "a"}, "required"),
        ({"$ref": "https://example.com/schema.json"}, "leads out of the document, which is not fetched"),
        ({"$ref": "other.json#/a"}, "leads out of the document"),
        ({"$ref": "file:///etc/passwd"}, "leads out of the document"),
        ({"$dynamicRef": "https://example.com/x"}, "leads out of the document"),
        ({"properties": {"a": {"$ref": "#/$defs/no"}}}, "leads nowhere"),
        ({"$ref": "#missing"}, "leads nowhere"),
        ({"$ref": 3}, "a reference must be a string"),
        ({"$ref": "#/x", "x": {"$ref": "http://example.com"}}, "leads out of the document"),
        ({"$ref": "#"}, r"\$ref: it refers to itself"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"allOf": [{"$ref": "#/$defs/x"}]}}}, r"\$ref: it refers to itself"),
        ({"$ref": "#/$defs/x/allOf/0", "$defs": {"x": {"allOf": [{"$ref": "#/$defs/x"}]}}}, r"\$ref: it refers"),
        ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}}, "refers to itself"),
        ({"properties": {"a": {"$id": "https://example.com/a"}}}, "only the root may have one"),
        ({"pattern": "("}, "never closed"),
        ({"pattern": "(?=a+)+b"}, "simplify it"),
        ({"patternProperties": {"[": {}}}, "never closed"),
        ({"pattern": "x" * 3000}, "too long"),
        ({"enum": list(range(20_000))}, "too large"),
    ],
    ids=lambda one: str(one)[:60],
)
def test_an_unusable_schema_is_refused_with_the_reason(schema: Any, why: str) -> None:
    with pytest.raises(BadSchema, match=why):
        check_schema(schema)
    with pytest.raises(BadSchema):
        Validator(schema)


def test_a_schema_that_is_too_deep() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"not": schema}
    with pytest.raises(BadSchema, match="too deep"):
        check_schema(schema)
    while schema:  # taken apart by hand: even deleting such a value would overflow the stack
        schema = schema.pop("not")


def test_references_inside_of_the_document() -> None:
    schema = {
        "$id": "https://example.com/tree",
        "type": "object",
        "properties": {
            "left": {"$ref": "#"},
            "right": {"$ref": "https://example.com/tree"},
            "tag": {"$ref": "#/x~1y/0"},
            "on": {"$ref": "#/$defs/yes"},
        },
        "x/y": [{"type": "string"}],
        "$defs": {"yes": True},
        "additionalProperties": False,
    }
    assert validate({"left": {"right": {"tag": "a", "on": 1}}}, schema) == []
    assert kinds({"left": {"right": {"tag": 1, "off": 1}}}, schema) == {
        ("left", "right", "tag"): "type_mismatch",
        ("left", "right", "off"): "unexpected_property",
    }


def test_nothing_is_ever_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: Any, **__: Any) -> Any:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket, "socket", no)
    monkeypatch.setattr(socket, "getaddrinfo", no)
    with pytest.raises(BadSchema):
        Validator({"$ref": "https://example.com/schema.json"})
    assert Validator({"$id": "https://example.com/a", "$ref": "#/$defs/b", "$defs": {"b": {}}}).errors(1) == []


def test_later_changes_to_the_schema_have_no_effect() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    validator = Validator(schema)
    schema["properties"]["a"]["type"] = "integer"
    assert validator.errors({"a": "x"}) == []


# --- bounded time


def doubling(keyword: str, levels: int = 30) -> dict[str, Any]:
    """A small schema that doubles the work at each level."""
    defs: dict[str, Any] = {
        f"a{level}": {keyword: [{"$ref": f"#/$defs/a{level + 1}"}, {"$ref": f"#/$defs/a{level + 1}"}]}
        for level in range(levels)
    }
    return {"$defs": {**defs, f"a{levels}": {"type": "string"}}, "$ref": "#/$defs/a0"}


BOMBS: list[tuple[Any, Any]] = [
        (doubling("anyOf"), 1),
        (doubling("allOf"), "a"),
        (doubling("oneOf"), "a"),
        ({**doubling("allOf"), "unevaluatedProperties": False}, {"a": 1}),
        ({"unevaluatedItems": False, **doubling("anyOf")}, [1]),
        ({"items": {"properties": {f"p{number}": {} for number in range(3_000)}}}, [{}] * 100_000),
        ({"items": {"enum": list(range(5_000))}}, [0] * 100_000),
        ({"patternProperties": {f"^{number}+$": {} for number in range(1_000)}}, {str(number): 1 for number in range(5_000)}),
        ({"uniqueItems": True}, [[number] for number in range(300_000)]),
        ({"items": {"oneOf": [{"minimum": number} for number in range(1_000)]}}, [5] * 10_000),
        ({"pattern": "^(a+)+$"}, "a" * 3_000_000 + "b"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value"), BOMBS, ids=range(len(BOMBS)))
def test_bombs_run_out_of_steps(schema: Any, value: Any) -> None:
    """The cost of a step is tested in `test_costs`."""
    (found,) = Validator(schema).errors(value, most=100_000)
    assert found.reason.kind == "too_complex"
    assert str(found) == f"there is too much in it to be checked: more than {STEPS_ON_LOOP} steps"


def test_a_malicious_pattern_is_matched_in_linear_time() -> None:
    validator = Validator({"pattern": "^(a+)+$"})
    assert validator.errors("a" * 20_000) == []
    assert [reason.kind for _, reason in validator.errors("a" * 20_000 + "b")] == ["pattern_mismatch"]


def test_of_very_many_errors_some_are_told() -> None:
    assert len(validate([1] * 100_000, {"items": {"type": "string"}})) == 100


def test_a_value_as_deep_as_the_wire_allows() -> None:
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    assert [len(path) for path, _ in validate(deep, {"type": ["array", "string"], "items": {"$ref": "#"}})] == [60]


def test_a_value_that_is_no_json_is_shown_in_errors() -> None:
    assert first_error(["\ud800"], {"type": "string"}) == "expected a string, got ['\\ud800']"
    assert first_error({1, 2}, {"type": "string"}) == "expected a string, got [1,2]"


@pytest.mark.parametrize("wanted", [0.1, 3])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_number_that_is_not_finite_is_a_multiple(wanted: float, value: float) -> None:
    assert [each.reason.kind for each in Validator({"multipleOf": wanted}).errors(value)] == ["not_a_multiple"]
