"""A supervised connection that is killed again and again: what is asked of its line is settled once, and no call is made twice."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.client.connection_line import ConnectionLine, connection_spec
from greenroom.actors.client.errors import RequestLost
from greenroom.supervision import Supervisor, kill, start, stop, wait_down

from .fake_server import After, Stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from greenroom.actors.client.interfaces import Progress
    from greenroom.protocol.jsonrpc import JsonRpcRequest


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.row("CL-01", "CL-26")
@pytest.mark.greenroom(seed="random")
async def test_a_connection_that_is_killed_at_any_moment_leaves_no_caller_waiting(seed: int) -> None:
    chance = random.Random(seed)
    stage = Stage()

    def answer(request: JsonRpcRequest) -> Any:
        return After(chance.choice([0.01, 0.1, 1.0]), {"of": request.params["n"]})

    def note(number: int) -> Callable[..., object]:
        return lambda *_: settled.update([number])

    stage.answers["tools/call"] = answer
    line = ConnectionLine("mortal")
    top = await start(Supervisor, [connection_spec(stage, line=line)], intensity=1000)
    asked: list[Any] = []
    settled: Counter[int] = Counter()
    for number in range(200):
        pending = line.begin("tools/call", {"name": "x", "n": number}, timeout=20.0)
        pending.when_settled(note(number))
        asked.append(pending)
        if chance.random() < 0.15 and line.pid is not None:
            kill(line.pid)
        if chance.random() < 0.5:
            await asyncio.sleep(chance.choice([0, 0, 0.02]))
    outcomes = await asyncio.gather(*(each.result() for each in asked), return_exceptions=True)
    await asyncio.sleep(0)
    assert settled == Counter(range(200))
    for number, outcome in enumerate(outcomes):
        assert outcome == {"of": number} or isinstance(outcome, RequestLost), outcome
    assert any(isinstance(outcome, dict) for outcome in outcomes)
    seen = Counter(request.params["n"] for request in stage.asked("tools/call"))
    assert max(seen.values()) == 1
    assert await line.request("ping") == {}
    await line.close()
    await stop(top)


@pytest.mark.row("CL-26")
async def test_a_request_without_a_deadline_waits_for_no_connection_that_may_never_come() -> None:
    stage = Stage()
    line = ConnectionLine("mortal")
    top = await start(Supervisor, [connection_spec(stage, line=line)], intensity=0)
    await line.ready()
    pid = line.pid
    assert pid is not None
    over = wait_down(top.pid)
    asked = [line.begin("tools/call", {"name": "x"}, timeout=None) for _ in range(3)]
    kill(pid)  # which has not looked at them, and will not be started again
    await over
    for each in asked:
        with pytest.raises(RequestLost) as caught:
            async with asyncio.timeout(1.0):
                await each.result()
        assert not caught.value.maybe_done


@pytest.mark.row("CL-26")
async def test_progress_of_a_held_request_ends_when_the_request_is_cancelled() -> None:
    line = ConnectionLine("mortal")
    connection_spec(Stage(), line=line)
    pending = line.begin("tools/call", {"name": "x"}, timeout=20.0, progress=True)
    following = asyncio.create_task(_all(pending.progress()))
    waiting = asyncio.create_task(pending.result())
    await asyncio.sleep(0)
    waiting.cancel()
    async with asyncio.timeout(1.0):
        assert await following == []


async def _all(steps: AsyncIterator[Progress]) -> list[Progress]:
    return [step async for step in steps]
