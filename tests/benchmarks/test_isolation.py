"""The rounds of the isolation benchmark, and the survival page. Speed does not matter here."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from benchmarks.cluster import isolation, survival
from benchmarks.contest_rounds import Effort

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.deep

SHORT = Effort(rounds=1, seconds=0.05)


@pytest.fixture(scope="module")
def held(root: Path) -> isolation.Held:
    """One short round of most contestants, whose workers can import the tools."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(root)])
        return isolation.hold(SHORT, (isolation.LOOP, isolation.PROCESS, isolation.ANYIO_IN_TOOL, isolation.ANYIO))


def test_all_contestants_answer_and_are_in_the_table(held: isolation.Held) -> None:
    shown = isolation.table(held).splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in shown[2:6]] == [
        "an `async def` tool",
        'a tool with `isolation="process"`',
        "a tool that uses `anyio.to_process`",
        "`anyio.to_process` alone, no tool",
    ]
    assert all(entry.rate[0] > 0 and 0 < entry.p50[0] <= entry.p99[0] for entry in held.entries)
    assert all(entry.computing[1] and entry.computing[2] for entry in held.entries if entry.way.apart)
    assert "An idle worker has " in shown[-1]


def test_targets_are_reported(held: isolation.Held) -> None:
    assert [one.name for one in held.milestones] == [
        "isolated call, one in flight, p50",
        "isolated, 100 in flight, beside the better tool with a bare pool",
        "isolated, 100 in flight, beside the better bare pool alone",
        "computing calls, two processes beside one",
    ]
    assert isolation.reached(isolation.Held(SHORT)) == []
    assert [one["name"] for one in isolation.as_data(held)["entries"]] == [entry.way.name for entry in held.entries]


def test_a_row_of_survival_says_what_the_caller_heard_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(survival.TOOLS)])
    fault = next(one for one in survival.FAULTS if one.tool == "exits_at_once")
    with tempfile.TemporaryDirectory(prefix="left-") as folder:  # other tests use the shared folder
        monkeypatch.setattr(tempfile, "tempdir", folder)
        found = asyncio.run(survival.alone(replace(fault, times=1), calm=1))
    assert found.heard == {"`isError`: `Tool execution failed: its process exited with code 1`"}
    assert (found.lost, found.left) == (0, "nothing")
    assert survival.row(fault, found).startswith("| `os._exit(1)` | `isError`: ")
