"""The benchmark of requests without a session: its callers, targets and parts of a parked call."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from benchmarks import __main__ as command
from benchmarks import modern_exchanges
from benchmarks.benchmark_types import Run
from benchmarks.contest_rounds import Effort
from benchmarks.serving import modern
from benchmarks.serving.contenders import ours
from benchmarks.serving.processes import serving
from benchmarks.serving.sessions import SessionlessCaller

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.deep

SHORT = Effort(rounds=1, seconds=0.05)


@pytest.mark.deep
def test_calls_lists_and_changes_are_measured() -> None:
    held = modern.hold(SHORT, listeners=20)
    assert {modern.SESSION, modern.SESSIONLESS, modern.DISCOVER, modern.LIST} <= set(held.entries)
    assert all(len(each.rate) == 1 and each.rate[0] > 0 for each in held.entries.values())
    assert {name: len(values) for name, values in held.told.items()} == {"sessions": 1, "listens": 1}
    assert modern.SESSIONLESS in modern.table(held)
    assert json.loads(json.dumps(modern.as_data(held)))["entries"]


@pytest.mark.deep
def test_a_caller_without_a_session_gets_answers(tmp_path: Path) -> None:
    with serving(ours("echo"), tmp_path / "log") as served, closing(SessionlessCaller(served.port).line) as line:
        caller = SessionlessCaller.__new__(SessionlessCaller)
        caller.take(line)
        answer = caller.call("echo", {"text": "hello"})
        assert answer["result"]["content"][0]["text"] == "hello"
        assert caller.session is None


def test_targets_are_ratios_of_the_same_round() -> None:
    held = modern.Held(SHORT)
    held.note(modern.SESSION, 1000.0, 100e-6)
    held.note(modern.SESSIONLESS, 900.0, 120e-6)
    held.note(modern.MCP, 600.0, 300e-6)
    held.told = {"listens": [0.3], "sessions": [0.2]}
    assert [(round(each.median, 2), each.met) for each in modern.reached(held)] == [
        (1.2, True),
        (1.5, False),
        (1.5, False),
    ]
    assert modern.reached(modern.Held(SHORT)) == []


@pytest.mark.greenroom(clock="real")
async def test_nothing_is_left_of_parked_calls_when_their_time_is_over() -> None:
    run = Run(200)
    await modern_exchanges.parked.function(run)  # type: ignore[misc]
    parts = run.asides
    assert parts["left"] < 500
    assert run.cost("cpu") == pytest.approx(parts["whole"] - parts["process"] - parts["coroutines"] - parts["request"])


def test_the_command_lists_the_benchmark(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert command.main(["--list", "--only", "modern", "--into", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    assert "\nmodern\n" in listed
    assert "modern: bookkeeping of a parked call\n" in listed
