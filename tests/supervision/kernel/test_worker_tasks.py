"""Worker tasks: as many as there are waiting handlers, plus one; a cancelled worker is not reused."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from greenroom.supervision import GenServer, Node, ProcessExited, kill, start, wait_down
from greenroom.supervision.behaviours.refs import request

from .sample_servers import Log, forever, shut_down, turns


class Works(GenServer):
    """Records the task it runs in."""

    async def task(self) -> asyncio.Task[Any] | None:
        return asyncio.current_task()

    async def wait(self, gate: asyncio.Event) -> asyncio.Task[Any] | None:
        await gate.wait()
        return asyncio.current_task()

    async def cancel_later(self, *, turns_later: int) -> asyncio.Task[Any] | None:
        task = asyncio.current_task()
        assert task is not None

        def later(left: int) -> None:
            if left:
                asyncio.get_running_loop().call_soon(later, left - 1)
            else:
                task.cancel()

        later(turns_later)
        return task

    async def cancel_itself(self) -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return 7

    async def cancel_and_go_on(self) -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            return 8
        return 9


async def test_handlers_that_do_not_wait_share_one_worker(node: Node) -> None:
    refs = [await start(Log) for _ in range(1000)]
    for ref in refs:
        ref.cast(Log.do_async, nothing)
    await turns(100)
    assert len(node.workers) == 1


async def nothing() -> None: ...


async def test_there_is_one_more_than_handlers_that_wait(node: Node) -> None:
    gate = asyncio.Event()
    refs = [await start(Works) for _ in range(50)]
    for ref in refs[:20]:
        ref.cast(Works.wait, gate)
    await turns(50)
    assert node.workers.busy == 20
    for ref in refs[20:]:
        ref.cast(Works.task)
    await turns(50)
    assert len(node.workers) == 21
    gate.set()
    await turns(50)
    assert node.workers.busy == 0


async def test_a_whole_handler_runs_in_one_task_and_workers_are_used_again(node: Node) -> None:
    ref = await start(Works)
    first = await ref.call(Works.task)
    assert await ref.call(Works.task) is first
    assert first in asyncio.all_tasks()


@pytest.mark.parametrize("end", [kill, shut_down], ids=["kill", "exit"])
async def test_a_worker_that_was_cancelled_is_not_used_again(end: Any, node: Node) -> None:
    ref, other = await start(Works), await start(Works)
    gate = asyncio.Event()
    used = await ref.call(Works.task)
    ref.cast(Works.wait, gate)
    await turns()
    end(ref)
    await wait_down(ref)
    assert used is not None
    assert used.done()
    assert await other.call(Works.task) is not used


async def test_a_handler_that_cancels_its_own_task_spoils_it_for_itself_alone(node: Node) -> None:
    ref, other = await start(Works), await start(Works)
    assert await ref.call(Works.cancel_itself) == 7
    assert await ref.call(Works.cancel_and_go_on) == 8
    tasks = [await each.call(Works.task) for each in (ref, other)]
    assert all(task is not None and not task.cancelling() for task in tasks)


@pytest.mark.parametrize("turns_later", range(8))
async def test_a_cancellation_after_the_handler_has_ended_stops_no_other_handler(turns_later: int, node: Node) -> None:
    refs = [await start(Works) for _ in range(10)]
    spoiled = await refs[0].call(Works.cancel_later, turns_later=turns_later)
    calls: list[asyncio.Future[Any]] = []
    for ref in refs[1:]:
        calls.append(asyncio.ensure_future(ref.within(1.0).call(Works.task)))
        await asyncio.sleep(0)
    results = await asyncio.gather(*calls, return_exceptions=True)
    # The process that runs in that task when the cancellation comes has crashed of it; no other has to wait.
    assert sum(isinstance(result, ProcessExited) for result in results) <= 1
    assert all(isinstance(result, asyncio.Task | ProcessExited) for result in results)
    assert spoiled is not None
    assert await (await start(Works)).within(1.0).call(Works.task) is not None


async def test_workers_that_are_all_cancelled_from_outside_are_replaced(node: Node) -> None:
    ref = await start(Works)
    await ref.call(Works.task)
    for _ in range(3):
        workers = [task for task in asyncio.all_tasks() if task.get_name() == "greenroom-worker"]
        calls = [request(await start(Works), Works.task) for _ in range(5)]
        for task in workers:
            task.cancel()
        for call in calls:
            await call.wait(1.0)
        calls = [request(await start(Works), Works.task) for _ in range(5)]
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if not task.cancelling():
                task.cancel()
        outcomes = await asyncio.gather(*(call.wait(1.0) for call in calls), return_exceptions=True)
        assert all(isinstance(outcome, asyncio.Task | ProcessExited) for outcome in outcomes)
        assert await (await start(Works)).within(1.0).call(Works.task) is not None


async def test_the_pool_keeps_nothing_of_what_it_has_run() -> None:
    class State(Log):
        pass

    ref = await start(State)
    server = weakref.ref(await ref.call(lambda state: state))
    await ref.call(Log.do_async, nothing)
    kill(ref)
    await turns()
    gc.collect()
    assert server() is None


async def test_a_hundred_handlers_that_are_killed_before_they_begin_never_begin(node: Node) -> None:
    begun: list[int] = []

    async def begin() -> None:
        begun.append(1)
        await forever()

    refs = [await start(Log) for _ in range(100)]
    for ref in refs:
        ref.cast(Log.do_async, begin)
    await asyncio.sleep(0)
    for ref in refs:
        kill(ref)
    await turns(50)
    assert len(begun) <= 1
    assert node.processes == {}
    assert node.leaks == 0


async def test_a_flood_leaves_no_more_idle_workers_than_are_worth_keeping(node: Node) -> None:
    gate = asyncio.Event()
    for _ in range(1500):
        (await start(Works)).cast(Works.wait, gate)
    await turns(3100)
    assert node.workers.busy == 1500
    gate.set()
    await turns(100)
    assert node.workers.busy == 0
    assert len(node.workers) <= 1100
    assert await (await start(Works)).call(Works.task) is not None


EAGER: Any = getattr(asyncio, "eager_task_factory", None)  # Python 3.12 has one


async def test_an_eager_factory_of_the_loop_makes_no_workers(node: Node) -> None:
    # Or a handler would begin in the middle of the task that is running.
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Future[Any]:
        made.append(coro.__qualname__)
        return asyncio.Task(coro, loop=loop, **options) if EAGER is None else EAGER(loop, coro, **options)

    loop = asyncio.get_running_loop()
    await node.close()
    before = loop.get_task_factory()
    loop.set_task_factory(factory)
    try:
        async with Node(handle_sigint=False):
            ref = await start(Works)
            gate = asyncio.Event()
            gate.set()
            for _ in range(3):
                assert await ref.within(1.0).call(Works.task) is not None
                assert await ref.within(1.0).call(Works.wait, gate) is not None
    finally:
        loop.set_task_factory(before)
    assert "Workers._work" not in made
