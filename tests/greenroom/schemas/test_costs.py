"""The charge of a check bounds its cost, counted in bytecodes, comparisons and characters, never by a clock."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.example_counts import examples
from tests.fuzz.linearity import steps as bytecodes

from greenroom.protocol import safe_regex, validation_errors
from greenroom.protocol.provider_rules import provider_schema
from greenroom.protocol.safe_regex import BadPattern, Pattern, TextTooLong
from greenroom.protocol.schema_compiler import BadSchema, SchemaDocument
from greenroom.protocol.validation import ForeignFormValidator, HintSchemaValidator, Validator
from greenroom.protocol.validation_errors import (
    STEPS_IN_THREAD,
    STEPS_ON_LOOP,
    PacedStepMeter,
    StepMeter,
    StepsExceeded,
)
from greenroom.protocol.validation_texts import ReasonWriter, shown_value

from .test_differential import JSON, SCHEMAS
from .test_validation import BOMBS

PER_STEP = 80
"""The most bytecodes in a step; most steps are twenty to forty, a fifth of a microsecond."""
AT_FIRST = 5_000
"""The bytecodes that are not charged: work done once for each schema or check."""
SAID = 60_000
"""The same for error texts: listed choices and compared names have bounds of their own."""

FEW = 5_000
"""Few steps, as counting bytecodes is slow."""

A, B = "a" * 30, "b" * 30
HASH = 2**61 - 1
"""The modulus of Python's hash of numbers."""
LONG = "x" * 300_000


def made(schema: Any, meter: StepMeter) -> Validator | None:
    try:
        return Validator(schema, meter=meter)
    except (BadSchema, StepsExceeded):
        return None


def check(validator: Validator, value: Any, meter: StepMeter) -> list[Any]:
    try:
        return validator.check(value, meter)
    except StepsExceeded:
        return ["too much"]


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


HOSTILE: list[tuple[Any, Any]] = [
    *BOMBS,
    ({"items": {"not": {"pattern": "(?:a|b)*a(?:a|b){450}c"}}}, [f"{A}{B}" * 9] * 50),
    ({"items": {"pattern": "^\\p{L}+$"}}, [chr(0x4E00 + number) for number in range(2_000)]),
    ({"items": {"pattern": "(?=.*\\d)(?=.*[A-Z])(?!.*\\s).{4,}"}}, ["a" * 200] * 200),
    ({"items": {"pattern": f"(?={'|'.join(['a{9}b'] * 200)})"}}, ["a" * 100] * 100),
    ({"items": {"pattern": "".join(f"[{chr(256 + 9 * number)}-{chr(260 + 9 * number)}]*" for number in range(90))}}, ["é" * 50] * 50),
    ({"items": {"pattern": f"^[{''.join(chr(256 + 9 * number) for number in range(1_900))}]*$"}}, [chr(600 + number) * 9 for number in range(500)]),
    ({"patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False}, {"a" * number: 1 for number in range(300)}),
    ({"uniqueItems": True}, [number * HASH for number in range(3_000)]),
    ({"items": {"enum": [number * HASH for number in range(900)]}}, [number * HASH for number in range(900)]),
    ({"items": {"enum": [*range(900), [1], {"a": 1}]}}, [[number] * 20 for number in range(900)]),
    ({"items": {"multipleOf": 1e-300}}, [10**300 + number for number in range(900)]),
    ({"items": {"type": "integer"}}, [0.5] * 900),
    ({"items": {"type": "integer", "minimum": 0}}, [1.0] * 900),
    ({"unevaluatedProperties": False, "anyOf": [{"properties": {f"a{number}": {}}} for number in range(90)]}, {f"a{number}": 1 for number in range(90)}),
    ({"unevaluatedItems": False, "anyOf": [{"contains": {"minimum": number}} for number in range(90)]}, list(range(90))),
    ({"unevaluatedItems": False, "oneOf": [{"prefixItems": [{}] * 9}, {"maxItems": 3}]}, list(range(90))),
    ({"unevaluatedProperties": {"type": "string"}, "if": {"required": ["a1"]}, "then": {"properties": {"a1": {}}}}, {f"a{number}": "x" for number in range(900)}),
    ({"propertyNames": {"maxLength": 3, "pattern": "^a"}}, {f"a{number}": 1 for number in range(900)}),
    ({"items": {"contains": {"const": 1}}}, [[0] * 100] * 100),
    ({"items": {"contains": {"type": "integer"}, "minContains": 50, "maxContains": 60}}, [[0] * 100] * 100),
    ({"items": {"required": [f"p{number}" for number in range(900)]}}, [{f"p{number}": 1 for number in range(900)}] * 20),
    ({"items": {"properties": {f"p{number}": {} for number in range(900)}}}, [{f"p{number}": 1 for number in range(90)}] * 90),
    ({"dependentRequired": {f"p{number}": ["p1", "p2"] for number in range(900)}}, {f"p{number}": 1 for number in range(900)}),
    ({"dependentSchemas": {f"p{number}": {"required": ["p1"]} for number in range(900)}}, {f"p{number}": 1 for number in range(900)}),
    ({"additionalProperties": {"not": {}}}, {f"p{number}": 1 for number in range(900)}),
    ({"additionalProperties": False, "patternProperties": {"^q": True}}, {f"p{number}": 1 for number in range(900)}),
    ({"additionalProperties": False, "properties": {f"{A}{number:09}": {} for number in range(90)}}, {f"{number:09}{A}": 1 for number in range(90)}),
    ({"items": {"if": {"type": "integer"}, "then": {"minimum": 0}, "else": False}}, list(range(900))),
    ({"items": {"prefixItems": [{"type": "integer"}] * 90, "items": {"type": "string"}}}, [list(range(100))] * 9),
    ({"type": ["array", "integer"], "items": {"$ref": "#"}}, [nested(60)] * 90),
    ({"items": {"enum": [list(range(30))] * 300}}, [[0] * 30] * 300),
    ({"items": {"const": {"a": [1, 2, {"b": None}]}}}, [{"a": [1, 2, {"b": None}]}] * 300),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}] * 90, "additionalItems": {"type": "integer"}, "dependencies": {"a": ["b"], "b": {}}}, list(range(900))),
    ({"$schema": "https://json-schema.org/draft/2019-09/schema", "type": ["array", "null"], "items": {"$recursiveRef": "#"}}, [nested(60)] * 20),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value"), HOSTILE, ids=range(len(HOSTILE)))
