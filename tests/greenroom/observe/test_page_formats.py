"""Values as the pages write them."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.observe import page_formats
from greenroom.observe.page_formats import NOTHING
from greenroom.observe.view_rows import Curve, TreeRow


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        ("age", None, NOTHING),
        ("age", 0.9, "0 s"),
        ("age", 59.9, "59 s"),
        ("age", 60, "1 min"),
        ("age", 7500, "2 h 5 min"),
        ("age", 90000.0, "1 d 1 h"),
        ("age", math.inf, NOTHING),
        ("took", None, NOTHING),
        ("took", 0.0, "0 ms"),
        ("took", 0.00042, "0.4 ms"),
        ("took", 0.0123, "12 ms"),
        ("took", 1.234, "1.23 s"),
        ("took", 34.56, "34.6 s"),
        ("took", 300.0, "5 min"),
        ("number", 1234567, "1,234,567"),
        ("number", 0.0, "0"),
        ("number", 0.001, "0"),
        ("number", 0.25, "0.25"),
        ("number", 3.14159, "3.1"),
        ("number", 250.7, "251"),
        ("number", math.nan, NOTHING),
        ("size", 999, "999 B"),
        ("size", 1400, "1.4 kB"),
        ("size", 23_400_000, "23 MB"),
        ("words", "needs_sign_in", "needs sign in"),
        ("tone", "gave_up", "bad"),
        ("tone", "anything else", "idle"),
        ("pretty", '{"a":[1]}', '{\n  "a": [\n    1\n  ]\n}'),
        ("pretty", '{"a": cut…', '{"a": cut…'),
        ("pretty", None, ""),
    ],
)
def test_a_value_is_written_for_a_person(function: str, value: Any, text: str) -> None:
    assert getattr(page_formats, function)(value) == text


@given(st.one_of(st.none(), st.floats(), st.integers()))
@settings(max_examples=examples(200))
def test_every_number_is_written(value: float | None) -> None:
    for function in (page_formats.age, page_formats.took, page_formats.number):
        assert function(value)


def rows(*depths: int) -> list[TreeRow]:
    return [TreeRow(depth=depth, label=str(place), kind="x") for place, depth in enumerate(depths)]


def shape(nodes: list[page_formats.TreeNode]) -> list[Any]:
    return [[node.row.label, *shape(node.children)] for node in nodes]


def test_rows_become_a_forest() -> None:
    assert shape(page_formats.nested(rows(0, 1, 2, 1, 0))) == [["0", ["1", ["2"]], ["3"]], ["4"]]
    assert shape(page_formats.nested(rows(3, 4, 1, 5))) == [["0", ["1"]], ["2", ["3"]]]


@given(st.lists(st.integers(0, 6), max_size=30))
@settings(max_examples=examples(100))
def test_a_forest_has_every_row_once_and_in_order(depths: list[int]) -> None:
    def flat(nodes: list[page_formats.TreeNode]) -> list[str]:
        return [label for node in nodes for label in (node.row.label, *flat(node.children))]

    assert flat(page_formats.nested(rows(*depths))) == [str(place) for place in range(len(depths))]


def test_curves_are_drawn_over_the_same_times() -> None:
    calls = Curve(name="calls", unit="1/s", step=2.0, ends_at=100.0, values=[1.0, None, 3.0])
    failed = Curve(name="failed_calls", unit="1/s", step=2.0, ends_at=100.0, values=[0.5])
    assert msgspec.json.decode(page_formats.curve_data([calls, failed])) == {
        "unit": "1/s",
        "names": ["calls", "failed calls"],
        "data": [[96.0, 98.0, 100.0], [1.0, None, 3.0], [None, None, 0.5]],
    }
    assert page_formats.summary(calls) == "now 3, at most 3"
    assert page_formats.line_points(calls.values) == "0.0,15.7 50.0,23.0 100.0,1.0"


@pytest.mark.parametrize("values", [[], [None], [math.nan, math.inf, -1.0], [0.0, 0.0]])
def test_a_curve_without_values_is_a_flat_line(values: list[float | None]) -> None:
    points = page_formats.line_points(values)
    assert {point.partition(",")[2] for point in points.split()} == {"23.0"}


@pytest.mark.parametrize(("part", "whole", "percent"), [(1, 3, 33), (1, 10_000, 1), (0, 5, 0), (7, 5, 100), (1, 0, 0)])
def test_a_part_that_is_there_is_seen(part: float, whole: float, percent: int) -> None:
    assert page_formats.percent(part, whole) == percent
