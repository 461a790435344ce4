"""The callers of a task, and the client in the report of its crash."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from greenroom.supervision import (
    Completed,
    CrashReport,
    GenServer,
    Pid,
    Ref,
    Task,
    TaskSupervisor,
    callers,
    inbox,
    receive,
    self_pid,
    start,
    start_task,
    start_task_alone,
    start_thread_task,
    stream,
    supervise_job,
    supervise_task,
    supervise_task_alone,
)

if TYPE_CHECKING:
    from greenroom.supervision import Node, Report


async def look() -> tuple[Pid, ...]:
    """The callers of this task."""
    return callers()


async def ask(begin: Any) -> tuple[Pid, tuple[Pid, ...], tuple[Pid, ...]]:
    """Start a task in a task; returns its pid, its callers, and those of the inner task."""
    inner = await begun(begin(look))
    return self_pid(), callers(), await inner.wait()


async def begun(task: Any) -> Task[Any]:
    """A task started here, or by a supervisor."""
    started: Task[Any] = await task if inspect.isawaitable(task) else task
    return started


@pytest.mark.otp("task_test", "async with $callers")
@pytest.mark.otp("task_supervisor_test", "async/1 with $callers")
@pytest.mark.parametrize("how", ["linked", "alone", "supervised", "supervised alone"])
async def test_a_task_knows_who_asked_for_it_and_who_asked_for_that_one(how: str) -> None:
    tasks = await start(TaskSupervisor)
    begin: Any = {
        "linked": start_task,
        "alone": start_task_alone,
        "supervised": partial(supervise_task, tasks),
        "supervised alone": partial(supervise_task_alone, tasks),
    }[how]
    async with inbox() as me:
        task = await begun(begin(ask, begin))
        assert task.callers == (me.pid,)
        parent, seen, inner = await task.wait()
        assert (parent, seen, inner) == (task.pid, (me.pid,), (task.pid, me.pid))
        assert callers() == ()
    if how.startswith("supervised"):
        outside = await supervise_task_alone(tasks, look)
        assert await outside.wait() == ()


@pytest.mark.otp("task_test", "start_link with $callers")
@pytest.mark.otp("task_supervisor_test", "start_child/1 with $callers")
async def test_a_job_knows_it_too_also_when_it_was_restarted() -> None:
    tasks = await start(TaskSupervisor)
    async with inbox() as me:
        here: Ref[Any] = Ref(me.pid)

        async def outer() -> None:
            await supervise_job(tasks, inner, self_pid(), restart="transient")
            await asyncio.sleep(1)

        async def inner(parent: Pid) -> None:
            here.send((parent, callers()))
            if len(told) == 0:
                told.append(parent)
                raise ValueError("again")

        told: list[Pid] = []
        await supervise_job(tasks, outer)
        for _ in range(2):
            parent, seen = await me.receive()
            assert seen == (parent, me.pid)


@pytest.mark.otp("task_test", "async_stream/2 with $callers")
@pytest.mark.otp("task_supervisor_test", "async_stream with $callers")
async def test_the_tasks_of_a_stream_know_it_too() -> None:
    tasks = await start(TaskSupervisor)
    under: Any = partial(supervise_task_alone, tasks)

    async def outer(_: int) -> Any:
        inner = stream(lambda _: look(), [1], limit=1, start=under, link=True)
        return self_pid(), [outcome async for outcome in inner]

    async with inbox() as me:
        async for outcome in stream(outer, [1], limit=1, start=under, link=True):
            assert isinstance(outcome, Completed)
            parent, inner = outcome.value
            assert inner == [Completed((parent, me.pid))]


async def test_a_task_that_starts_its_successor_for_ever_does_not_carry_all_before_it() -> None:
    async with inbox() as me:
        here: Ref[Any] = Ref(me.pid)

        async def relay(left: int) -> None:
            if left:
                start_task_alone(relay, left - 1)
            else:
                here.send(len(callers()))

        start_task_alone(relay, 100)
        assert await me.receive() == 32


@pytest.mark.otp("task_test", "default :logger reporter logs a terminated task")
async def test_the_report_of_a_crash_says_who_asked(node: Node) -> None:
    reports: list[Report] = []
    node.reports.subscribe(reports.append)

    async def crash() -> NoReturn:
        await asyncio.sleep(0)
        raise ValueError("on purpose")

    class Office(GenServer):
        def begin(self) -> Task[Any]:
            return start_task_alone(crash)

    office = await start(Office)
    task = await office.call(Office.begin)
    await task.poll(None)
    outside = start_task_alone(crash)
    await outside.poll(None)
    first, second = (report for report in reports if isinstance(report, CrashReport))
    assert (first.pid, first.client) == (task.pid, f"Office {office.pid}")
    assert (second.pid, second.client) == (outside.pid, None)

    async def ask_and_go() -> Task[Any]:
        return start_task_alone(late)

    async def late() -> None:
        await receive()
        raise ValueError("on purpose")

    asker = start_task_alone(ask_and_go)
    orphan = await asker.wait()
    Ref[Any](orphan.pid).send("now")
    await orphan.poll(None)
    last = reports[-1]
    assert isinstance(last, CrashReport)
    assert last.client == str(asker.pid), "who is gone has an address still"


async def test_the_thread_of_a_task_knows_it_too() -> None:
    async with inbox() as me:
        assert await start_thread_task(callers).wait(None) == (me.pid,)
