"""Every benchmark and curve runs at the smallest sizes, and the command's options. Speed does not matter here."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import benchmarks.__main__ as command
import pytest
from benchmarks.catalogue import BENCHMARKS, CURVES
from benchmarks.curves import draw
from benchmarks.measure import Plan, measure
from tests.example_counts import one_in

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.benchmark_types import Benchmark
    from benchmarks.curves import Curve

pytestmark = pytest.mark.deep

SMALLEST = Plan(repeats=1, divisor=1_000, largest=100)


@pytest.mark.parametrize("benchmark", one_in(10, BENCHMARKS), ids=lambda benchmark: benchmark.name)
def test_a_benchmark_runs(benchmark: Benchmark) -> None:
    (result,) = measure([replace(benchmark, repeats=1)], SMALLEST)
    assert result.cost > 0


@pytest.mark.deep
@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
def test_a_curve_runs(curve: Curve) -> None:
    drawn = draw(curve, SMALLEST)
    assert drawn.series
    for points in drawn.series.values():
        assert [size for size, _ in points] == [size for size in curve.sizes if size <= SMALLEST.largest]


def run(tmp_path: Path, *arguments: str) -> int:
    return command.main([*arguments, "--quick", "--largest", "10", "--into", str(tmp_path)])


def test_the_command_prints_a_table_and_the_paths_of_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--only", "call, sync", "--only", "Wide") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1].startswith("future round trip")
    assert shown[2].startswith("call, sync handler")
    data, picture = sorted(tmp_path.iterdir())
    assert shown[-2:] == [str(data), str(picture)]
    told = json.loads(data.read_text(encoding="utf-8"))
    assert [each["name"] for each in told["benchmarks"]] == ["future round trip", "call, sync handler"]
    assert [each["name"] for each in told["curves"]] == ["wide tree"]


def test_the_command_can_list_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    shown = capsys.readouterr().out
    assert all(each.name in shown for each in BENCHMARKS)
    assert all(each.about in shown for each in CURVES)


def test_a_name_that_nothing_has_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "perpetual motion"]) == 2
    assert "no benchmark has a name like perpetual motion" in capsys.readouterr().err


@pytest.mark.deep
def test_a_missed_target_counts_when_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = next(each for each in BENCHMARKS if each.name == "cast")
    monkeypatch.setattr(command, "BENCHMARKS", (replace(ask, target=0.0),))
    assert run(tmp_path, "--only", "cast") == 0
    assert run(tmp_path, "--only", "cast", "--strict") == 1
    assert "missed: cast" in capsys.readouterr().out


@pytest.mark.parametrize("largest", ["0", "-1"])
def test_a_size_is_at_least_one(largest: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--largest", largest])
    assert "less than 1" in capsys.readouterr().err


def test_the_command_runs_as_a_module_from_the_repositorys_root(root: Path) -> None:
    program = [sys.executable, "-m", "benchmarks", "--list", "--only", "kill"]
    done = subprocess.run(program, cwd=root, capture_output=True, check=True, text=True)
    assert "kill to DOWN" in done.stdout.splitlines()
