"""Semaphores get permits back however the holder exits; rate limiters use the node's clock."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.supervision import CallTimeout, NotAnActor, Ref, StartFailed, inbox, kill, spawn, start
from greenroom.supervision.behaviours.refs import process_of
from greenroom.supervision.behaviours.task import start_task_alone, wait_all
from greenroom.supervision.limiters import Busy, RateLimiter, Semaphore, permit


async def hold(gate: Ref[Semaphore], seconds: float, timeout: float | None = None) -> float:
    """Hold a permit; returns the time at which it was given."""
    loop = asyncio.get_running_loop()
    async with permit(gate, timeout):
        given = loop.time()
        await asyncio.sleep(seconds)
        return given


async def test_so_many_at_a_time_and_the_others_in_order() -> None:
    gate = await start(Semaphore, 2)
    begun = asyncio.get_running_loop().time()
    tasks = [start_task_alone(hold, gate, 10) for _ in range(5)]
    times = [await task.wait(None) - begun for task in tasks]
    assert times == [0, 0, 10, 10, 20]
    assert await gate.call(Semaphore.held) == {}


async def test_the_permit_of_the_dead_goes_on() -> None:
    gate = await start(Semaphore, 1)
    first = start_task_alone(hold, gate, 1000)
    second = start_task_alone(hold, gate, 1)
    third = start_task_alone(hold, gate, 1)
    await asyncio.sleep(5)
    kill(second)
    kill(first)
    assert await third.wait() == 5
    assert await gate.call(Semaphore.held) == {}


async def test_a_caller_that_gave_up_waiting_holds_no_permit() -> None:
    gate = await start(Semaphore, 1)
    first = start_task_alone(hold, gate, 20)
    late = start_task_alone(hold, gate, 1, 5)
    (outcome,) = await wait_all([late], 10)
    assert "CallTimeout(5" in str(outcome)
    await first.wait(None)
    assert await start_task_alone(hold, gate, 1).wait() == 20


async def test_a_permit_that_is_given_to_a_cancelled_wait_comes_back() -> None:
    gate = await start(Semaphore, 1)
    ready = asyncio.Event()

    async def both() -> None:
        async with permit(gate):
            wait = asyncio.create_task(hold(gate, 1000))
            await asyncio.sleep(1)
        await gate.call(Semaphore.try_acquire)  # behind the release: the permit has been given to `wait` by now
        wait.cancel()
        await asyncio.wait((wait,))
        ready.set()
        await asyncio.sleep(1000)

    spawn(both)
    await ready.wait()
    assert await gate.call(Semaphore.held) == {}
    assert await start_task_alone(hold, gate, 1).wait(2) == 1


async def test_too_many_that_wait_are_told_at_once() -> None:
    gate = await start(Semaphore, 1, 1)
    tasks = [start_task_alone(hold, gate, 10) for _ in range(3)]
    await asyncio.sleep(1)
    assert "1 wait" in str(tasks[2].outcome)
    async with inbox():
        with pytest.raises(Busy, match="all 1 permits are taken and 1 wait"):
            await gate.call(Semaphore.acquire)
        assert not await gate.call(Semaphore.try_acquire)


async def test_a_caller_that_gave_up_takes_no_room_in_the_queue() -> None:
    gate = await start(Semaphore, 1, 2)
    first = start_task_alone(hold, gate, 10)
    patient = start_task_alone(hold, gate, 1)
    hasty, killed = start_task_alone(hold, gate, 1, 0.5), start_task_alone(hold, gate, 1)
    await asyncio.sleep(1)
    assert "CallTimeout" in str(hasty.outcome)
    assert "2 wait" in str(killed.outcome)
    late = start_task_alone(hold, gate, 1)
    assert await late.wait(None) - await patient.wait(None) == 1
    assert first.outcome is not None


async def test_a_caller_that_gave_up_is_not_kept_behind_a_waiting_one() -> None:
    gate, limiter = await start(Semaphore, 1), await start(RateLimiter, 0.001, 1, None)
    waits = [start_task_alone(hold, gate, 9000) for _ in range(2)]
    await limiter.call(RateLimiter.acquire)
    turn = asyncio.create_task(limiter.within(None).call(RateLimiter.acquire))
    await asyncio.sleep(0)

    async def hasty() -> None:
        for _ in range(1000):
            with pytest.raises(CallTimeout):
                await gate.within(0.1).call(Semaphore.acquire)
            with pytest.raises(CallTimeout):
                await limiter.within(0.1).call(RateLimiter.acquire)

    await start_task_alone(hasty).wait(None)
    for each in (gate, limiter):
        process = process_of(each)
        assert process is not None
        server: Any = process.behaviour
        assert len(server._waiting) <= 257
    kill(waits[0].process)
    assert await waits[1].poll(1) is None
    assert list(await gate.call(Semaphore.held)) == [waits[1].pid]
    await turn


async def test_a_rate_does_not_count_callers_that_gave_up() -> None:
    limiter = await start(RateLimiter, 0.1, 1, 2)
    await limiter.call(RateLimiter.acquire)
    patient = asyncio.create_task(limiter.within(None).call(RateLimiter.acquire))
    await asyncio.sleep(0)
    with pytest.raises(CallTimeout):
        await limiter.within(1).call(RateLimiter.acquire)
    await limiter.within(None).call(RateLimiter.acquire)
    assert patient.done()
    assert asyncio.get_running_loop().time() == pytest.approx(20)


async def test_a_process_may_hold_several_permits() -> None:
    gate = await start(Semaphore, 3)
    async with inbox() as me:
        for _ in range(3):
            assert await gate.call(Semaphore.try_acquire)
        assert await gate.call(Semaphore.held) == {me.pid: 3}
        assert await gate.call(Semaphore.release, me.pid)
        assert not await gate.call(Semaphore.release, me.pid, "never given")
        assert await gate.call(Semaphore.held) == {me.pid: 2}
    assert await start_task_alone(hold, gate, 0).wait() == 0
    with pytest.raises(NotAnActor):
        await gate.call(Semaphore.acquire)


async def test_a_rate_lets_a_burst_through_and_then_one_at_a_time() -> None:
    limiter = await start(RateLimiter, 2.0, 3)
    loop = asyncio.get_running_loop()
    times: list[float] = []
    for _ in range(7):
        await limiter.call(RateLimiter.acquire)
        times.append(loop.time())
    assert times == pytest.approx([0, 0, 0, 0.5, 1, 1.5, 2])
    await asyncio.sleep(100)
    assert [await limiter.call(RateLimiter.try_acquire) for _ in range(4)] == pytest.approx([0, 0, 0, 0.5])


async def test_waiters_of_a_rate_come_in_order_and_may_give_up() -> None:
    limiter = await start(RateLimiter, 1.0, 2)
    await limiter.call(RateLimiter.acquire, 2)
    big = asyncio.create_task(limiter.within(None).call(RateLimiter.acquire, 2))
    await asyncio.sleep(0)
    with pytest.raises(CallTimeout):
        await limiter.within(1).call(RateLimiter.acquire)
    last = asyncio.create_task(limiter.within(None).call(RateLimiter.acquire))
    await asyncio.sleep(0)
    assert await limiter.call(RateLimiter.try_acquire) == pytest.approx(3)
    await big
    assert asyncio.get_running_loop().time() == pytest.approx(2)
    await last
    assert asyncio.get_running_loop().time() == pytest.approx(3)


async def test_too_many_that_wait_for_a_rate_are_told_when_to_come_again() -> None:
    limiter = await start(RateLimiter, 0.5, 1, 0)
    await limiter.call(RateLimiter.acquire)
    with pytest.raises(Busy, match="try again in 2 s"):
        await limiter.call(RateLimiter.acquire)
    with pytest.raises(ValueError, match="tokens must be 1 to 1"):
        await limiter.call(RateLimiter.acquire, 2)


@pytest.mark.parametrize(
    ("server", "args", "field"),
    [
        (Semaphore, (0,), "permits"),
        (Semaphore, (1, -1), "queue"),
        (RateLimiter, (0,), "rate"),
        (RateLimiter, (1, 0), "burst"),
        (RateLimiter, (1, 1, -1), "queue"),
    ],
)
async def test_nonsense_is_refused_with_the_field_named(server: type, args: tuple[int, ...], field: str) -> None:
    with pytest.raises(StartFailed) as refused:
        await start(server, *args)
    assert field in str(refused.value.__cause__)
