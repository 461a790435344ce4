"""Faults at random, one after the other and several at a time: each call has one outcome, and it is the right one."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pytest

from greenroom.supervision import current_node, kill

from .leaked_resources import descendants
from .stage import Stage, said

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from greenroom.supervision import Pid

pytestmark = [pytest.mark.greenroom(clock="real"), pytest.mark.deep]

FAILED: Final = "failed: Tool execution failed"
TOLD: Final[Mapping[str, str]] = {
    "exits_at_once": f"{FAILED}: its process exited with code 1",
    "exits": FAILED,
    "reads_nothing": rf"{FAILED}: its process was ended by signal 11 \(SIGSEGV\).*",
    "kills_itself": rf"{FAILED}: its process was ended by signal 9 \(SIGKILL\), which greenroom did not send.*",
    "aborts": rf"{FAILED}: its process was ended by signal 6 \(SIGABRT\).*",
    "nothing_of_json": FAILED,
    "closes_everything": rf"{FAILED}: its process .*",
    "allocates": rf"{FAILED}: it needed more than the 256 MiB of memory that its process may have",
    "forks": "0",
    "forks_and_leaves": r"\d+",
    "writes_garbage": "written",
    "holds_interpreter": "let go",
}
"""What becomes of each fault, but for those that never end: they are given half a second."""
LATE: Final = r"failed: Tool 'late_at_random' timed out after 0\.5 s"
MUCH: Final = 100
"""Megabytes, which one in so many calls beside them returns."""


class Storm:
    """Calls at random, and what was surprising."""

    def __init__(self, stage: Stage, at_a_time: int) -> None:
        self.stage = stage
        self.surprises: list[str] = []
        self.faults: Counter[str] = Counter()
        self._turns = asyncio.Semaphore(at_a_time)

    async def blow(self, seeds: range) -> None:
        """Half of the calls with these numbers are faults."""
        for first in range(seeds.start, seeds.stop, 500):
            await asyncio.gather(*(self._call(seed) for seed in range(first, min(first + 500, seeds.stop))))
            self.stage.probe.received.clear()

    async def _call(self, seed: int) -> None:
        stage, fault = self.stage, self.stage.tools.drawn(seed)
        endless = fault in stage.tools.ENDLESS
        async with self._turns:
            tool = "late_at_random" if endless else "at_random"
            asked = await stage.probe.ask("tools/call", {"name": tool, "arguments": {"seed": seed}})
            answer = said(await stage.probe.answer(asked, within=60))
        wanted = LATE if endless else TOLD[fault] if fault else str(seed)
        if not re.fullmatch(wanted, answer) or stage.answers_to(asked) != 1:
            self.surprises.append(f"{seed}, {fault or 'no fault'}: {answer} instead of {wanted}")
        if fault:
            self.faults[fault] += 1
        if seed % 7 == 0:
            other = await stage.result("in_process", n=seed)
            if other != str(seed):
                self.surprises.append(f"{seed}: another tool answered {other}")
        if seed % 601 == MUCH:
            self.faults["returns much"] += 1
            length = len(await stage.result("hundred_megabytes", megabytes=MUCH))
            if length != MUCH * 1_000_000:
                self.surprises.append(f"{seed}: {length} characters instead of {MUCH} millions")


async def storm(faults: int, at_a_time: int = 6, size: int = 3) -> Counter[str]:
    """So many of them, about; which they were. None of them is a surprise."""
    async with Stage(size=size) as stage:
        blowing = Storm(stage, at_a_time)
        await blowing.blow(range(2 * faults))
        assert blowing.surprises == []
    return blowing.faults


def every_fault() -> set[str]:
    tools: Any = import_module("survival_tools")
    return {*tools.QUICK, *tools.SLOW, *tools.ENDLESS, "returns much"}


@pytest.mark.deep
async def test_three_hundred_faults_are_no_surprise() -> None:
    before = descendants()
    faults = await storm(300)
    assert descendants() == before
    assert faults.total() >= 300
    assert set(faults) == every_fault()


@pytest.mark.soak
async def test_ten_thousand_faults_are_no_surprise() -> None:
    before = descendants()
    began = time.monotonic()
    faults = await storm(10_000)
    assert descendants() == before
    assert faults.total() >= 10_000
    assert set(faults) == every_fault()
    print(f"{faults.total()} faults in {time.monotonic() - began:.0f} s: {dict(faults)}")  # noqa: T201 - with -s


@pytest.mark.deep
async def test_no_call_is_run_twice_and_none_is_lost_that_was_not_run(tmp_path: Path) -> None:
    """Workers have calls lying before them when they die: those begin elsewhere, and the one that was under way does not."""
    written = tmp_path / "marks"
    async with Stage(size=2) as stage:
        asked: dict[int, str] = {}
        for number in range(400):
            die = "exits_at_once" if number % 20 == 7 else "kills_itself" if number % 20 == 13 else ""
            asked[number] = die
        calls = (stage.result("marks", path=str(written), number=number, die=die) for number, die in asked.items())
        answers = dict(zip(asked, await asyncio.gather(*calls), strict=True))
    runs = Counter(map(int, written.read_text().split()))
    assert max(runs.values()) == 1
    for number, answer in answers.items():
        if answer == str(number):
            assert runs[number] == 1
        else:
            assert asked[number], answer  # only those that die are answered so
            assert re.fullmatch(TOLD[asked[number]], answer)
            assert runs[number] == 1


async def test_calls_behind_a_long_call_move_to_another_worker() -> None:
    async with Stage(size=2) as stage:
        await asyncio.gather(*(stage.result("who") for _ in range(20)))
        lasting = asyncio.ensure_future(stage.result("lasts", seconds=3))
        others = await asyncio.gather(*(stage.result("who") for _ in range(200)))
        assert not lasting.done()
        assert await lasting not in others


def worker_proxies() -> list[Pid]:
    """The proxy of each worker."""
    return [each.pid for each in current_node().processes.values() if (each.label or "").startswith("WorkerProxy")]


async def test_a_call_that_was_started_when_its_proxy_died_is_not_started_by_another_worker(tmp_path: Path) -> None:
    """The proxy dies while the process of its worker lives on for a while, with calls that may have been started or not."""
    written = tmp_path / "marks"
    async with Stage(size=1) as stage:
        for turn in range(5):
            await stage.result("who")
            first = 100 * turn
            calls = [
                asyncio.ensure_future(stage.result("marks", path=str(written), number=first + each, seconds=0.002))
                for each in range(8)
            ]
            while str(first) not in (  # noqa: ASYNC110 - the other process sends no event
                written.read_text().split() if written.exists() else ()
            ):
                await asyncio.sleep(0.0005)
            blocked = 0
            while str(first + 2) not in written.read_text().split():
                time.sleep(0.0005)  # noqa: ASYNC251 - home is blocked, and does not hear how far the worker comes meanwhile
                blocked += 1
                if blocked % 100 == 0:  # the worker has no more: the other calls have not left home yet
                    await asyncio.sleep(0)
            doomed = worker_proxies()
            assert doomed
            for worker_proxy in doomed:
                kill(worker_proxy)
            answers = await asyncio.gather(*calls)
            assert any(answer.startswith(FAILED) for answer in answers)
            for each, answer in enumerate(answers):
                assert answer == str(first + each) or answer.startswith(FAILED)
    runs = Counter(written.read_text().split())
    assert max(runs.values()) == 1
