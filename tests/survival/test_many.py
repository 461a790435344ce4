"""Faults at random, one after the other and several at a time: each call has one outcome, and it is the right one."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from .stage import Stage, descendants, said

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.greenroom(clock="real")

FAILED: Final = "failed: Tool execution failed"
TOLD: Final[Mapping[str, str]] = {
    "exits_at_once": f"{FAILED}: its process exited with code 1",
    "exits": FAILED,
    "reads_nothing": rf"{FAILED}: its process was ended by signal 11 \(SIGSEGV\).*",
    "kills_itself": rf"{FAILED}: its process was ended by signal 9 \(SIGKILL\), which greenroom did not send.*",
    "aborts": rf"{FAILED}: its process was ended by signal 6 \(SIGABRT\).*",
    "nothing_of_json": FAILED,
    "closes_everything": rf"{FAILED}: its process .*",
}
"""What becomes of each fault. `survival_tools.at_random` draws in the same way."""


def expected(stage: Stage, seed: int) -> str:
    """What the call with this seed is answered with."""
    draw = random.Random(seed)
    return TOLD[draw.choice(stage.tools.FAULTS)] if draw.random() < 0.5 else str(seed)


async def storm(faults: int, at_a_time: int, size: int) -> list[str]:
    """So many calls, half of them faults; what was surprising."""
    surprises: list[str] = []
    turns = asyncio.Semaphore(at_a_time)

    async def call(stage: Stage, seed: int) -> None:
        async with turns:
            asked = await stage.probe.ask("tools/call", {"name": "at_random", "arguments": {"seed": seed}})
            answer = said(await stage.probe.answer(asked, within=60))
        if not re.fullmatch(expected(stage, seed), answer) or stage.answers_to(asked) != 1:
            surprises.append(f"{seed}: {answer} instead of {expected(stage, seed)}")
        if seed % 7 == 0:
            other = await stage.result("in_process", n=seed)
            if other != str(seed):
                surprises.append(f"{seed}: another tool answered {other}")

    async with Stage(size=size) as stage:
        for first in range(0, 2 * faults, 500):
            await asyncio.gather(*(call(stage, seed) for seed in range(first, min(first + 500, 2 * faults))))
            stage.probe.received.clear()
    return surprises


async def test_three_hundred_faults_are_no_surprise() -> None:
    before = descendants()
    assert await storm(300, 6, 3) == []
    assert descendants() == before


@pytest.mark.soak
async def test_ten_thousand_faults_are_no_surprise() -> None:
    before = descendants()
    assert await storm(10_000, 6, 3) == []
    assert descendants() == before


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


async def test_what_lies_behind_a_call_that_lasts_goes_to_another_worker() -> None:
    async with Stage(size=2) as stage:
        await asyncio.gather(*(stage.result("who") for _ in range(20)))
        lasting = asyncio.ensure_future(stage.result("holds_interpreter", seconds=3))
        began = asyncio.get_running_loop().time()
        others = await asyncio.gather(*(stage.result("who") for _ in range(200)))
        assert len(set(others)) >= 1
        assert asyncio.get_running_loop().time() - began < 3
        assert not lasting.done()
        assert await lasting == "let go"
