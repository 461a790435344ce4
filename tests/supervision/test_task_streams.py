"""Streams of tasks, linked to the process that iterates or not: their outcomes, and cleanup."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from greenroom.supervision import (
    KILLED,
    NORMAL,
    CallTimeout,
    Crash,
    GenServer,
    NotAnActor,
    Quit,
    Ref,
    TaskSupervisor,
    inbox,
    is_alive,
    spawn,
    start,
    start_task,
    start_task_alone,
    supervise_task,
    supervise_task_alone,
    trap_exit,
    wait_down,
    which_children,
)
from greenroom.supervision.behaviours.task import Completed, Exited, stream
from greenroom.supervision.kernel import links
from greenroom.supervision.supervisors.child_spec import MaxChildren

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision import Node

either = pytest.mark.parametrize("link", [True, False])


async def after(seconds: float) -> float:
    """Answer in a while."""
    await asyncio.sleep(seconds)
    return seconds


class Failed(Exception):
    """The error of failing tasks."""


async def fail(item: object) -> NoReturn:
    """Answer with a crash that names the item."""
    await asyncio.sleep(0)
    raise Failed(item)


def items_of(outcomes: list[Any]) -> list[object]:
    """Which items failed, by their crashes."""
    found: list[object] = []
    for outcome in outcomes:
        assert isinstance(outcome, Exited)
        assert isinstance(outcome.reason, Crash)
        assert isinstance(outcome.reason.error, Failed)
        found.append(outcome.reason.error.args[0])
    return found


def under(tasks: Ref[TaskSupervisor]) -> Callable[..., Any]:
    """How each task of a stream is started there."""
    return partial(supervise_task_alone, tasks)


@pytest.mark.otp("task_test", "async_stream with max_concurrency tasks streams an enumerable without leaking tasks")
@pytest.mark.otp("task_supervisor_test", "async_stream streams an enumerable with fun")
@pytest.mark.otp("task_supervisor_test", "async_stream streams an enumerable with mfa")
@pytest.mark.otp("task_supervisor_test", "async_stream streams an enumerable without leaking tasks")
@pytest.mark.otp("task_supervisor_test", "async_stream streams an enumerable with slowest first")
@pytest.mark.otp("task_supervisor_test", "async_stream_nolink streams an enumerable with fun")
@pytest.mark.otp("task_supervisor_test", "async_stream_nolink streams an enumerable with mfa")
@pytest.mark.otp("task_supervisor_test", "async_stream_nolink streams an enumerable without leaking tasks")
@pytest.mark.otp("task_supervisor_test", "async_stream_nolink streams an enumerable with slowest first")
@either
@pytest.mark.parametrize("items", [[1, 2, 3, 4], [4, 3, 2, 1]])
@pytest.mark.parametrize("limit", [2, 4, 8])
async def test_the_outcomes_come_in_order_and_nothing_stays(items: list[int], limit: int, *, link: bool) -> None:
    tasks = await start(TaskSupervisor)
    async with inbox() as me:
        found = [o async for o in stream(after, items, limit=limit, start=under(tasks), link=link)]
        assert found == [Completed(item) for item in items]
        assert await which_children(tasks) == []
        assert (me.pending(), me._process.links) == ((), None)


@pytest.mark.otp("task_test", "async_stream with max_concurrency tasks streams an enumerable with exits")
@pytest.mark.otp("task_supervisor_test", "async_stream streams an enumerable with exits")
@pytest.mark.otp("task_supervisor_test", "async_stream_nolink streams an enumerable with exits")
@either
async def test_crashes_are_outcomes_and_no_messages_for_a_process_that_traps_exits(*, link: bool) -> None:
    tasks = await start(TaskSupervisor)
    async with inbox() as me:
        assert items_of([o async for o in stream(fail, range(4), limit=2, start=under(tasks), link=link)]) == [
            0,
            1,
            2,
            3,
        ]
        assert (me.pending(), me._process.links) == ((), None)


@either
async def test_a_crash_ends_a_linked_process_that_does_not_trap_exits(node: Node, *, link: bool) -> None:
    tasks = await start(TaskSupervisor)

    class Owner(GenServer):
        async def consume(self) -> None:
            async for _ in stream(work, [1, 0, 2], limit=3, timeout=None, start=under(tasks), link=link):
                pass

    async def work(item: int) -> None:
        await (asyncio.sleep(1000) if item else fail(item))

    owner = await start(Owner)
    owner.cast(Owner.consume)
    reason = await wait_down(owner) if link else None
    if reason is not None:
        assert items_of([Exited(reason)]) == [0]
        assert await which_children(tasks) == []
        assert len(node.processes) == 1, "the supervisor of the tasks"
    else:
        await asyncio.sleep(10)
        assert is_alive(owner)
        assert len(await which_children(tasks)) == 2


async def test_a_task_that_crashed_before_it_could_be_linked_counts_too() -> None:
    async def begin(function: Any, item: Any) -> Any:
        task = start_task_alone(function, item)
        await task.poll(None)
        return task

    async def consume() -> None:
        async for _ in stream(fail, [0], limit=1, start=begin, link=True):
            pass

    reason = await wait_down(spawn(consume))
    assert items_of([Exited(reason)]) == [0]

    async def consume_the_orderly() -> None:
        async for _ in stream(leave, [0], limit=1, start=begin, link=True):
            pass

    async def leave(_: Any) -> None:
        raise Quit(NORMAL)

    assert await wait_down(spawn(consume_the_orderly)) == NORMAL


async def test_only_a_process_can_be_linked_to_the_tasks_of_a_stream() -> None:
    with pytest.raises(NotAnActor):
        await anext(stream(after, [1], limit=1, link=True))


@pytest.mark.otp("task_test", "async_stream with max_concurrency tasks with outer halt on success")
@pytest.mark.otp(
    "task_test", "async_stream with max_concurrency tasks shuts down unused tasks without leaking messages"
)
@pytest.mark.otp("task_test", "async_stream with max_concurrency tasks shuts down unused tasks")
@pytest.mark.otp("task_supervisor_test", "async_stream shuts down unused tasks")
@pytest.mark.otp("task_supervisor_test", "async_stream shuts down unused tasks without leaking messages")
@pytest.mark.otp("task_supervisor_test", "async_stream_nolink shuts down unused tasks")
@pytest.mark.otp("task_supervisor_test", "async_stream_nolink shuts down unused tasks without leaking messages")
@either
@pytest.mark.parametrize("traps", [True, False])
async def test_leaving_a_stream_leaves_no_task_behind(*, link: bool, traps: bool) -> None:
    tasks = await start(TaskSupervisor)
    async with inbox(trap_exit=traps) as me:
        async with aclosing(stream(after, [0, 1000, 1000], limit=4, start=under(tasks), link=link)) as outcomes:
            assert await anext(outcomes) == Completed(0)
            assert len(await which_children(tasks)) == 2
            assert len(list(links.linked(me._process))) == (2 if link and not traps else 0)
        assert await which_children(tasks) == []
        assert (me.pending(), me._process.links) == ((), None)
        assert not me._process.life


@pytest.mark.parametrize("begin", [start_task, None])
async def test_a_stream_of_tasks_that_are_started_linked_can_be_left_too(begin: Any) -> None:
    tasks = await start(TaskSupervisor)
    begin = begin or partial(supervise_task, tasks)
    async with inbox(trap_exit=False) as me:
        async with aclosing(stream(after, [0, 1000, 1000], limit=4, start=begin)) as outcomes:
            assert await anext(outcomes) == Completed(0)
        killed = [o async for o in stream(after, [0, 1000], limit=2, on_timeout="kill", start=begin)]
        assert killed == [Completed(0), Exited(KILLED)]
        assert not me._process.life


@pytest.mark.otp(
    "task_supervisor_test", "async_stream raises an error if :max_children is reached with clean stream shutdown"
)
@pytest.mark.otp(
    "task_supervisor_test", "async_stream_nolink raises an error if :max_children is reached with clean stream shutdown"
)
@either
async def test_a_stream_with_more_tasks_than_its_supervisor_takes_ends_cleanly(*, link: bool) -> None:
    tasks = await start(TaskSupervisor, max_children=1)
    async with inbox() as me:
        with pytest.raises(MaxChildren):
            async for _ in stream(after, [1000] * 3, limit=2, timeout=None, start=under(tasks), link=link):
                pass
        assert await which_children(tasks) == []
        assert (me.pending(), me._process.links) == ((), None)


@pytest.mark.otp("task_test", "async_stream/2 consuming from another process")
@pytest.mark.otp("task_supervisor_test", "async_stream consuming from another process")
async def test_a_stream_belongs_to_the_process_that_iterates() -> None:
    tasks = await start(TaskSupervisor)
    async with inbox() as me:
        here: Ref[Any] = Ref(me.pid)

        async def tell(item: int) -> None:
            here.send(item)

        outcomes = stream(tell, [1, 2, 3], limit=1, start=under(tasks), link=True)

        async def consume() -> None:
            trap_exit()
            async for outcome in outcomes:
                assert outcome == Completed(None)

        other = start_task_alone(consume)
        assert [await me.receive() for _ in range(3)] == [1, 2, 3]
        await other.wait()
        assert me._process.links is None


@pytest.mark.otp("task_test", "async_stream with max_concurrency tasks with timeout and :zip_input_on_exit set to true")
@pytest.mark.otp("task_supervisor_test", "async_stream with timeout and :zip_input_on_exit set to true")
async def test_an_outcome_may_come_with_its_item() -> None:
    tasks = await start(TaskSupervisor)
    late = stream(after, [1, 100], limit=2, on_timeout="kill", start=under(tasks), zipped=True)
    assert [pair async for pair in late] == [(1, Completed(1)), (100, Exited(KILLED))]
    unordered = stream(after, [3, 1, 2], limit=3, ordered=False, start=under(tasks), zipped=True)
    assert [item async for item, _ in unordered] == [1, 2, 3]


@pytest.mark.otp(
    "task_test", "async_stream with max_concurrency tasks with outer halt on failure and :zip_input_on_exit"
)
@pytest.mark.otp("task_test", "async_stream with max_concurrency tasks with outer halt on failure")
@pytest.mark.otp("task_supervisor_test", "async_stream with outer halt on failure and :zip_input_on_exit")
async def test_a_stream_of_failures_may_be_left_in_the_middle() -> None:
    tasks = await start(TaskSupervisor)
    async with inbox() as me:
        failures = stream(fail, range(8), limit=2, start=under(tasks), link=True, zipped=True)
        async with aclosing(failures):
            for item in range(4):
                given, outcome = await anext(failures)
                assert (given, items_of([outcome])) == (item, [item])
        assert await which_children(tasks) == []
        assert me.pending() == ()


@pytest.mark.otp("task_test", "async_stream/2 does not allow streaming with invalid :on_timeout")
@pytest.mark.otp("task_test", "async_stream/2 does not allow streaming with max_concurrency = 0")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"limit": 0}, "limit must be at least 1 task, not 0"),
        ({"limit": 1, "timeout": -1}, "timeout must be 0 seconds or more, or None for no limit, not -1"),
        ({"limit": 1, "timeout": float("nan")}, "timeout must be 0 seconds or more"),
        ({"limit": 1, "on_timeout": "exit"}, "on_timeout must be 'raise' or 'kill', not 'exit'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_where_it_is_written(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stream(after, [1], **settings)


@pytest.mark.otp("task_test", "async_stream/2 does not allow streaming with invalid :timeout")
async def test_no_time_at_all_is_too_little() -> None:
    async with inbox() as me:
        with pytest.raises(CallTimeout):
            await anext(stream(after, [1000], limit=1, timeout=0))
        assert me.pending() == ()