def test_work_is_at_most_proportional_to_the_charge(schema: Any, value: Any) -> None:
    making, checking = StepMeter(FEW), StepMeter(FEW)
    safe_regex._patterns.clear()
    work = bytecodes(lambda: made(schema, making))
    assert work <= AT_FIRST + PER_STEP * (FEW - min(making.left, FEW))
    work = bytecodes(partial(check, Validator(schema), value, checking))
    assert work <= AT_FIRST + SAID + PER_STEP * (FEW - min(checking.left, FEW))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SCHEMAS, st.lists(JSON, max_size=30))
@example({"items": {"enum": [1, "a", [1]]}}, [[1], 1, "a"] * 10)
def test_the_cost_of_a_generated_schema_is_charged(schema: Any, value: Any) -> None:
    making, checking = StepMeter(FEW), StepMeter(FEW)
    work = bytecodes(lambda: made(schema, making))
    assert work <= AT_FIRST + PER_STEP * (FEW - min(making.left, FEW))
    validator = made(schema, StepMeter(STEPS_IN_THREAD))
    if validator is not None:
        work = bytecodes(partial(check, validator, value, checking))
        assert work <= AT_FIRST + SAID + PER_STEP * (FEW - min(checking.left, FEW))


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$defs": {"a": {"required": [LONG]}}, "allOf": [{"$ref": "#/$defs/a"}] * 900}, {LONG + "": 1}),
        ({"$defs": {"a": {"const": LONG}}, "allOf": [{"$ref": "#/$defs/a"}] * 900}, LONG + ""),
        ({"$defs": {"a": {"properties": {LONG: {}}}}, "allOf": [{"$ref": "#/$defs/a"}] * 900}, {LONG + "": 1, "b": 1}),
        ({"$defs": {"a": {"dependentRequired": {LONG: ["b"]}}}, "allOf": [{"$ref": "#/$defs/a"}] * 900}, {LONG + "": 1, "b": 1}),
        ({"$defs": {"a": {"properties": {LONG: {}}, "additionalProperties": {}}}, "allOf": [{"$ref": "#/$defs/a"}] * 900}, {LONG + "": 1, "b": 1}),
        ({"$defs": {"a": {"enum": [[LONG]]}}, "allOf": [{"$ref": "#/$defs/a"}] * 900}, [LONG]),
    ],
)  # fmt: skip
def test_comparing_long_texts_again_and_again_is_charged(schema: Any, value: Any) -> None:
    """A comparison is one bytecode for any length: a kilobyte of text is charged as a step."""
    meter = StepMeter(STEPS_IN_THREAD)
    assert Validator(schema).check(value, meter) == []
    assert STEPS_IN_THREAD - meter.left > 900 * len(LONG) // 1024


