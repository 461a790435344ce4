"""A worker that hangs while idle: no caller finds that out only by the deadline of its own call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision.cluster import os_processes
from greenroom.supervision.cluster.peers import HEARTBEAT, MISSES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .stage import Stage

pytestmark = [pytest.mark.greenroom(clock="real"), pytest.mark.deep]

SLACK = 5.0
SILENT = HEARTBEAT * MISSES


async def stopped(workers: Iterable[int]) -> None:
    """Stop these, and wait until they are: a signal takes its time."""
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    for pid in workers:
        while os_processes.all_processes()[pid].state != "T":  # noqa: ASYNC110 - the system has no event for it
            await asyncio.sleep(0.001)


async def all_workers(stage: Stage) -> set[int]:
    """The processes of the pool, all of which have come up."""
    found: set[int] = set()
    while len(found) < 2:
        found |= set(map(int, await asyncio.gather(*(stage.result("naps") for _ in range(6)))))
    return found


async def test_a_worker_found_hanging_is_gone_before_the_next_call(stage: Stage) -> None:
    before = int(await stage.result("who"))
    await stopped([before])
    async with asyncio.timeout(SILENT * SLACK):
        while os_processes.is_alive(before):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
    assert int(await stage.result("who", within=SLACK)) != before


async def test_a_call_that_is_given_to_one_that_is_dead_goes_to_another(stage: Stage) -> None:
    workers = await all_workers(stage)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)  # and the server has not heard of it when they are given these calls
    asked = [await stage.probe.ask("tools/call", {"name": "who", "arguments": {}}) for _ in range(5)]
    answers = [await stage.probe.answer(each, within=10 * SLACK) for each in asked]
    assert not {int(answer["result"]["content"][0]["text"]) for answer in answers} & workers


async def test_a_call_that_is_given_to_one_that_hangs_goes_to_another(stage: Stage) -> None:
    workers = await all_workers(stage)
    await stopped(workers)
    asked = [await stage.probe.ask("tools/call", {"name": "who", "arguments": {}}) for _ in range(30)]
    answers = [await stage.probe.answer(each, within=10 * SLACK) for each in asked]
    others = {int(answer["result"]["content"][0]["text"]) for answer in answers}
    assert not others & workers
    assert [stage.answers_to(each) for each in asked] == [1] * 30


async def test_a_call_to_one_that_hangs_can_be_given_up_and_is_never_begun(stage: Stage, tmp_path: Path) -> None:
    written = tmp_path / "marks"
    stage.server.registry.register_tool("soon", stage.tools.marks, stage.options(timeout=0.2))
    await stopped(await all_workers(stage))
    assert await stage.result("soon", path=str(written), number=1) == "failed: Tool 'soon' timed out after 0.2 s"
    assert await stage.result("marks", path=str(written), number=2) == "2"
    assert written.read_text().split() == ["2"]


async def test_none_is_begun_twice_when_those_that_hang_come_to_themselves(stage: Stage, tmp_path: Path) -> None:
    """They do so at about the time when their calls are given to others."""
    written = tmp_path / "marks"
    loop = asyncio.get_running_loop()
    for turn in range(3):
        workers = await all_workers(stage)
        await stopped(workers)
        loop.call_later(0.9 + 0.3 * turn, go_on, workers)
        numbers = range(100 * turn, 100 * turn + 20)
        calls = (stage.result("marks", path=str(written), number=number) for number in numbers)
        assert await asyncio.gather(*calls) == list(map(str, numbers))
    runs = Counter(map(int, written.read_text().split()))
    assert len(runs) == 60
    assert set(runs.values()) == {1}


def go_on(workers: Iterable[int]) -> None:
    for pid in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
