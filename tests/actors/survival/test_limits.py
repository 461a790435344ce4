"""The options of a pool hold for real processes: how many there are and for how long, and the processor time of a call."""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from greenroom.supervision.cluster import os_processes

from .stage import Stage

pytestmark = pytest.mark.greenroom(clock="real")

SLACK = 10.0


async def pids_of(stage: Stage, times: int) -> list[int]:
    """Who answers, one call after the other."""
    return [int(await stage.result("who")) for _ in range(times)]


def nodes() -> list[int]:
    """The worker processes of this one."""
    return os_processes.descendants(os.getpid(), named="gr-node")


@pytest.mark.deep
async def test_processor_time_is_counted_for_each_call_and_not_for_the_life_of_its_worker() -> None:
    async with Stage(size=1, cpu=1) as stage:
        workers = {await stage.result("burns", seconds=0.7) for _ in range(4)}
        assert len(workers) == 1
        assert re.fullmatch(
            r"failed: Tool execution failed: its process was ended by signal 24 \(SIGXCPU\): it used more CPU time than its limit",
            await stage.result("spins"),
        )
        assert await stage.result("burns", seconds=0.1) not in workers


async def test_a_warm_worker_is_there_before_the_first_call() -> None:
    async with Stage(size=2, warm=1) as stage:
        async with asyncio.timeout(SLACK):
            while not (ready := nodes()):  # noqa: ASYNC110 - the system has no event for it
                await asyncio.sleep(0.02)
        assert await pids_of(stage, 1) == ready


async def test_a_worker_is_replaced_after_so_many_calls() -> None:
    async with Stage(size=1, max_calls=3) as stage:
        workers = await pids_of(stage, 7)
        assert [workers.count(each) for each in dict.fromkeys(workers)] == [3, 3, 1]


async def test_workers_with_nothing_to_do_go_and_the_warm_one_stays() -> None:
    async with Stage(size=3, warm=1, idle=0.5) as stage:
        workers: set[str] = set()
        async with asyncio.timeout(SLACK):
            while len(workers) < 2:  # the first may do them all while another starts
                workers |= set(await asyncio.gather(*(stage.result("naps") for _ in range(12))))
        async with asyncio.timeout(SLACK):
            while len(alive := [each for each in workers if os_processes.is_alive(int(each))]) > 1:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)
        assert await stage.result("who") in alive