class Counted(int):
    """A number that counts its comparisons and hashings."""

    met = 0

    def __eq__(self, other: object) -> bool:
        Counted.met += 1
        return int(self) == other

    def __hash__(self) -> int:
        Counted.met += 1
        return hash(int(self))


@pytest.mark.parametrize(
    "schema", [{"uniqueItems": True}, {"items": {"enum": [*range(100), [1]]}}, {"items": {"const": {"a": HASH}}}]
)
def test_numbers_of_a_peer_are_never_keys(schema: Any) -> None:
    Counted.met = 0
    found = Validator(schema).errors([Counted(number * HASH) for number in range(1, 500)])
    assert {problem.reason.kind for problem in found} <= {"not_in_enum"}
    assert Counted.met == 0


EQUAL: list[tuple[Any, Any]] = [
    (1, 1.0),
    (2**300, float(2**300)),
    (0, -0.0),
    (2**70, float(2**70)),
    ([HASH, 2], [HASH, 2.0]),
    ({"a": 1, "b": 2}, {"b": 2.0, "a": 1.0}),
]
DIFFERENT: list[tuple[Any, Any]] = [
    (1, True),
    (0, False),
    (0, None),
    ("1", 1),
    (0.1, 0.2),
    (HASH, 0),
    ([1, [2]], [[1], 2]),
    (["a", "b"], ["a1:b"]),
    ({"a": 1}, [["a", 1]]),
]


@pytest.mark.parametrize(
    ("one", "other", "same"), [(*pair, True) for pair in EQUAL] + [(*pair, False) for pair in DIFFERENT]
)
def test_values_are_equal_as_json_schema_has_it(one: Any, other: Any, same: bool) -> None:  # noqa: FBT001 - of a table
    if one == other:  # the reference does not distinguish bool, and is otherwise Python's equality
        assert same or isinstance(other, bool)
    assert (Validator({"uniqueItems": True}).errors([one, other]) != []) is same
    assert (Validator({"const": one}).errors(other) == []) is same
    assert (Validator({"enum": ["z", [], one]}).errors(other) == []) is same


# --- error texts


def test_the_error_for_a_large_value_is_short() -> None:
    value = {"a": [{LONG: LONG}] * 15, "b": LONG}
    schema = {"allOf": [{"not": {"required": ["a"]}}] * 90, "properties": {"b": {"enum": ["a", *[LONG + "y"] * 90]}}}
    found = Validator(schema).errors(value)
    assert len(found) == 91
    assert len("; ".join(map(str, found))) < 30_000
    problem = Validator({"additionalProperties": {"additionalProperties": False}}).errors({LONG: {LONG: 1}})[0]
    assert len(str(problem)) < 500


def test_a_value_is_encoded_only_as_far_as_it_is_shown() -> None:
    class Members(dict[str, Any]):
        read = 0

        def items(self) -> Any:
            for item in super().items():
                Members.read += 1
                yield item

    assert shown_value([Members({f"a{number}": number for number in range(100_000)})]).endswith("…")
    assert Members.read < 100
    assert shown_value([0] * 20) == f"[{','.join('0' * 20)}]"
    assert shown_value({"a": [0] * 20}) == f'{{"a":[{",".join("0" * 20)}]}}'


def test_names_are_compared_while_that_is_cheap() -> None:
    assert "was city meant?" in ReasonWriter().unexpected("cty", ["city", "days"])
    assert "meant" not in ReasonWriter().unexpected("x" * 10_000, ["x" * 9_999, *map(str, range(20))])
    telling = ReasonWriter()
    said = [telling.unexpected("ab" * 15, ["ba" * 14 + str(number) for number in range(20)]) for _ in range(100)]
    assert 0 < sum("meant" in one for one in said) <= 10


