"""Tasks under a supervisor: awaited like any task, stopped, counted and bounded like any child."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from greenroom.supervision import (
    KILLED,
    NORMAL,
    SHUTDOWN,
    AlreadyStarted,
    BadSpec,
    CallTimeout,
    Crash,
    Down,
    Exit,
    ExitReason,
    GenServer,
    NotAnActor,
    Pid,
    ProcessExited,
    Quit,
    Ref,
    Registry,
    Shutdown,
    StartFailed,
    Supervisor,
    child,
    count_children,
    draw,
    exit,
    inbox,
    is_alive,
    kill,
    monitor,
    receive,
    start,
    start_child,
    start_link,
    terminate_child,
    trap_exit,
    tree,
    via,
    wait_down,
    which_children,
)
from greenroom.supervision.behaviours.task import Completed, Exited, Task
from greenroom.supervision.introspect import get_state, resume, suspend
from greenroom.supervision.kernel import links
from greenroom.supervision.supervisors.child_spec import MaxChildren
from greenroom.supervision.task_supervisor import TaskSupervisor, supervise_job, supervise_task, supervise_task_alone

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


@pytest.mark.otp(
    "task_supervisor_test", "async_nolink/1 spawns a task under the supervisor without linking to the caller"
)
async def test_a_supervised_task_is_linked_to_its_starter_unless_it_is_alone() -> None:
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


async def test_a_dying_starter_takes_its_linked_task_along() -> None:
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


@pytest.mark.otp("task_supervisor_test", "async/1 raises when :max_children is reached")
@pytest.mark.otp("task_supervisor_test", "async_nolink/1 raises when :max_children is reached")
async def test_the_one_too_many_is_refused() -> None:
    tasks = await start(TaskSupervisor, max_children=2)
    running = [await supervise_task_alone(tasks, after, 10, number) for number in range(2)]
    with pytest.raises(MaxChildren):
        await supervise_task_alone(tasks, after, 10)
    async with inbox() as me:
        with pytest.raises(MaxChildren):
            await supervise_task(tasks, after, 10)
        assert me.pending() == ()
    assert [await task.wait(None) for task in running] == [0, 1]
    assert await (await supervise_task_alone(tasks, after, 1, "room again")).wait() == "room again"


@pytest.mark.otp("task_supervisor_test", "terminate_child/2")
async def test_a_task_can_be_terminated_through_its_supervisor() -> None:
    tasks = await start(TaskSupervisor)
    task = await supervise_task_alone(tasks, after, 1000)
    await terminate_child(tasks, task.pid)
    assert task.outcome == Exited(SHUTDOWN)
    assert await which_children(tasks) == []
    await terminate_child(tasks, task.pid)  # it is gone, as was wished


@pytest.mark.otp("task_test", "can be supervised directly")
@pytest.mark.otp("task_supervisor_test", "start_child/1 with custom restart")
async def test_a_job_may_be_restarted_and_is_not_awaited() -> None:
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


@pytest.mark.otp("task_supervisor_test", "can be supervised directly")
async def test_the_supervisor_can_be_a_child_itself() -> None:
    async with inbox():
        await start_link(Supervisor, [child(TaskSupervisor).but(name="tasks")])
        by_name: Ref[TaskSupervisor] = Ref("tasks")
        assert await (await supervise_task_alone(by_name, after, 1, "value")).wait() == "value"


@pytest.mark.otp("task_supervisor_test", "multiple supervisors can be supervised and identified with simple child spec")
async def test_several_under_one_supervisor_have_ids_and_names_of_their_own() -> None:
    registry = await start(Registry)
    async with inbox():
        names = ["simple", via(registry, "key")]
        specs = [child(TaskSupervisor).but(id=number, name=name) for number, name in enumerate(names)]
        sup = await start_link(Supervisor, specs)
        last = await start_child(sup, child(TaskSupervisor))
        for who in (*names, last):
            assert await which_children(who) == []
        with pytest.raises(AlreadyStarted) as refused:
            await start_child(sup, child(TaskSupervisor))
        assert refused.value.pid == last.pid


@pytest.mark.otp("task_supervisor_test", "counts and returns children")
async def test_the_supervisor_counts_its_tasks() -> None:
    tasks = await start(TaskSupervisor)
    assert await which_children(tasks) == []
    assert await count_children(tasks) == (0, 0, 0, 0)
    task = await supervise_task_alone(tasks, after, 1)
    await supervise_job(tasks, after, 1)
    assert await count_children(tasks) == (2, 2, 0, 2)
    await task.wait()
    assert await count_children(tasks) == (0, 0, 0, 0)


@pytest.mark.otp("task_supervisor_test", "async/1 spawns tasks under the supervisor")
@pytest.mark.otp("task_supervisor_test", "async/3")
@pytest.mark.otp("task_supervisor_test", "async_nolink/3")
@pytest.mark.parametrize("begin", [supervise_task, supervise_task_alone])
async def test_a_task_is_a_child_of_its_supervisor_and_whose_else_depends(begin: Any) -> None:
    async with inbox() as me:
        tasks = await start(TaskSupervisor)
        task = await begin(tasks, after, 1, value="value")
        assert [info.pid for info in await which_children(tasks)] == [task.pid]
        linked = set(links.linked(task.process))
        assert (me._process in linked) == (begin is supervise_task)
        assert tasks._find() in linked
        assert task.process.label == "after"
        assert await task.wait() == "value"
        await wait_down(task)
        assert me.pending() == ((Exit(task.pid, NORMAL),) if begin is supervise_task else ())


@pytest.mark.otp("task_supervisor_test", "start_child/1")
@pytest.mark.otp("task_supervisor_test", "start_child/3")
async def test_a_job_is_a_child_of_its_supervisor_alone() -> None:
    tasks = await start(TaskSupervisor)
    async with inbox() as me:

        async def tell(who: Ref[Any], what: str) -> None:
            await asyncio.sleep(1)
            who.send(what)

        pid = await supervise_job(tasks, tell, Ref(me.pid), "done")
        assert [info.pid for info in await which_children(tasks)] == [pid]
        assert me._process.links is None
        assert await me.receive() == "done"


async def test_a_wrong_job_is_its_callers_error_and_not_the_supervisors() -> None:
    tasks = await start(TaskSupervisor, max_children=1)

    def plain() -> None: ...

    def quits() -> NoReturn:
        raise Quit(Shutdown("enough"))

    for restart in ("temporary", "transient"):
        not_async: Any = plain
        with pytest.raises(StartFailed, match="async def"):
            await supervise_job(tasks, not_async, restart=restart)
        with pytest.raises(StartFailed, match="enough"):
            await supervise_job(tasks, quits, restart=restart)
        with pytest.raises(StartFailed, match="argument"):
            await supervise_job(tasks, after, "too", "many", "arguments", restart=restart)
    await supervise_job(tasks, after, 1)
    with pytest.raises(MaxChildren):
        await supervise_job(tasks, after, 1)
    await asyncio.sleep(2)
    await supervise_job(tasks, after, 1)


async def test_jobs_of_any_number_of_names_leave_nothing_behind() -> None:
    tasks = await start(TaskSupervisor)
    for number in range(3000):

        async def job() -> None: ...

        job.__qualname__ = f"job{number}"
        await supervise_job(tasks, job)
    await asyncio.sleep(1)
    assert await count_children(tasks) == (0, 0, 0, 0)
    assert len((await get_state(tasks))["_otp_specs"]) <= 1024


@pytest.mark.otp("task_supervisor_test", "async/1 with custom shutdown")
@pytest.mark.otp("task_supervisor_test", "async_nolink/1 with custom shutdown")
@pytest.mark.otp("task_supervisor_test", "start_child/1 with custom shutdown")
async def test_tasks_may_be_killed_when_their_supervisor_stops() -> None:
    async with inbox():
        tasks = await start_link(TaskSupervisor, shutdown="brutal_kill")
        linked = await supervise_task(tasks, after, 1000)
        alone = await supervise_task_alone(tasks, after, 1000)
        watched = monitor(await supervise_job(tasks, after, 1000))
        exit(tasks, SHUTDOWN)
        assert await linked.poll(None) == await alone.poll(None) == Exited(KILLED)
        assert (await receive(lambda message: isinstance(message, Down))) == Down(watched, watched.pid, KILLED, None)


@pytest.mark.otp("task_supervisor_test", "async_stream does not allow streaming with invalid :shutdown")
@pytest.mark.parametrize("value", ["unknown", -1, None])
async def test_a_shutdown_that_cannot_be_is_refused(value: Any) -> None:
    with pytest.raises(StartFailed) as refused:
        await start(TaskSupervisor, shutdown=value)
    assert isinstance(refused.value.__cause__, BadSpec)
    assert refused.value.__cause__.field == "shutdown"


@pytest.mark.otp("task_supervisor_test", "await/1 demonitors and unalias on timeout")
async def test_a_caller_that_stopped_waiting_gets_nothing_later() -> None:
    tasks = await start(TaskSupervisor)
    async with inbox() as me:
        task = await supervise_task_alone(tasks, after, 1, "late")
        with pytest.raises(CallTimeout):
            await task.wait(0)
        await wait_down(task)
        assert me.pending() == ()
        assert task.outcome == Completed("late")


@pytest.mark.otp("task_supervisor_test", "await/1 exits on task throw")
@pytest.mark.otp("task_supervisor_test", "await/1 exits on task error")
@pytest.mark.otp("task_supervisor_test", "await/1 exits on task exit")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (oops := RuntimeError("oops"), Crash(oops)),
        (out := SystemExit(3), Crash(out)),
        (Quit(Shutdown("unknown")), Shutdown("unknown")),
        (Quit(NORMAL), NORMAL),
    ],
)
async def test_a_task_that_does_not_come_through_says_why(error: BaseException, reason: ExitReason) -> None:
    tasks = await start(TaskSupervisor)
    async with inbox() as me:
        task = await supervise_task(tasks, crash, error)
        with pytest.raises(ProcessExited) as died:
            await task.wait()
        assert died.value.reason == reason
        assert me.pending() == (Exit(task.pid, reason),)


async def test_a_task_whose_caller_stopped_waiting_is_not_started() -> None:
    tasks = await start(TaskSupervisor)

    class Asker(GenServer):
        async def ask(self) -> Task[Any]:
            return await supervise_task_alone(tasks, after, 1000)

    asker = await start(Asker)
    await suspend(tasks)
    asker.cast(Asker.ask)
    await asyncio.sleep(1)
    kill(asker)
    await wait_down(asker)
    await resume(tasks)
    assert await which_children(tasks) == []


class Told:
    """Records the exits of its jobs."""

    def __init__(self) -> None:
        self.reasons: list[ExitReason] = []
        self.come = asyncio.Event()
        self.worker: Pid | None = None

    def started(self, worker: Pid) -> None:
        self.worker = worker

    def on_exit(self, reason: ExitReason) -> None:
        self.reasons.append(reason)
        self.come.set()


async def wait_for(event: asyncio.Event) -> None:
    await event.wait()


async def fail_after(event: asyncio.Event) -> None:
    await event.wait()
    raise LookupError("a fault")


async def test_the_end_of_a_job_is_known_at_once_and_its_waiter_is_told() -> None:
    tasks, told, event = await start(TaskSupervisor), Told(), asyncio.Event()
    pid = await tasks.call(TaskSupervisor.begin_job, wait_for, (event,), (), "temporary", told)
    assert [each.pid for each in await which_children(tasks)] == [pid]
    assert told.worker == pid
    event.set()
    await told.come.wait()
    assert told.reasons == [NORMAL]
    assert tasks.now(TaskSupervisor.count_children) is not None, "no message of the job's end waits there"
    assert await which_children(tasks) == []


async def test_a_job_that_crashes_is_reported_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    tasks, told, event = await start(TaskSupervisor), Told(), asyncio.Event()
    await tasks.call(TaskSupervisor.begin_job, fail_after, (event,), (), "temporary", told)
    event.set()
    await told.come.wait()
    assert await which_children(tasks) == []
    assert isinstance(told.reasons[0], Crash)
    assert "fail_after" in caplog.text


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_jobs_end_with_their_supervisor(how: str) -> None:
    tasks, event = await start(TaskSupervisor), asyncio.Event()
    jobs = [await supervise_job(tasks, wait_for, event) for _ in range(3)]
    if how == "killed":
        kill(tasks)
    else:
        exit(tasks, SHUTDOWN)
    await wait_down(tasks)
    for each in jobs:
        await wait_down(each)
    assert not any(is_alive(each) for each in jobs)


@pytest.mark.parametrize("turns", range(6))
async def test_a_start_that_is_given_up_ends_the_task_and_not_its_caller(turns: int) -> None:
    tasks, event = await start(TaskSupervisor), asyncio.Event()

    class Starter(GenServer):
        async def begin(self) -> str:
            starting = asyncio.ensure_future(supervise_task(tasks, wait_for, event))
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait((starting,))
            return "given up" if starting.cancelled() else "begun"

    starter = await start(Starter)
    came = await starter.call(Starter.begin)
    assert is_alive(starter)
    assert len(await which_children(tasks)) == (came == "begun")


async def test_a_child_that_starts_a_task_under_its_own_supervisor_in_its_init_is_a_cycle() -> None:
    tasks = await start(TaskSupervisor)

    class Child(GenServer):
        async def init(self) -> None:
            await supervise_task_alone(tasks, wait_for, asyncio.Event())

    with pytest.raises(StartFailed, match="CallCycle"):
        await start_child(tasks, child(Child))


async def test_a_task_can_be_begun_from_the_loop_of_a_thread() -> None:
    tasks = await start(TaskSupervisor)

    class Threaded(GenServer):
        async def begin(self) -> None:
            event = asyncio.Event()
            event.set()
            await asyncio.to_thread(lambda: asyncio.run(begun_there(event)))

    async def begun_there(event: asyncio.Event) -> None:
        await supervise_task_alone(tasks, wait_for, event)

    threaded = await start(Threaded)
    await threaded.within(5).call(Threaded.begin)
