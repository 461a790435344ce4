"""A scenario, a plan and a seed determine a run, byte for byte, from the command line too."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision import GenServer, ProcessExited, Ref, start
from greenroom.supervision.testing.histories import HistoryViolation
from greenroom.supervision.testing.scenario_replay import ReplayResult
from greenroom.testing import Fault, FaultPlan, command_line, inject, play, start_supervised

if TYPE_CHECKING:
    from pathlib import Path

SCENARIO = '''
"""Four clerks ask a till all at once, which is killed."""
import asyncio
from greenroom.supervision import GenServer, ProcessExited, Ref, Supervisor, child, spawn, start, wait_down


class Till(GenServer):
    def __init__(self):
        self.words = set()

    def take(self, *words):
        self.words |= {*words}
        return sorted(self.words), {*words}, object()


async def clerk(number):
    for turn in range(3):
        try:
            await Ref("till").call(Till.take, f"{number}", f"{turn}")
        except ProcessExited:
            pass
        await asyncio.sleep(1)


async def shop():
    await start(Supervisor, [child(Till).but(name="till")])
    for pid in [spawn(clerk, number) for number in range(4)]:
        await wait_down(pid, None)


async def fragile():
    await start(Supervisor, [child(Till).but(name="till")])
    await asyncio.sleep(5)
    await Ref("till").call(Till.take, "a")
'''

PLAN = FaultPlan.of(Fault(0.5, "suspend", "Till", seconds=1), Fault(1, "raise", "@till"), Fault(3, "kill", "Missing"))


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SCENARIO, encoding="utf-8")
    (tmp_path / "plan.json").write_text(PLAN.dump(indent=2), encoding="utf-8")
    return tmp_path


def command(folder: Path, *arguments: str, hash_seed: int = 0) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "greenroom.testing", *arguments],
        cwd=folder,
        capture_output=True,
        check=False,
        text=True,
        env={"PYTHONHASHSEED": str(hash_seed)},
    )
    return done.returncode, done.stdout, done.stderr


def test_two_runs_print_the_same_byte_for_byte(shop: Path) -> None:
    runs = [command(shop, "replay", "shop.py:shop", "plan.json", "--seed", "7", hash_seed=seed) for seed in (1, 2)]
    assert runs[0] == runs[1]
    code, printed, errors = runs[0]
    assert (code, errors) == (0, "")
    assert printed.count(" called ") == 12 + 2  # and two of the fault that suspends
    assert "fault at 1 s: raise @till" in printed
    assert "no fault at 3 s: kill Missing, since no process matches Missing" in printed
    assert "died Till" in printed


def test_another_seed_is_another_order(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed: set[str] = set()
    for seed in range(1, 6):
        assert command_line(["replay", f"{shop / 'shop.py'}:shop", "--seed", str(seed)]) == 0
        printed.add(capsys.readouterr().out)
    assert len(printed) > 1


def test_a_failure_is_told_and_shrunk(shop: Path) -> None:
    plan = FaultPlan.of(*PLAN, Fault(4.75, "kill", "@till"), Fault(4.8, "kill", "@till"))
    (shop / "plan.json").write_text(plan.dump(), encoding="utf-8")
    code, printed, _ = command(shop, "replay", "shop.py:fragile", "plan.json")
    assert code == 1
    assert printed.splitlines()[-1] == "failed: NotRegistered: no process is registered as 'till'"
    code, printed, _ = command(shop, "shrink", "shop.py:fragile", "plan.json")
    assert code == 0
    assert FaultPlan.load(printed) == FaultPlan.of(Fault(0, "kill", "@till"), Fault(0, "kill", "@till"))
    (shop / "plan.json").write_text("{}", encoding="utf-8")
    code, _, errors = command(shop, "shrink", "shop.py:fragile", "plan.json")
    assert code == 1
    assert "does not fail" in errors


def test_a_plan_is_shrunk_in_as_many_runs_as_there_may_be(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = FaultPlan.of(*PLAN, Fault(4.75, "kill", "@till"), Fault(4.8, "kill", "@till"))
    (shop / "plan.json").write_text(plan.dump(), encoding="utf-8")
    fragile = [f"{shop / 'shop.py'}:fragile", str(shop / "plan.json")]
    assert command_line(["shrink", *fragile]) == 0
    smallest = FaultPlan.load(capsys.readouterr().out)
    assert smallest == FaultPlan.of(Fault(0, "kill", "@till"), Fault(0, "kill", "@till"))
    assert command_line(["shrink", *fragile, "--tries", "1"]) == 0
    assert len(FaultPlan.load(capsys.readouterr().out)) > 2
    assert command_line(["shrink", fragile[0]]) == 1
    assert "does not fail" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["shop.py:missing"], "has no function called 'missing'"),
        (["nowhere.py:shop"], "is not a scenario"),
        (["shop.py"], "is not a scenario"),
        (["plan.json:shop"], "is not a Python file"),
        (["shop.py:shop", "nowhere.json"], "No such file"),
        (["shop.py:shop", "shop.py"], "Expected `object`"),
    ],
)
def test_an_invalid_replay_is_refused_with_a_reason(
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    complaint: str,
) -> None:
    monkeypatch.chdir(shop)
    with pytest.raises(SystemExit) as ended:
        command_line(["replay", *arguments])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


# --- from a program


class Cup(GenServer):
    def sip(self) -> str:
        return "mm"


def test_a_scenario_may_inject_the_plan_itself() -> None:
    async def scenario(plan: FaultPlan) -> None:
        cup = await start(Cup)
        assert await cup.call(Cup.sip) == "mm"
        await (await inject(plan)).wait()
        with pytest.raises(ProcessExited):
            await cup.call(Cup.sip)

    played = play(scenario, FaultPlan.of(Fault(0, "kill", "Cup")))
    assert not played.failed
    assert [event.kind for event in played.history.of(who="Cup")][:4] == ["born", "called", "answered", "report"]


def test_an_exception_of_a_scenario_is_part_of_its_result() -> None:
    async def scenario() -> None:
        await Ref[Cup]("missing").call(Cup.sip)

    played = play(scenario)
    assert played.failed
    assert played.text() == "failed: NotRegistered: no process is registered as 'missing'\n"


def test_how_it_failed_is_its_error_and_the_rules_that_it_broke() -> None:
    async def quiet() -> None:
        raise ValueError

    async def other() -> None:
        raise KeyError("till")

    silent, loud = play(quiet), play(other)
    assert silent.text() == "failed: ValueError\n"
    assert silent.fails_like(play(quiet))
    assert not silent.fails_like(loud)
    assert not ReplayResult(silent.history, None, ()).fails_like(ReplayResult(silent.history, None, ()))
    broken = ReplayResult(silent.history, None, (HistoryViolation("each call is answered once", "sip() was not", ()),))
    assert broken.failed
    assert broken.text() == "wrong: each call is answered once: sip() was not\n"
    assert not broken.fails_like(silent)


def test_messages_are_shown_when_they_are_wanted() -> None:
    async def scenario() -> None:
        (await start_supervised(Cup)).cast(Cup.sip)

    assert "sent Cup <node.2> by outside: cast sip()" in play(scenario, messages=True).text()
    assert "cast sip()" not in play(scenario).text()