def test_of_very_many_choices_some_are_listed() -> None:
    assert "98, 99, got" in ReasonWriter().reason("enum", list(range(100)), -1)
    telling = ReasonWriter()
    texts = [telling.reason("enum", list(range(900)), -1) for _ in range(100)]
    assert "and 800 more, got -1" in texts[1]
    assert sum(map(len, texts)) < 20_000


# --- patterns


@pytest.mark.parametrize("source", ["^[a-z]+$", "(a|b)*c", r"\p{L}", r"^(\d{1,3}\.){3}\d{1,3}$", r"\bx\b"])
def test_patterns_for_the_automaton_never_use_re(source: str) -> None:
    assert Pattern(source)._automaton is not None
    assert not hasattr(Pattern(source), "_re")


@pytest.mark.parametrize(
    "source",
    ["(?=.*\\d).*x", "(?=(a|b|cc)d)", r"(a*)\1b", "(?=a*b*c*d)e", "(?=[\u0100-\uffff]*b)c", "^(?=.*a)(?!.*b).+$"],
)
def test_the_cost_of_re_is_charged_and_bounded(source: str) -> None:
    """The worst case: each repetition tries all lengths, from each place where it may start."""
    pattern = Pattern(source)
    costs: dict[int, int] = {}
    for length in (10, 20, 40, 80, 160, 320, 640, 10_000_000):
        meter = StepMeter(STEPS_IN_THREAD)
        try:
            pattern.search("a" * length, meter)
        except TextTooLong:
            break
        costs[length] = STEPS_IN_THREAD - meter.left
    assert 20 in costs
    assert 10_000_000 not in costs
    assert costs[20] > costs[10]
    assert max(costs.values()) <= safe_regex.STEP_LIMIT // 20


@pytest.mark.parametrize("source", ["(?:(?:(?:){2000}){2000}){2000}", "((){9}){2000}", "(?:(?:|){2000}){2000}"])
def test_repetitions_of_nothing_are_bounded(source: str) -> None:
    refused: list[BadPattern] = []

    def make() -> None:
        with pytest.raises(BadPattern) as caught:
            Pattern(source)
        refused.append(caught.value)

    assert bytecodes(make) < 2_000_000
    assert "too large" in str(refused[0])


def test_the_cache_of_an_automaton_is_bounded() -> None:
    pattern = Pattern("(?:a|b)*a(?:a|b){450}c")
    automaton: Any = pattern._automaton
    for text in (f"{A}{B}" * 9, f"{B}{A}b" * 9):
        pattern.search(text, StepMeter(STEPS_IN_THREAD))
        kept = sum(1 + len(one.states) + len(one) for one in automaton._known.values())
        assert kept < 3 * safe_regex._MOST_KNOWN


def test_the_cache_of_patterns_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_regex, "_KEPT", 4)
    safe_regex._patterns.clear()
    first = safe_regex.compile_pattern("a0", StepMeter())
    assert safe_regex.compile_pattern("a0", StepMeter(0)) is first  # from the cache, which is free
    for number in range(1, 9):
        safe_regex.compile_pattern(f"a{number}", StepMeter())
    assert list(safe_regex._patterns.kept) == ["a5", "a6", "a7", "a8"]
    with pytest.raises(StepsExceeded):
        safe_regex.compile_pattern("a0", StepMeter(0))


def test_a_pattern_in_use_is_not_displaced_by_many_that_are_used_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_regex, "_KEPT", 4)
    safe_regex._patterns.clear()
    first = safe_regex.compile_pattern("a0", StepMeter())
    for number in range(1, 50):
        safe_regex.compile_pattern(f"a{number}", StepMeter())
        assert safe_regex.compile_pattern("a0", StepMeter(0)) is first


def test_the_states_of_cached_patterns_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(Pattern("a{9}", StepMeter()))
    monkeypatch.setattr(safe_regex, "_MOST_STATES_KEPT", 3 * size)
    safe_regex._patterns.clear()
    for letter in "abcdeed":
        safe_regex._patterns.put(Pattern(f"{letter}{{9}}", StepMeter()))
    assert list(safe_regex._patterns.kept) == ["c{9}", "e{9}", "d{9}"]


