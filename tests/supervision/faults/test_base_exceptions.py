"""Any exception in a handler crashes that handler's process, and no other."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from greenroom.supervision import (
    CallTimeout,
    Continue,
    Crash,
    Down,
    GenServer,
    Node,
    NoReply,
    ProcessExited,
    Quit,
    Shutdown,
    StartFailed,
    inbox,
    is_alive,
    kill,
    monitor,
    spawn,
    start,
    wait_down,
)
from greenroom.supervision.behaviours.refs import request

from .faulty_servers import ERRORS, NAMES, Breaks, Calm, Witness, flat, forever, raises, raises_later, turns

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from greenroom.supervision import Ref

    from .faulty_servers import Making

    Way = Callable[[Ref[Breaks], BaseException], Coroutine[Any, Any, Any]]

each_error = pytest.mark.parametrize("make", ERRORS, ids=NAMES)


async def called_inline(ref: Ref[Breaks], error: BaseException) -> None:
    await ref.call(Breaks.do, raises(error))


async def called_through_the_mailbox(ref: Ref[Breaks], error: BaseException) -> None:
    ref.cast(Breaks.do, list)
    await ref.call(Breaks.do, raises(error))


async def called_async(ref: Ref[Breaks], error: BaseException) -> None:
    await ref.call(Breaks.do_async, raises_later(error, 0))


async def called_async_and_suspended(ref: Ref[Breaks], error: BaseException) -> None:
    await ref.call(Breaks.do_async, raises_later(error, 3))


async def asked(ref: Ref[Breaks], error: BaseException) -> None:
    await ref.ask(raises(error))


async def behind_a_cast(ref: Ref[Breaks], error: BaseException) -> None:
    ref.cast(Breaks.do, raises(error))
    await ref.call(Breaks.do, list)


async def behind_a_known_cast(ref: Ref[Breaks], error: BaseException) -> None:
    await ref.call(Breaks.do, list)
    ref.cast(Breaks.do, list)
    await behind_a_cast(ref, error)


async def behind_a_tell(ref: Ref[Breaks], error: BaseException) -> None:
    ref.tell(raises(error))
    await ref.call(Breaks.do, list)


async def behind_a_message(ref: Ref[Breaks], error: BaseException) -> None:
    ref.send(raises(error))
    await ref.call(Breaks.do, list)


async def behind_a_continue(ref: Ref[Breaks], error: BaseException) -> None:
    ref.cast(Breaks.do, lambda: NoReply(then=Continue(raises(error))))
    await ref.call(Breaks.do, list)


async def in_a_thread(ref: Ref[Breaks], error: BaseException) -> None:
    if isinstance(error, StopIteration):
        raise ProcessExited(Crash(error))  # asyncio itself cannot carry that one out of a thread
    await ref.call(Breaks.do_async, lambda: asyncio.to_thread(raises(error)))


WAYS: list[Way] = [
    called_inline,
    called_through_the_mailbox,
    called_async,
    called_async_and_suspended,
    asked,
    behind_a_cast,
    behind_a_known_cast,
    behind_a_tell,
    behind_a_message,
    behind_a_continue,
    in_a_thread,
]


def same(raised: BaseException, made: BaseException) -> bool:
    """Whether it is that very error, as far as Python lets it through.

    A coroutine's StopIteration becomes another error; a GeneratorExit, and a cancellation, is made anew on its way.
    """
    if isinstance(made, GeneratorExit | asyncio.CancelledError):
        return type(raised) is type(made)
    return raised is made or (isinstance(made, StopIteration | StopAsyncIteration) and raised.__cause__ is made)


@each_error
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_raising_handler_crashes_its_own_process(make: Making, way: Way, node: Node) -> None:
    witness = Witness(node)
    error = make()
    async with inbox() as me:
        calm, breaks = await start(Calm), await start(Breaks)
        ref = monitor(breaks)
        slow = request(calm, Calm.add_slowly)
        with pytest.raises(ProcessExited) as caught:
            await way(breaks, error)
        if isinstance(error, StopIteration) and way is in_a_thread:
            return
        assert isinstance(caught.value.reason, Crash)
        assert same(caught.value.reason.error, error)
        assert caught.value.__cause__ is caught.value.reason.error
        assert await me.receive() == Down(ref, breaks.pid, caught.value.reason, None)
        assert me.pending() == ()
        assert await slow.wait() == 1
        assert await calm.call(Calm.add) == 2
    assert [(report.pid, report.reason) for report in witness.crashes()] == [(breaks.pid, caught.value.reason)]
    assert witness.leaks() == []


@each_error
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_from_init_it_is_a_failed_start(make: Making, node: Node, *, asynchronous: bool) -> None:
    class Sync(GenServer):
        def init(self) -> None:
            raise error

    class Async(GenServer):
        async def init(self) -> None:
            await asyncio.sleep(0)
            raise error

    class Made(GenServer):
        def __init__(self) -> None:
            raise error

    witness = Witness(node)
    error = make()
    for server in [Async] if asynchronous else [Sync, Made]:
        with pytest.raises(StartFailed) as caught:
            await start(server)
        assert isinstance(caught.value.reason, Crash)
        assert same(caught.value.reason.error, error)
        assert caught.value.__cause__ is caught.value.reason.error
        assert node.processes == {}
    assert {report.during for report in witness.crashes()} == {"init"}


@each_error
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_from_terminate_it_is_the_reason(make: Making, node: Node, *, asynchronous: bool) -> None:
    class Ends(Breaks):
        def terminate(self, reason: Any) -> Any:
            return raises_later(error)() if asynchronous else raises(error)()

    witness = Witness(node)
    error = make()
    ref = await start(Ends)
    down = asyncio.ensure_future(wait_down(ref))
    await asyncio.sleep(0)
    with pytest.raises(ProcessExited) as caught:
        await ref.call(Breaks.do, raises(Quit(Shutdown("asked for"))))
    reason = await down
    assert isinstance(reason, Crash)
    assert same(reason.error, error)
    assert caught.value.reason == reason
    assert [report.during for report in witness.crashes()] == ["terminate"]


@each_error
async def test_in_a_routine_it_is_the_reason(make: Making, node: Node) -> None:
    witness = Witness(node)
    error = make()
    for turns_before in (0, 2):
        reason = await wait_down(spawn(raises_later(error, turns_before)))
        assert isinstance(reason, Crash)
        assert same(reason.error, error)
    assert len(witness.crashes()) == 2


async def in_gather(error: BaseException) -> None:
    await asyncio.gather(raises_later(error)(), forever())


async def in_a_task_group(error: BaseException) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(forever())
        group.create_task(raises_later(error)())


async def in_an_anyio_group(error: BaseException) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(forever)
        group.start_soon(raises_later(error))


async def in_wait_for(error: BaseException) -> None:
    await asyncio.wait_for(raises_later(error)(), 1.0)


async def in_nested_groups(error: BaseException) -> None:
    async with asyncio.TaskGroup() as outer:
        outer.create_task(in_an_anyio_group(error))
        await forever()


async def in_a_task_of_its_own(error: BaseException) -> None:
    task = asyncio.create_task(raises_later(error)())
    await task


async def in_a_shield(error: BaseException) -> None:
    await asyncio.shield(raises_later(error)())


TASKS = [
    in_gather,
    in_a_task_group,
    in_an_anyio_group,
    in_wait_for,
    in_nested_groups,
    in_a_task_of_its_own,
    in_a_shield,
]


@each_error
@pytest.mark.parametrize("place", TASKS, ids=lambda place: place.__name__)
async def test_in_a_task_of_a_handler_it_is_that_actors_crash(
    make: Making, place: Callable[[BaseException], Coroutine[Any, Any, None]], node: Node
) -> None:
    error = make()
    witness = Witness(node)
    calm, breaks = await start(Calm), await start(Breaks)
    if isinstance(error, asyncio.CancelledError) and "group" in place.__name__:
        # To a task group, a task that is cancelled by itself is no failure: it waits for the others, or ends them too.
        with suppress(CallTimeout):
            await breaks.call(Breaks.do_async, lambda: place(error))
        assert is_alive(breaks)
        return
    slow = request(calm, Calm.add_slowly)
    with pytest.raises(ProcessExited) as caught:
        await breaks.call(Breaks.do_async, lambda: place(error))
    assert isinstance(caught.value.reason, Crash)
    assert any(same(each, error) for each in flat(caught.value.reason.error))
    assert await slow.wait() == 1
    assert len(witness.crashes()) == 1
    assert witness.leaks() == []
    await turns()
    assert len(asyncio.all_tasks()) == 1 + len(node.workers)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["SystemExit", "KeyboardInterrupt"])
@pytest.mark.parametrize("busy", [False, True])
async def test_a_bare_task_that_would_end_the_loop_ends_its_process(
    error: BaseException, node: Node, caplog: pytest.LogCaptureFixture, *, busy: bool
) -> None:
    witness = Witness(node)
    calm, breaks = await start(Calm), await start(Breaks)
    tasks: list[asyncio.Task[Any]] = []
    down = asyncio.ensure_future(wait_down(breaks))
    await breaks.call(Breaks.do, lambda: tasks.append(asyncio.create_task(raises_later(error, 5)())))
    if busy:
        with pytest.raises(ProcessExited):
            await breaks.call(Breaks.do_async, forever)
    assert await down == Crash(error)
    assert [(report.during, report.reason) for report in witness.crashes()] == [("task", Crash(error))]
    assert await calm.call(Calm.add) == 1
    tasks.clear()
    await turns()
    assert "never retrieved" not in caplog.text


async def test_an_exception_of_an_unawaited_bare_task_is_left_to_asyncio(node: Node) -> None:
    # As an unlinked process's crash would: it is logged, and no process dies of it.
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    breaks = await start(Breaks)
    error = ValueError("lost")

    def begin() -> None:
        _ = asyncio.create_task(raises_later(error)())  # noqa: RUF006 - to be lost is the point

    await breaks.call(Breaks.do, begin)
    await turns()
    assert await breaks.call(Breaks.do, lambda: 1) == 1
    assert told == [error]


async def test_tasks_of_other_code_in_the_loop_are_left_alone(node: Node) -> None:
    task = asyncio.create_task(forever())
    assert type(task.get_coro()).__name__ == "coroutine"
    breaks = await start(Breaks)
    other: list[asyncio.Task[None]] = []
    await breaks.call(Breaks.do, lambda: other.append(asyncio.create_task(forever())))
    await breaks.call(Breaks.do, lambda: other[0].set_name("mine"))
    assert "forever" in repr(other[0])
    assert other[0].get_stack(), "debuggers see through the guard"
    task.cancel()
    kill(breaks)
    await wait_down(breaks)
    assert other[0].cancelled()


async def test_a_group_of_anyios_that_is_cancelled_at_once_ends_at_once() -> None:
    async def cancels() -> str:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(forever)
            group.cancel_scope.cancel()
        return "over"

    breaks = await start(Breaks)
    assert await breaks.within(1.0).call(Breaks.do_async, cancels) == "over"


async def test_create_task_in_a_handler_refuses_anything_but_a_coroutine() -> None:
    no_coroutine: Any = 42

    async def make() -> str:
        with pytest.raises(TypeError, match="a coroutine was expected, got 42"):
            await asyncio.create_task(no_coroutine)
        return "refused"

    breaks = await start(Breaks)
    assert await breaks.call(Breaks.do_async, make) == "refused"


async def test_a_handler_that_will_not_hear_of_a_generator_exit_has_crashed(node: Node) -> None:
    async def deaf() -> None:
        task = asyncio.create_task(raises_later(GeneratorExit())())
        try:
            await task
        except GeneratorExit:
            await forever()

    calm, breaks = await start(Calm), await start(Breaks)
    with pytest.raises(ProcessExited, match="ignored GeneratorExit"):
        await breaks.call(Breaks.do_async, deaf)
    calls = [request(calm, Calm.add_slowly) for _ in range(3)]
    assert [await call.wait() for call in calls] == [1, 2, 3]
