"""The load over pipes recognizes correct answers, and the rounds run. Speed does not matter here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import benchmarks.__main__ as command
import pytest
from benchmarks.contest_rounds import Effort, Program
from benchmarks.measure import Plan
from benchmarks.result_files import write
from benchmarks.serving import stdio
from benchmarks.serving.sessions import Unexpected

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.deep

SHORT = Effort(rounds=1, seconds=0.05)
LIAR = """
import json, sys
for line in sys.stdin:
    said = json.loads(line)
    if said.get("id") == 0:
        print('{"jsonrpc":"2.0","id":0,"result":{}}', flush=True)
    elif "id" in said:
        print(%s, flush=True)
        if "end" in sys.argv:
            break
"""


def liar(answer: str, *options: str) -> Program:
    return Program("liar", (sys.executable, "-c", LIAR % answer, *options))


@pytest.mark.parametrize(
    "answer",
    [
        """json.dumps({"id": said["id"] - 1, "result": {}}, separators=(",", ":"))""",
        """json.dumps({"id": said["id"], "error": {"code": 1}}, separators=(",", ":"))""",
        """json.dumps({"id": said["id"], "result": {"isError": True}}, separators=(",", ":"))""",
    ],
)
def test_an_answer_to_another_call_is_refused(answer: str) -> None:
    with stdio.started(liar(answer)) as (line, _), pytest.raises(Unexpected):
        line.drive(1, 0.05)


def test_a_server_that_ends_in_the_middle_is_not_waited_for() -> None:
    right = """json.dumps({"id": said["id"], "result": {}}, separators=(",", ":"))"""
    with stdio.started(liar(right, "end")) as (line, _), pytest.raises((Unexpected, BrokenPipeError)):
        line.drive(1, 10.0)


def test_rounds_are_held_with_the_available_programs(tmp_path: Path) -> None:
    absent = Program("absent", ("/nowhere/python",))
    held = stdio.hold(SHORT, (stdio.OURS, absent))
    assert list(held.missing) == ["absent"]
    (entry,) = held.entries
    assert len(entry.start) == 1
    assert all(len(values) == 1 and values[0] > 0 for values in entry.rate.values())
    shown = stdio.table(held).splitlines()
    assert shown[2].startswith("greenroom")
    assert shown[3].startswith("absent: left out")
    (data,) = write(tmp_path, Plan.quick(), [], [], None, held)
    assert '"stdio"' in data.read_text(encoding="utf-8")


def test_targets_are_measured_beside_the_named_programs() -> None:
    def entry(program: Program, one: float, many: float, start: float) -> stdio.Entry:
        return stdio.Entry(program, [start], {1: [one], stdio.CROWD: [many]}, {1: [1.0], stdio.CROWD: [1.0]})

    ours, mcp = entry(stdio.OURS, 8.0, 50.0, 1.0), entry(stdio.MCP, 1.0, 10.0, 3.0)
    node = entry(stdio.TYPESCRIPT, 10.0, 100.0, 2.0)
    reached = stdio.reached(stdio.Held(SHORT, [ours, mcp, node]))
    assert [(each.median, each.target, each.met) for each in reached] == [
        (0.8, 0.8, True),
        (5.0, 5.0, True),
        (0.5, 1.0, True),
    ]
    assert stdio.reached(stdio.Held(SHORT, [ours])) == []


def test_the_command_knows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list", "--only", "stdio"]) == 0
    assert "stdio" in capsys.readouterr().out.splitlines()
