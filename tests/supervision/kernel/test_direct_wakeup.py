"""Direct wakeups: a waiting task resumes at once and can be cancelled, and the pump runs work of loop callbacks."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import GenServer, start
from greenroom.supervision.kernel.clock import DirectWakeup, Wakeup

from .sample_servers import turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision import Node

PLACE: ContextVar[str] = ContextVar("place", default="outside")


async def from_the_loop(step: Callable[[], Any]) -> Any:
    """The result of `step`, called by the loop outside of any task."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_soon(lambda: done.set_result(step()))
    return await done


async def test_a_waiting_task_runs_before_wake_returns_in_its_own_task_and_context() -> None:
    wakeup = DirectWakeup(asyncio.get_running_loop())
    seen: list[tuple[str, Any]] = []

    async def wait() -> None:
        PLACE.set("inside")
        for _ in range(3):
            await wakeup
            seen.append((PLACE.get(), asyncio.current_task()))

    task = asyncio.create_task(wait())
    await turns()
    for number in range(1, 4):
        assert wakeup.has_waiter
        assert await from_the_loop(lambda: (wakeup.wake(), len(seen))) == (True, number)
    assert seen == [("inside", task)] * 3
    assert not await from_the_loop(wakeup.wake)
    await task


async def test_a_wakeup_without_a_waiter_wakes_no_later_task() -> None:
    wakeup = DirectWakeup(asyncio.get_running_loop())
    assert not wakeup.wake()
    assert not wakeup.cancel()
    waiting = asyncio.ensure_future(_through(wakeup))
    await turns()
    assert not waiting.done()
    waiting.cancel("enough")
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def _through(wakeup: DirectWakeup) -> str:
    await wakeup
    return "through"


async def test_a_cancelled_wait_cannot_be_opened_and_the_next_one_can() -> None:
    wakeup = DirectWakeup(asyncio.get_running_loop())
    caught: list[tuple[Any, ...]] = []

    async def wait() -> str:
        try:
            await wakeup
        except asyncio.CancelledError as error:
            caught.append(error.args)
        return await _through(wakeup)

    task = asyncio.create_task(wait())
    await turns()
    assert await from_the_loop(lambda: (task.cancel("enough"), wakeup.wake(), caught == [])) == (True, False, True)
    await turns()
    assert caught == [("enough",)]
    assert await from_the_loop(wakeup.wake)
    assert await task == "through"


async def test_a_task_cancelled_before_it_waits_does_not_wait() -> None:
    wakeup = DirectWakeup(asyncio.get_running_loop())

    async def wait() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await wakeup

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(wait())
    assert not wakeup.has_waiter


async def test_a_timeout_around_a_gate_is_one() -> None:
    wakeup = DirectWakeup(asyncio.get_running_loop())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await wakeup
    task = asyncio.create_task(_through(wakeup))
    await turns()
    assert await from_the_loop(wakeup.wake)
    assert await task == "through"


class Relay(GenServer):
    """Passes messages on from a coroutine."""

    def __init__(self, *others: Any) -> None:
        self.others = others

    async def take(self, wakeup: DirectWakeup, node: Node) -> None:
        for each in self.others:
            each.cast(Relay.take, wakeup, node)
        if not self.others:
            node.wake_soon(wakeup)


async def test_work_that_a_loop_callback_starts_is_done_before_the_callback_returns(node: Node) -> None:
    last = await start(Relay)
    first = await start(Relay, await start(Relay, last))
    wakeup = DirectWakeup(node.loop)
    await last.call(Relay.take, wakeup, node)  # there is a worker now
    await turns()
    task = asyncio.create_task(_through(wakeup))
    await turns()

    def step() -> bool:
        node.serve(lambda: first.cast(Relay.take, wakeup, node))
        return task.done()

    assert await from_the_loop(step)
    assert task.result() == "through"


async def test_an_error_of_a_loop_callback_reaches_its_caller(node: Node) -> None:
    ref = await start(Relay)
    wakeup = DirectWakeup(node.loop)
    task = asyncio.create_task(_through(wakeup))

    def broken() -> None:
        ref.cast(Relay.take, wakeup, node)
        raise LookupError

    def step() -> None:
        with pytest.raises(LookupError):
            node.serve(broken)

    await turns()
    await from_the_loop(step)
    assert await task == "through"


class Restless(GenServer):
    """Always has another message to handle."""

    def go_on(self) -> None:
        self.ref().cast(Restless.go_on)


async def test_processes_that_are_never_done_do_not_starve_other_tasks(node: Node) -> None:
    for _ in range(100):
        (await start(Restless)).cast(Restless.go_on)
    wakeups = [DirectWakeup(node.loop) for _ in range(100)]
    tasks = [asyncio.create_task(_through(wakeup)) for wakeup in wakeups]
    await turns(5)
    for wakeup in wakeups:
        node.wake_soon(wakeup)
    await turns(2)
    assert all(task.done() for task in tasks)


async def test_tasks_that_wake_each_other_for_ever_leave_the_loop_its_turn(node: Node) -> None:
    one, other = DirectWakeup(node.loop), DirectWakeup(node.loop)

    async def wake(mine: DirectWakeup, next_one: DirectWakeup) -> None:
        while True:
            await mine
            node.wake_soon(next_one)

    tasks = [asyncio.create_task(wake(one, other)), asyncio.create_task(wake(other, one))]
    await turns()
    node.wake_soon(one)
    await turns()
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_a_woken_task_that_raises_disturbs_no_other(node: Node) -> None:
    wakeups = [DirectWakeup(node.loop) for _ in range(3)]

    async def wait(wakeup: DirectWakeup, number: int) -> int:
        await wakeup
        if number == 0:
            raise ValueError
        return number

    tasks = [asyncio.create_task(wait(wakeup, number)) for number, wakeup in enumerate(wakeups)]
    await turns()
    for wakeup in wakeups:
        node.wake_soon(wakeup)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], ValueError)
    assert results[1:] == [1, 2]


async def test_a_wakeup_lets_all_go_on_that_wait_and_is_not_remembered() -> None:
    wakeup = Wakeup()
    wakeup.wake()
    waiting = [asyncio.ensure_future(wakeup.wait()) for _ in range(2)]
    await turns()
    assert not any(each.done() for each in waiting)
    wakeup.wake()
    await asyncio.gather(*waiting)


async def test_a_wakeup_is_waited_for_no_longer_than_was_said() -> None:
    wakeup, loop = Wakeup(), asyncio.get_running_loop()
    began = loop.time()
    await wakeup.wait(2.5)
    assert loop.time() - began == 2.5
    waiting = asyncio.ensure_future(wakeup.wait(2.5))
    await turns()
    wakeup.wake()
    await waiting
    assert loop.time() - began == 2.5


@pytest.mark.parametrize("seconds", [None, 1.0])
async def test_a_wakeup_forgets_whose_wait_was_cancelled(seconds: float | None) -> None:
    wakeup = Wakeup()
    gone, waiting = asyncio.ensure_future(wakeup.wait(seconds)), asyncio.ensure_future(wakeup.wait(seconds))
    await turns()
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    wakeup.wake()
    await waiting
