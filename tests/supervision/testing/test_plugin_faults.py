"""Tests with faults: the marker, the fixtures, and the file that replays a failure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision import ProcessExited, start
from greenroom.testing import Fault, FaultPlan, History, Injection, check, inject

from .recording_servers import Box

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest_plugins = ["pytester"]

TILL = """
    class Till(GenServer):
        def take(self):
            return 1

    @pytest.mark.faults(*(Fault(second, "suspend", "Till", seconds=0.5) for second in range(5)), Fault(6.5, "kill", "Till"))
    async def test_it_lasts():
        till = await start(Till)
        for second in range(10):
            await asyncio.sleep(1)
            await till.call(Till.take)
"""


@pytest.mark.faults(Fault(1, "kill", "Box"))
async def test_the_marker_injects(faults: Injection, history: History) -> None:
    box = await start(Box)
    await faults.wait()
    with pytest.raises(ProcessExited):
        await box.call(Box.look)
    assert [event.what for event in history.of("died")] == ["killed"]
    assert check(history) == []


@pytest.mark.faults(FaultPlan.of(Fault(1, "kill", "Box")), Fault(0, "suspend", "Box"))
async def test_the_plan_without_its_injection_is_injected_when_the_test_wants(fault_plan: FaultPlan) -> None:
    assert [fault.what for fault in fault_plan] == ["suspend", "kill"]
    box = await start(Box)
    assert await box.call(Box.put, "hat") == 1
    await (await inject(fault_plan)).wait()
    with pytest.raises(ProcessExited):
        await box.call(Box.look)


async def test_without_a_marker_there_are_no_faults(faults: Injection) -> None:
    await faults.wait()
    assert len(faults.plan) == 0


def test_a_failure_keeps_its_plan_and_tells_what_replays_it(
    play: Callable[..., pytest.RunResult], pytester: pytest.Pytester
) -> None:
    result = play(TILL, "--greenroom-plans=plans", "--greenroom-seed=7")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*6.5 s: kill Till", "again: pytest *::test_it_lasts --greenroom-plan=plans/*.json --gr*"]
    )
    (again,) = re.findall(r"again: pytest (.*)", result.stdout.str())
    (kept,) = (pytester.path / "plans").iterdir()
    assert len(FaultPlan.load(kept.read_bytes())) == 6
    replayed = pytester.runpytest_inprocess(*again.split())
    replayed.assert_outcomes(failed=1)
    replayed.stdout.fnmatch_lines([f"again: pytest {again}"])
    kept.write_text(json.dumps({"faults": []}), encoding="utf-8")
    pytester.runpytest_inprocess(*again.split()).assert_outcomes(passed=1)


@pytest.mark.deep
def test_a_failure_is_shrunk_on_request(play: Callable[..., pytest.RunResult], pytester: pytest.Pytester) -> None:
    result = play(TILL, "--greenroom-plans=plans", "--greenroom-shrink")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["0 s: kill Till", "(the smallest found, of 6 faults)"])
    (kept,) = (pytester.path / "plans").iterdir()
    (fault,) = FaultPlan.load(kept.read_bytes())
    assert fault.what == "kill"


def test_plans_are_kept_beside_the_report(play: Callable[..., pytest.RunResult], pytester: pytest.Pytester) -> None:
    play(TILL, "--junitxml=reports/junit.xml").assert_outcomes(failed=1)
    assert len(list((pytester.path / "reports").glob("*.json"))) == 1


def test_without_a_place_the_plan_is_shown(play: Callable[..., pytest.RunResult]) -> None:
    result = play(TILL)
    result.stdout.fnmatch_lines(['as JSON, for --greenroom-plan: {"faults":*'])


def test_a_plan_that_fails_only_once_is_not_shrunk(play: Callable[..., pytest.RunResult]) -> None:
    result = play(
        """
        runs = []

        @pytest.mark.faults(Fault(0, "kill", "Missing"))
        async def test_flaky():
            runs.append(1)
            assert len(runs) > 1
        """,
        "--greenroom-shrink",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["0 s: kill Missing", "as JSON*"])


@pytest.mark.parametrize("marker", ['"kill"', "3"])
def test_an_invalid_faults_marker_is_refused(play: Callable[..., pytest.RunResult], marker: str) -> None:
    result = play(f"\n@pytest.mark.faults({marker})\nasync def test_it(faults):\n    pass\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*invalid fault plan for*"])


def test_a_file_that_is_no_plan_is_refused(play: Callable[..., pytest.RunResult], tmp_path: Path) -> None:
    result = play(TILL, f"--greenroom-plan={tmp_path / 'nowhere.json'}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*invalid fault plan for*nowhere.json*"])
