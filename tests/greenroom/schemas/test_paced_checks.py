"""Long checks run in a thread, paced, and fairly between peers."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from greenroom import Client, Server
from greenroom.actors.offloaded_validation import run_check
from greenroom.protocol.errors import BadAnswer
from greenroom.protocol.handler_results import Structured
from greenroom.protocol.validation_errors import (
    STEPS_IN_THREAD,
    STEPS_ON_LOOP,
    PacedStepMeter,
    StepMeter,
    StepsExceeded,
)

ROW = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}, "required": ["id"]}
ROWS = {"type": "object", "properties": {"rows": {"type": "array", "items": ROW}}, "required": ["rows"]}
DOUBLING: dict[str, Any] = {f"a{level}": {"anyOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(40)}
EVIL = {"type": "object", "properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": {**DOUBLING, "a40": {"type": "string"}}}


class Steps:
    """A check that takes this many steps, and records its threads."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.threads: list[str] = []

    def __call__(self, meter: StepMeter) -> str:
        self.threads.append(threading.current_thread().name)
        for _ in range(self.steps // 1_000):
            meter.spend(1_000)
        return "done"


def test_a_cheap_check_never_leaves_the_loop() -> None:
    check = Steps(STEPS_ON_LOOP)
    assert asyncio.run(run_check(check, "peer")) == "done"
    assert check.threads == ["MainThread"]


def test_a_long_check_begins_again_in_a_thread() -> None:
    check = Steps(STEPS_ON_LOOP + 1_000)
    assert asyncio.run(run_check(check, "peer")) == "done"
    here, there = check.threads
    assert here == "MainThread"
    assert there.startswith("greenroom-checks")


def test_a_check_that_never_ends_is_given_up() -> None:
    taken = 0

    def endless(meter: StepMeter) -> None:
        nonlocal taken
        taken = 0
        while True:
            taken += 100_000
            meter.spend(100_000)

    with pytest.raises(StepsExceeded):
        asyncio.run(run_check(endless, "peer"))
    assert taken == STEPS_IN_THREAD + 100_000


def test_a_cancelled_check_frees_its_thread() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        running = asyncio.Event()
        ended = asyncio.Event()

        def endless(meter: StepMeter) -> None:
            if not isinstance(meter, PacedStepMeter):
                raise StepsExceeded
            loop.call_soon_threadsafe(running.set)
            try:
                while True:
                    meter.remaining = STEPS_IN_THREAD
                    meter.spend(1)
            finally:
                loop.call_soon_threadsafe(ended.set)

        task = asyncio.ensure_future(run_check(endless, "peer"))
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await ended.wait()
        assert await run_check(Steps(STEPS_ON_LOOP + 1_000), "peer") == "done"

    asyncio.run(main())


def test_a_peer_with_many_long_checks_makes_another_wait_for_one_of_them() -> None:
    order: list[str] = []

    def check(peer: str) -> Any:
        def long(meter: StepMeter) -> None:
            if not isinstance(meter, PacedStepMeter):
                raise StepsExceeded
            order.append(peer)

        return run_check(long, peer)

    async def main() -> None:
        await asyncio.gather(*(check("greedy") for _ in range(20)), check("modest"))

    asyncio.run(main())
    assert len(order) == 21
    assert order.index("modest") <= 1


def serving() -> Server:
    server = Server("rows")

    @server.tool(output_schema=ROWS, validate_output=False)
    def rows(count: int) -> Any:
        return Structured({"rows": [{"id": number, "name": f"n{number}"} for number in range(count)]})

    @server.tool(output_schema=EVIL, validate_output=False)
    def evil() -> Any:
        return Structured({"x": 1})

    return server


def test_a_large_honest_result_is_checked_beside_the_loop() -> None:
    async def main() -> None:
        async with Client(serving()) as client:
            assert len((await client.call("rows", count=50_000))["rows"]) == 50_000

    asyncio.run(main())


def test_a_hostile_output_schema_is_given_up_with_a_reason() -> None:
    async def main() -> None:
        async with Client(serving()) as client:
            with pytest.raises(
                BadAnswer, match=f"too much in it to be checked: more than {STEPS_IN_THREAD} steps"
            ) as caught:
                await client.call("evil")
            assert caught.value.problems[0].reason.kind == "too_complex"
            assert len((await client.call("rows", count=3))["rows"]) == 3

    asyncio.run(main())
