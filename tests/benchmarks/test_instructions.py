"""Counting instructions per call from Callgrind's output at each mark. The numbers do not matter here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import benchmarks.__main__ as command
import pytest
from benchmarks import instructions
from benchmarks.instruction_marks import unwatched, without_watchdog
from benchmarks.instructions import Held, Row, Size
from benchmarks.measure import Plan
from benchmarks.result_files import write

from greenroom.supervision import Node
from greenroom.transports import asgi

if TYPE_CHECKING:
    from pathlib import Path

SMALL = Size(windows=2, calls=3)


def test_a_call_takes_what_its_window_took_more_than_an_empty_one() -> None:
    start, calls = instructions.per_call([5_000, 77, 100, 700, 1_000], 3)
    assert (start, calls) == (5_000, [200.0, 300.0])


async def test_a_program_that_is_counted_has_no_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Node.__init__, "__kwdefaults__", dict(Node.__init__.__kwdefaults__ or {}))
    assert Node().watchdog is not None
    without_watchdog()
    assert Node().watchdog is None


def test_no_request_of_a_program_that_is_counted_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "WATCH_AFTER", 0.02)  # which is restored
    unwatched()
    assert vars(asgi)["WATCH_AFTER"] > 3600


def test_counts_are_read_in_the_order_of_the_marks(tmp_path: Path) -> None:
    for number, total in ((1, 900), (2, 30), (10, 5)):
        (tmp_path / f"counts.{number}").write_text(f"events: Ir\ntotals: {total}\n", encoding="utf-8")
    (tmp_path / "counts").write_text("totals: 1\n", encoding="utf-8")
    assert instructions.counted(tmp_path) == [900, 30]


def test_a_server_is_called_in_windows_that_end_with_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "PAUSE", 0.0)
    called: list[str] = []

    def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        called.append(tool[0])
        return {"result": {"content": [{"text": arguments.get("text", "")}]}}

    instructions.driven(call, SMALL)
    assert "".join(called) == "em" + "eeem" + "m" + "eeem" * 2

    def failing(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {"result": {"content": [{"text": "no such tool"}], "isError": True}}

    with pytest.raises(AssertionError):
        instructions.driven(failing, SMALL)


def test_a_figure_is_told_with_its_spread_and_its_target(tmp_path: Path) -> None:
    rows = [Row("served", [800.0, 810.0, 790.0], 900.0), Row("called", [50.0, 51.0], 40.0), Row("start", [3e9])]
    held = Held(SMALL, rows)
    assert held.missed == ["called"]
    _, _, served, called, start = instructions.table(held).splitlines()
    assert "800 (790 to 810)" in served
    assert "2.50%" in served
    assert served.endswith("<= 900  met")
    assert called.endswith("MISSED")
    assert start.endswith("3,000,000,000")
    (file,) = write(tmp_path, Plan.quick(), [], [], counted=held)
    assert json.loads(file.read_text(encoding="utf-8"))["instructions"]["rows"][0]["values"] == [800.0, 810.0, 790.0]


def test_counting_is_refused_without_valgrind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert command.main(["--only", "instructions", "--into", str(tmp_path)]) == 2
    assert "which is not installed: apt-get install valgrind" in capsys.readouterr().err
    held = instructions.hold(SMALL)
    assert held.rows == []
    assert "left out" in instructions.table(held)


def test_the_command_knows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list", "--only", "instructions"]) == 0
    assert capsys.readouterr().out.startswith("instructions\n")


@pytest.mark.soak
@pytest.mark.time_limit(600)
def test_everything_is_counted_where_valgrind_is_installed() -> None:
    held = instructions.hold(SMALL)
    there = instructions.installed()
    assert (held.missing is None) is there
    assert [len(row.values) for row in held.rows] == ([2, 2, 2, 2, 1, 1, 1] if there else [])
    assert all(row.median > 0 for row in held.rows)
