"""Tasks: exactly one outcome each, linked or alone, in the loop or in a thread, and none left behind."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from greenroom.supervision import (
    KILLED,
    ActorError,
    CallTimeout,
    Crash,
    Exit,
    GenServer,
    NotAnActor,
    ProcessExited,
    Shutdown,
    exit,
    inbox,
    is_alive,
    kill,
    start,
    trap_exit,
    wait_down,
)
from greenroom.supervision.behaviours.task import (
    Completed,
    Exited,
    Task,
    start_task,
    start_task_alone,
    start_thread_task,
    stream,
    wait_all,
)
from greenroom.supervision.behaviours.threads import Threads

if TYPE_CHECKING:
    from greenroom.supervision import Node


async def after(seconds: float, value: Any = None) -> Any:
    """Answer in a while."""
    await asyncio.sleep(seconds)
    return value


async def crash(error: BaseException) -> NoReturn:
    """Answer with a crash."""
    raise error


async def stubborn() -> NoReturn:
    """Ignore every cancellation but a kill."""
    trap_exit()
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.otp("task_test", "shutdown/2 raises when invoked from a non-owner process")
@pytest.mark.otp("task_test", "yield_many/2 raises when invoked from a non-owner process")
@pytest.mark.otp("task_test", "yield/2 raises when invoked from a non-owner process")
@pytest.mark.otp("task_test", "yield/2 returns {:ok, result} when reply and :DOWN in message queue")
@pytest.mark.otp("task_test", "await_many/2 raises when invoked from a non-owner process")
@pytest.mark.otp("task_test", "await/2 raises when invoked from a non-owner process")
@pytest.mark.otp("task_test", "start/3")
@pytest.mark.otp("task_test", "start/1")
@pytest.mark.otp("task_test", "async/3")
@pytest.mark.otp("task_test", "async/1")
async def test_a_task_answers_with_its_value_as_often_as_it_is_asked() -> None:
    task = start_task_alone(after, 1, "value")
    assert task.outcome is None
    assert await task.wait() == "value"
    assert await task.wait() == "value"
    assert await task.poll() == Completed("value")
    await wait_down(task)
    assert not is_alive(task)


@pytest.mark.otp("task_test", "await/2 exits on task exit")
@pytest.mark.otp("task_test", "await/2 exits on task error")
@pytest.mark.otp("task_test", "await/2 exits on task throw")
async def test_a_crash_of_one_alone_is_an_answer() -> None:
    error = SystemExit(3)
    task = start_task_alone(crash, error)
    with pytest.raises(ProcessExited) as died:
        await task.wait()
    assert died.value.reason == Crash(error)
    assert task.outcome == Exited(Crash(error))


@pytest.mark.otp("task_test", "start_link/3")
@pytest.mark.otp("task_test", "start_link/1")
async def test_a_linked_task_takes_its_starter_along_and_the_other_way_round() -> None:
    with pytest.raises(NotAnActor):
        start_task(after, 1)
    error = ValueError("on purpose")
    async with inbox() as me:
        task = start_task(crash, error)
        assert await me.receive() == Exit(task.pid, Crash(error))

    class Starter(GenServer):
        def begin(self) -> Task[Any]:
            return start_task(after, 1000)

    starter = await start(Starter)
    task = await starter.call(Starter.begin)
    kill(starter)
    assert await task.poll(None) == Exited(KILLED)


@pytest.mark.otp("task_test", "yield/2 returns nil on timeout")
@pytest.mark.otp("task_test", "await/2 exits on timeout")
@pytest.mark.otp("task_test", "await/2 demonitors and unalias on timeout")
async def test_a_deadline_leaves_the_task_running() -> None:
    task = start_task_alone(after, 10, "late")
    with pytest.raises(CallTimeout, match="did not come to an end within 5 s"):
        await task.wait()
    assert await task.poll(1) is None
    assert await task.wait() == "late"


@pytest.mark.otp("task_test", "shutdown/2 with :brutal_kill returns nil on killed :DOWN in message queue")
@pytest.mark.otp("task_test", "shutdown/2 returns exit on abnormal :DOWN in message queue")
@pytest.mark.otp("task_test", "shutdown/2 returns nil on shutting down task")
@pytest.mark.otp("task_test", "shutdown/2 returns {:ok, result} when reply and normal :DOWN in message queue")
async def test_a_shutdown_gives_the_outcome_that_came_first_or_none() -> None:
    assert await start_task_alone(after, 1000).shutdown() is None
    assert await start_task_alone(after, 1000).shutdown(brutally=True) is None
    done = start_task_alone(after, 1, "in time")
    await done.poll(2)
    assert await done.shutdown() == Completed("in time")
    died = start_task_alone(after, 1000)
    exit(died, Shutdown("another reason"))
    assert await died.shutdown() == Exited(Shutdown("another reason"))


@pytest.mark.otp("task_test", "shutdown/2 returns nil on killing task")
async def test_a_task_that_refuses_to_end_is_killed_at_the_deadline() -> None:
    task = start_task_alone(stubborn)
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    assert await task.shutdown(2) is None
    assert loop.time() - begun == 2
    assert task.outcome == Exited(KILLED)


async def test_a_shut_down_task_does_not_end_the_caller() -> None:
    async with inbox() as me:
        task = start_task(after, 1000)
        assert await task.shutdown() is None
        other = start_task(after, 1000)
        other.ignore()
        kill(other)
        await wait_down(other)
        assert me.pending() == ()


async def test_a_task_cannot_wait_for_itself() -> None:
    box: list[Task[Any]] = []

    async def me() -> None:
        await box[0].wait()

    box.append(start_task_alone(me))
    outcome = await box[0].poll(None)
    assert isinstance(outcome, Exited)
    assert isinstance(outcome.reason, Crash)
    assert isinstance(outcome.reason.error, ActorError)


@pytest.mark.otp("task_test", "await_many/2 returns replies in input order ignoring response order")
@pytest.mark.otp("task_test", "await_many/2 returns list of replies")
async def test_several_are_awaited_together() -> None:
    tasks = [start_task_alone(after, seconds, seconds) for seconds in (1, 20, 3)]
    assert await wait_all(tasks, 5) == [Completed(1), None, Completed(3)]
    assert await wait_all(tasks, None) == [Completed(1), Completed(20), Completed(3)]


@pytest.mark.otp("task_test", "async_stream with max_concurrency tasks streams an enumerable with slowest first")
@pytest.mark.otp("task_test", "async_stream with max_concurrency tasks streams an enumerable with mfa")
@pytest.mark.otp("task_test", "async_stream with max_concurrency tasks streams an enumerable with fun")
async def test_a_stream_keeps_its_bound_and_its_order() -> None:
    running, most = 0, 0

    async def work(item: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(10 - item)
        running -= 1
        return item

    assert [o async for o in stream(work, range(9), limit=3, timeout=None)] == [Completed(item) for item in range(9)]
    assert most == 3
    unordered = [o async for o in stream(work, range(3), limit=3, ordered=False, timeout=None)]
    assert unordered == [Completed(2), Completed(1), Completed(0)]
    with pytest.raises(ValueError, match="at least 1"):
        await anext(stream(work, range(3), limit=0))


async def test_a_stream_takes_no_item_before_there_is_room() -> None:
    taken: list[int] = []

    def source() -> Any:
        for item in range(100):
            taken.append(item)
            yield item

    async with aclosing(stream(lambda item: after(1, item), source(), limit=2)) as results:
        assert await anext(results) == Completed(0)
    assert taken == [0, 1]


async def test_a_crash_in_a_stream_is_one_outcome_among_the_others() -> None:
    error = KeyboardInterrupt()

    async def work(item: int) -> int:
        if item == 1:
            raise error
        return item

    assert [o async for o in stream(work, range(3), limit=1)] == [Completed(0), Exited(Crash(error)), Completed(2)]


@pytest.mark.otp("task_test", "async_stream with max_concurrency tasks with :on_timeout set to :kill_task")
@pytest.mark.otp("task_test", "async_stream/2 timeout")
@pytest.mark.parametrize("ordered", [True, False])
async def test_a_late_item_ends_the_stream_or_is_killed(node: Node, *, ordered: bool) -> None:
    def seconds(item: int) -> Any:
        return after(100 if item == 1 else 1, item)

    assert [o async for o in stream(seconds, range(3), limit=3, ordered=ordered, on_timeout="kill")] in (
        [Completed(0), Exited(KILLED), Completed(2)],
        [Completed(0), Completed(2), Exited(KILLED)],
    )
    with pytest.raises(CallTimeout):
        async for _ in stream(seconds, range(3), limit=3, ordered=ordered):
            pass
    assert not node.processes, "the stream left no process behind"


async def test_a_stream_dies_with_its_owner(node: Node) -> None:
    class Owner(GenServer):
        async def consume(self) -> None:
            async for _ in stream(lambda item: after(10_000 * item), range(100), limit=5, timeout=None):
                await asyncio.sleep(1000)

    owner = await start(Owner)
    owner.cast(Owner.consume)
    await asyncio.sleep(10)
    assert len(node.processes) == 5, "the owner, and four at work"
    kill(owner)
    await wait_down(owner)
    assert not node.processes


async def test_a_thread_holds_its_slot_until_it_really_ends() -> None:
    threads = Threads(1)
    release, begun = threading.Event(), threading.Event()

    def block() -> str:
        begun.set()
        release.wait()
        return "released"

    stuck = start_thread_task(block, threads)
    await asyncio.to_thread(begun.wait)
    kill(stuck)
    assert await stuck.poll(None) == Exited(KILLED), "waiting callers are answered at once"
    assert threads.running == 1
    second = start_thread_task(lambda: "second", threads)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (threads.waiting, second.outcome) == (1, None)
    release.set()
    assert await second.wait(None) == "second"
    assert (threads.running, threads.waiting) == (0, 0)


async def test_a_call_that_gave_up_waiting_takes_no_thread_slot() -> None:
    threads = Threads(1)
    release = threading.Event()
    first = start_thread_task(release.wait, threads)
    await asyncio.sleep(0)
    others = [start_thread_task(int, threads) for _ in range(3)]
    await asyncio.sleep(0)
    kill(others[0])
    kill(others[2])
    release.set()
    assert await first.wait(None) is True
    assert await others[1].wait(None) == 0
    assert threads.running == 0
    with pytest.raises(ValueError, match="at least 1 thread"):
        Threads(0)


@pytest.mark.parametrize("error", [ValueError("why"), SystemExit(1), KeyboardInterrupt(), StopIteration()])
async def test_an_error_in_a_thread_is_raised_where_it_is_awaited(error: BaseException) -> None:
    def fail() -> NoReturn:
        raise error

    task = start_thread_task(fail)
    outcome = await task.poll(None)
    assert isinstance(outcome, Exited)
    assert isinstance(outcome.reason, Crash)
    if isinstance(error, StopIteration):
        assert isinstance(outcome.reason.error, RuntimeError)
    else:
        assert outcome.reason.error is error