def test_a_schema_of_many_patterns_is_compiled_once_and_not_with_each_value() -> None:
    validator = Validator({"patternProperties": {f"^{number}$": {} for number in range(600)}})
    made = [safe_regex.compile_pattern(f"^{number}$", StepMeter()) for number in range(600)]
    assert validator.errors({"599": 1}) == []
    assert all(safe_regex.compile_pattern(one.source, StepMeter(0)) is one for one in made)


# --- schemas


def test_a_chain_of_references_through_unknown_keywords_costs_what_it_is_long() -> None:
    def cost(length: int) -> int:
        hidden: dict[str, Any] = {f"h{number}": {"$ref": f"#/x/h{number + 1}"} for number in range(length)}
        schema: Any = {"x": {**hidden, f"h{length}": {}}, "$ref": "#/x/h0"}
        return bytecodes(lambda: SchemaDocument(schema, StepMeter(STEPS_IN_THREAD)))

    short, long = cost(200), cost(800)
    assert long < 4.2 * short


@pytest.mark.parametrize(
    "reference", ["#/allOf/" + "9" * 5_000, "#/allOf/²", "#/allOf/-1", "#/allOf/\u0661", "#" + "/a" * 9_000]
)
def test_a_pointer_that_leads_nowhere_is_said_in_few_words(reference: str) -> None:
    with pytest.raises(BadSchema, match="leads nowhere") as caught:
        Validator({"$ref": reference, "allOf": [{}]})
    assert len(str(caught.value)) < 200


def test_a_schema_that_costs_too_much_to_read_says_so_at_once() -> None:
    schema = {"properties": {f"p{number}": {"pattern": f"(?:[a-z]{{3}}|b{number}){{100}}c"} for number in range(3_000)}}
    with pytest.raises(StepsExceeded):
        Validator(schema, meter=StepMeter())


def test_a_form_of_a_server_is_never_matched_in_pythons_dialect() -> None:
    with pytest.raises(BadSchema):
        ForeignFormValidator({"properties": {"a": {"pattern": "(?i)^(a+)+$"}}})
    assert HintSchemaValidator({"properties": {"a": {"pattern": "(?i)^a+$"}}}).errors({"a": "AA"}) == []


# --- ordinary schemas


def test_a_large_honest_result_is_within_bounds() -> None:
    row = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string", "maxLength": 99}, "score": {"type": ["number", "null"]}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}}}, "required": ["id", "name"], "additionalProperties": False}  # fmt: skip
    rows = [{"id": number, "name": f"n{number}", "score": number / 2, "tags": ["a", "b"]} for number in range(50_000)]
    meter = StepMeter(STEPS_IN_THREAD)
    assert Validator({"type": "array", "items": row}).check(rows, meter) == []
    assert STEPS_IN_THREAD - meter.left < STEPS_IN_THREAD // 3
    for few in (rows[:100], rows[:2_000]):
        assert Validator({"type": "array", "items": row}).check(few, StepMeter(STEPS_ON_LOOP)) == []


# --- meters


@pytest.mark.row("26-J4")
def test_a_meter_ends_at_its_steps() -> None:
    meter = StepMeter(10)
    meter.spend(10)
    with pytest.raises(StepsExceeded):
        meter.spend(1)


def test_a_paced_meter_sleeps_between_slices_and_ends_at_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    meter = PacedStepMeter(10 * validation_errors._SLICE)
    for _ in range(10 * validation_errors._SLICE):
        meter.spend(1)
    assert len(slept) == 9
    with pytest.raises(StepsExceeded):
        meter.spend(1)
    large = PacedStepMeter(10 * validation_errors._SLICE)
    large.spend(9 * validation_errors._SLICE)
    with pytest.raises(StepsExceeded):
        large.spend(2 * validation_errors._SLICE)


def test_a_paced_meter_can_be_stopped() -> None:
    meter = PacedStepMeter()
    meter.spend(validation_errors._SLICE)
    meter.stopped = True
    with pytest.raises(StepsExceeded):
        meter.spend(1)


def test_branches_that_refer_to_each_other_are_not_multiplied_for_a_model() -> None:
    branches: Any = {"allOf": [{"$ref": "#/$defs/a"}] * 50}
    schema: Any = {"type": "object", **branches, "$defs": {"a": {**branches, "properties": {"x": {}}}}}
    assert bytecodes(lambda: provider_schema(schema)) < PER_STEP * STEPS_ON_LOOP
    assert provider_schema(schema)["type"] == "object"
