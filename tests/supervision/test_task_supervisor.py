"""Tasks under a supervisor: awaited like any task, stopped, counted and bounded like any child."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from greenroom.supervision import (
    KILLED,
    SHUTDOWN,
    Crash,
    Exit,
    GenServer,
    NotAnActor,
    ProcessExited,
    Ref,
    count_children,
    draw,
    exit,
    inbox,
    is_alive,
    kill,
    start,
    start_link,
    terminate_child,
    trap_exit,
    tree,
    wait_down,
    which_children,
)
from greenroom.supervision.behaviours.task import Done, Exited, Task, stream
from greenroom.supervision.supervisors.errors import MaxChildren
from greenroom.supervision.task_supervisor import (
    TaskSupervisor,
    supervise_job,
    supervise_task,
    supervise_task_alone,
)

if TYPE_CHECKING:
    from greenroom.supervision import Node


async def after(seconds: float, value: Any = None) -> Any:
    """Answer in a while."""
    await asyncio.sleep(seconds)
    return value


async def crash(error: BaseException) -> NoReturn:
    """Answer with a crash."""
    raise error


async def stubborn() -> None:
    """Ends only by a kill."""
    trap_exit()
    await asyncio.Event().wait()


async def test_a_supervised_task_answers_and_is_gone() -> None:
    tasks = await start(TaskSupervisor)
    task = await supervise_task_alone(tasks, after, 1, "value")
    assert [info.pid for info in await which_children(tasks)] == [task.pid]
    assert "after" in draw(tree(tasks))
    assert await task.wait() == "value"
    assert await which_children(tasks) == []


async def test_it_is_linked_to_whoever_asked_unless_it_is_alone() -> None:
    tasks = await start(TaskSupervisor)
    with pytest.raises(NotAnActor):
        await supervise_task(tasks, after, 1)
    error = ValueError("on purpose")
    async with inbox() as me:
        linked = await supervise_task(tasks, crash, error)
        assert await me.receive() == Exit(linked.pid, Crash(error))
        alone = await supervise_task_alone(tasks, crash, error)
        with pytest.raises(ProcessExited):
            await alone.wait()
        assert me.pending() == ()
    assert is_alive(tasks), "its tasks are temporary: their crashes never end it"


async def test_whoever_asked_takes_a_linked_task_along() -> None:
    tasks = await start(TaskSupervisor)

    class Asker(GenServer):
        async def ask(self) -> Task[Any]:
            return await supervise_task(tasks, after, 1000)

    asker = await start(Asker)
    task = await asker.call(Asker.ask)
    kill(asker)
    assert await task.poll(None) == Exited(KILLED)
    assert await which_children(tasks) == []


async def test_a_task_ends_with_its_supervisor_in_order(node: Node) -> None:
    async with inbox() as me:
        tasks = await start_link(TaskSupervisor, shutdown=2.0)
        quick = await supervise_task_alone(tasks, after, 1000)
        slow = await supervise_task_alone(tasks, stubborn)
        await asyncio.sleep(0)
        begun = asyncio.get_running_loop().time()
        exit(tasks, SHUTDOWN)
        assert await me.receive() == Exit(tasks.pid, SHUTDOWN)
        assert asyncio.get_running_loop().time() - begun == 2
        assert (quick.outcome, slow.outcome) == (Exited(SHUTDOWN), Exited(KILLED))
    assert not node.processes


async def test_the_one_too_many_is_refused() -> None:
    tasks = await start(TaskSupervisor, max_children=2)
    running = [await supervise_task_alone(tasks, after, 10, number) for number in range(2)]
    with pytest.raises(MaxChildren):
        await supervise_task_alone(tasks, after, 10)
    assert [await task.wait(None) for task in running] == [0, 1]
    assert await (await supervise_task_alone(tasks, after, 1, "room again")).wait() == "room again"


async def test_a_task_can_be_terminated_through_its_supervisor() -> None:
    tasks = await start(TaskSupervisor)
    task = await supervise_task_alone(tasks, after, 1000)
    await terminate_child(tasks, task.pid)
    assert task.outcome == Exited(SHUTDOWN)


async def test_a_job_may_be_restarted_and_nobody_waits_for_it() -> None:
    tasks = await start(TaskSupervisor)
    tries: list[int] = []

    async def job(limit: int) -> None:
        tries.append(len(tries))
        if len(tries) < limit:
            raise RuntimeError("again")

    pid = await supervise_job(tasks, job, 3, restart="transient")
    await asyncio.sleep(1)
    assert tries == [0, 1, 2]
    assert not is_alive(pid)
    assert list(await count_children(tasks)) == [0, 0, 0, 0]
    once = await supervise_job(tasks, job, 99)
    await wait_down(once)
    await asyncio.sleep(1)
    assert len(tries) == 4


async def test_a_stream_may_run_under_a_supervisor() -> None:
    tasks = await start(TaskSupervisor)
    under = partial(supervise_task_alone, tasks)
    results = [o async for o in stream(lambda item: after(1, item), range(5), limit=2, start=under)]
    assert results == [Done(item) for item in range(5)]
    assert await which_children(tasks) == []

    class Owner(GenServer):
        async def consume(self, sup: Ref[TaskSupervisor]) -> None:
            async for _ in stream(
                lambda _: after(1000), range(5), limit=5, timeout=None, start=partial(supervise_task_alone, sup)
            ):
                pass

    owner = await start(Owner)
    owner.cast(Owner.consume, tasks)
    await asyncio.sleep(1)
    assert len(await which_children(tasks)) == 5
    kill(owner)
    await wait_down(owner)
    assert await which_children(tasks) == []
