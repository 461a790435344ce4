"""The output of a run: a table, a JSON file, a chart."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from benchmarks.benchmark_types import Benchmark, Run
from benchmarks.curve_chart import LINE, Scale, apart, svg, tick
from benchmarks.curves import Curve, Drawn, Point
from benchmarks.measure import Plan, Result
from benchmarks.result_files import write
from benchmarks.result_table import HEAD, block, number, row

if TYPE_CHECKING:
    from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"


def nothing(run: Run) -> None:
    """Measure nothing."""


async def nowhere(point: Point) -> None:
    """Measure nothing."""


FLOOR = Benchmark("floor", "The floor.", nothing, 1, "us", "cpu", None, None, None)
HOUSE = Benchmark("house", "The house.", nothing, 1, "us", "cpu", FLOOR, 2.0, None)
CURVE = Curve("growth", "It grows.", nowhere, (1, 10), "people", "us")
DRAWN = Drawn(CURVE, {"start <&>": [(1, 2.0), (10, 3.5)], "stop": [(1, 0.5), (10, 0.0)]})


def test_a_row_shows_cost_ratio_target_spread_and_verdict() -> None:
    line = row(Result(HOUSE, costs=[3.0, 3.2, 3.4], ratios=[1.9, 2.0, 2.1]))
    assert line.split() == ["house", "3.20", "us", "2.000", "≤", "2", "5.0%", "met"]
    assert row(Result(HOUSE, costs=[3.0], ratios=[2.01])).endswith("MISSED")
    assert row(Result(FLOOR, costs=[1.0])).split() == ["floor", "1.00", "us"]
    assert HEAD.split() == ["cost", "x", "floor", "target", "spread"]


def test_the_asides_of_a_result_stand_below_it() -> None:
    lines = row(Result(FLOOR, costs=[3.0], asides={"half": [1.5], "rest": [1.0, 1.4, 9.0]})).splitlines()
    assert lines[1].strip() == "of which half 1.50, rest 1.40 us"


def test_a_block_has_a_line_for_each_size() -> None:
    assert [line.split() for line in block(DRAWN).splitlines()] == [
        ["growth,", "us", "each"],
        ["people", "start", "<&>", "stop"],
        ["1", "2.00", "0.50"],
        ["10", "3.50", "0.00"],
    ]


@pytest.mark.parametrize(("value", "shown"), [(0.1234, "0.12"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12,346")])
def test_numbers_show_the_figures_that_say_something(value: float, shown: str) -> None:
    assert number(value) == shown


def test_the_picture_has_a_panel_for_each_curve_and_a_line_for_each_series() -> None:
    root = ET.fromstring(svg([DRAWN, DRAWN, DRAWN]))
    panels = root.findall(f"{SVG}g")
    assert len(panels) == 3
    assert len({panel.get("transform") for panel in panels}) == 3
    for panel in panels:
        assert len(panel.findall(f"{SVG}polyline")) == 2
        assert {"growth", "start <&>", "stop"} <= {text.text for text in panel.iter(f"{SVG}text")}


def test_a_value_too_small_to_measure_has_no_dot() -> None:
    root = ET.fromstring(svg([DRAWN]))
    assert len(root.findall(f".//{SVG}circle")) == 3


def test_a_picture_of_nothing_says_so() -> None:
    root = ET.fromstring(svg([Drawn(CURVE, {"start": [(1, 0.0)]})]))
    assert "nothing measured" in {text.text for text in root.iter(f"{SVG}text")}


def test_everything_is_drawn_inside_the_picture() -> None:
    root = ET.fromstring(svg([DRAWN]))
    wide, high = (float(root.get(side, "0")) for side in ("width", "height"))
    for each in root.iter(f"{SVG}polyline"):
        for x, y in re.findall(r"([\d.-]+),([\d.-]+)", each.get("points", "")):
            assert 0 < float(x) < wide
            assert 0 < float(y) < high


def test_an_axis_runs_from_whole_decade_to_whole_decade() -> None:
    axis = Scale([3.0, 200.0], 0, 300)
    assert axis.decades == [1.0, 10.0, 100.0, 1000.0]
    assert [axis(value) for value in axis.decades] == [0, 100, 200, 300]
    assert Scale([10.0], 0, 1).decades == [10.0, 100.0]


def test_labels_do_not_lie_on_each_other() -> None:
    heights = apart({"low": 100.0, "high": 20.0, "near": 101.0, "same": 100.0})
    places = sorted(heights.values())
    assert all(below - above >= LINE for above, below in pairwise(places))
    assert heights["high"] == 20.0


def test_decades_are_written_as_people_do() -> None:
    assert [tick(value) for value in (0.01, 1.0, 100.0, 10_000.0, 1e6)] == ["0.01", "1", "100", "10k", "1M"]


def test_the_files_hold_every_repeat_and_where_it_ran(tmp_path: Path) -> None:
    plan = Plan(repeats=2)
    result = Result(HOUSE, costs=[3.0, 5.0], ratios=[1.5, 2.5])
    data, picture = write(tmp_path / "new", plan, [result], [DRAWN])
    told = json.loads(data.read_text(encoding="utf-8"))
    assert told["where"]["python"]
    assert told["plan"]["repeats"] == 2
    (house,) = told["benchmarks"]
    assert (house["costs"], house["ratios"], house["ratio"]) == ([3.0, 5.0], [1.5, 2.5], 2.0)
    assert (house["floor"], house["target"], house["met"]) == ("floor", 2.0, True)
    assert told["curves"][0]["series"]["stop"] == [[1, 0.5], [10, 0.0]]
    assert ET.fromstring(picture.read_text(encoding="utf-8")).tag == f"{SVG}svg"


def test_without_a_curve_there_is_no_picture(tmp_path: Path) -> None:
    (data,) = write(tmp_path, Plan(), [Result(FLOOR, costs=[1.0])], [])
    assert json.loads(data.read_text(encoding="utf-8"))["curves"] == []
