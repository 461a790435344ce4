"""Routines and inboxes: processes that are an async function, and mailboxes for code outside of processes."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    KILLED,
    NORMAL,
    SHUTDOWN,
    ActorError,
    CallTimeout,
    Crash,
    Down,
    Exit,
    GenServer,
    Node,
    NotAnActor,
    Options,
    ProcessExited,
    Ref,
    inbox,
    is_alive,
    kill,
    link,
    monitor,
    receive,
    self_pid,
    send,
    spawn,
    spawn_link,
    start,
    start_link,
    trap_exit,
    wait_down,
)

from .sample_servers import Log, Trapping, forever, shut_down, turns

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.supervision import Inbox


async def test_a_process_receives_in_order_and_picks_what_it_wants() -> None:
    got: list[Any] = []

    async def picks() -> None:
        got.append(await receive(lambda message: message == "third"))
        got.extend([await receive(), await receive()])
        got.append(await receive(lambda message: message == "late"))

    pid = spawn(picks)
    down = asyncio.ensure_future(wait_down(pid))
    for message in ("first", "second", "third"):
        assert send(pid, message)
    await turns()
    assert got == ["third", "first", "second"]
    send(pid, "not this")
    await turns()
    send(pid, "late")
    assert await down == NORMAL
    assert got[-1] == "late"
    assert not is_alive(pid)


async def test_receive_has_a_deadline_and_none_is_no_limit() -> None:
    loop = asyncio.get_running_loop()
    async with inbox() as me:
        for seconds in (0.0, 0.5):
            began = loop.time()
            with pytest.raises(CallTimeout, match=f"{me.pid} did not receive a message within {seconds:g} s"):
                await receive(timeout=seconds)
            assert loop.time() - began == seconds
        send(me.pid, 1)
        assert await receive(timeout=0) == 1
        loop.call_later(1.0, send, me.pid, 2)
        loop.call_later(2.0, send, me.pid, 3)
        with pytest.raises(CallTimeout):
            await receive(lambda message: message == 3, timeout=1.5)
        assert await receive(lambda message: message == 3) == 3
        assert me.pending() == (2,)
        loop.call_later(10**6, send, me.pid, 4)
        assert await receive(lambda message: message == 4) == 4


async def test_a_receive_that_is_cancelled_loses_nothing() -> None:
    async with inbox() as me:
        task = asyncio.ensure_future(me.receive())
        await turns()
        task.cancel()
        send(me.pid, 1)
        await asyncio.gather(task, return_exceptions=True)
        assert await me.receive() == 1
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await me.receive(timeout=None)
        send(me.pid, 2)
        assert await me.receive() == 2


async def test_two_of_its_tasks_cannot_receive_at_once() -> None:
    async with inbox() as me:
        first = asyncio.ensure_future(me.receive())
        await turns()
        with pytest.raises(ActorError, match="waits for a message already, in another of its tasks"):
            await me.receive()
        send(me.pid, 1)
        assert await first == 1


async def test_a_match_that_raises_takes_nothing() -> None:
    async with inbox() as me:
        send(me.pid, 1)
        with pytest.raises(ZeroDivisionError):
            await me.receive(lambda message: message == 1 / 0)
        assert await me.receive() == 1
        assert len(me) == 0


async def test_calls_and_casts_to_a_routine_can_be_received() -> None:
    async with inbox() as me:
        ref: Ref[Log] = Ref(me.pid)
        asking = asyncio.ensure_future(ref.ask("question"))
        calling = asyncio.ensure_future(ref.call(Log.read))
        await turns()
        for answer in ("one", ["two"]):
            (await me.receive()).reply(answer)
        assert await asking == "one"
        assert await calling == ["two"]
        ref.tell("told")
        assert await me.receive() == ("told",)
        ref.cast(Log.note, 1)
        assert await me.receive() == (Log.note, (1,), {})


async def test_the_end_of_the_function_is_the_end_of_the_process() -> None:
    async def returns() -> int:
        return 7

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("x")

    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    assert await wait_down(spawn(returns)) == NORMAL
    for function, error in ((fails, ValueError), (cancels_itself, asyncio.CancelledError)):
        reason = await wait_down(spawn(function))
        assert isinstance(reason, Crash)
        assert type(reason.error) is error


async def test_only_a_coroutine_function_makes_a_process(node: Node) -> None:
    not_async: Any = len
    needs_more: Any = forever
    async with inbox():
        for beginning in (spawn, spawn_link):
            with pytest.raises(TypeError, match="a process is made of an `async def` function"):
                beginning(not_async, ())
            with pytest.raises(TypeError, match="positional argument"):
                beginning(needs_more, 1)
        assert len(node.processes) == 1


async def test_a_process_that_is_killed_before_it_begins_never_begins() -> None:
    began: list[int] = []

    async def begins() -> None:
        began.append(1)

    pid = spawn(begins)
    kill(pid)
    assert await wait_down(pid) == KILLED
    assert began == []
    gc.collect()  # a coroutine that was never awaited would warn now


async def test_a_receiver_whose_process_dies_is_told() -> None:
    for end in (kill, shut_down):
        async with inbox(trap_exit=False) as me:
            waiting = asyncio.ensure_future(me.receive(timeout=None))
            await turns()
            end(me.pid)
            with pytest.raises(ProcessExited):
                await waiting
            with pytest.raises(ProcessExited):
                await me.receive()
            assert not is_alive(me.pid)


async def test_an_inbox_dies_with_a_linked_process_unless_it_traps() -> None:
    async with inbox(trap_exit=False) as me:
        ref = await start_link(Log)
        kill(ref)
        with pytest.raises(ProcessExited, match="killed"):
            await me.receive()
    async with inbox() as me:
        ref = await start_link(Log)
        kill(ref)
        assert await me.receive() == Exit(ref.pid, KILLED)


async def test_leaving_an_inbox_ends_what_is_linked_to_it(node: Node) -> None:
    async with inbox() as me:
        plain, trapping = await start_link(Log), await start_link(Trapping)
        watched = await start(Log)
        monitor(watched)
        pid = me.pid
    assert not is_alive(pid)
    assert not is_alive(plain)
    await turns()
    assert not is_alive(trapping), "its parent is gone"
    assert is_alive(watched)
    with pytest.raises(NotAnActor):
        self_pid()


async def test_inboxes_nest() -> None:
    async with inbox("outer") as outer:
        assert self_pid() == outer.pid
        async with inbox("inner") as inner:
            assert self_pid() == inner.pid
            link(outer)
        assert self_pid() == outer.pid
        assert await outer.receive() == Exit(inner.pid, SHUTDOWN)


async def test_an_inbox_left_by_an_error_is_closed_and_lets_it_through(node: Node) -> None:
    with pytest.raises(ZeroDivisionError):
        async with inbox():
            raise ZeroDivisionError
    with pytest.raises(asyncio.CancelledError):
        async with inbox():
            raise asyncio.CancelledError
    assert node.processes == {}


async def test_an_inbox_may_be_left_in_another_task_than_it_was_entered_in(node: Node) -> None:
    async def lend() -> AsyncGenerator[Inbox]:
        async with inbox() as me:
            yield me

    async def leave() -> None:
        await lent.aclose()
        with pytest.raises(NotAnActor):
            self_pid()

    lent = lend()
    me = await anext(lent)
    assert self_pid() == me.pid
    await asyncio.create_task(leave())
    assert not is_alive(me.pid)
    assert node.processes == {}


async def test_tasks_of_an_inbox_are_not_its_own() -> None:
    async with inbox():
        task = asyncio.ensure_future(forever())
    await turns()
    assert not task.done()
    task.cancel()


async def test_an_inbox_has_no_bound_and_takes_a_hundred_thousand() -> None:
    async with inbox() as me:
        ref: Ref[Log] = Ref(me.pid)
        for number in range(100_000):
            ref.send(number)
        assert len(me) == 100_000
        assert await me.receive(lambda message: message == 99_999) == 99_999
        assert await me.receive() == 0


async def test_a_server_cannot_receive() -> None:
    ref = await start(Log)
    with pytest.raises(
        ProcessExited, match=r"gets its messages in callbacks: receive\(\) is for processes made by spawn"
    ):
        await ref.call(Log.do_async, receive)
    with pytest.raises(NotAnActor, match="only a process can receive"):
        await receive()


async def test_a_routine_may_gather_and_call_and_be_linked() -> None:
    async def parent() -> None:
        trap_exit()
        log = await start_link(Log)
        await asyncio.gather(*(log.call(Log.note, number) for number in range(3)))
        assert await log.call(Log.read) == [0, 1, 2]
        kill(log)
        message = await receive()
        assert message == Exit(log.pid, KILLED)

    async with inbox() as me:
        pid = spawn(parent)
        ref = monitor(pid)
        assert await me.receive() == Down(ref, pid, NORMAL)


async def test_a_named_routine_is_found_like_any_other() -> None:
    class Echo(GenServer):
        def twice(self, number: int) -> int:
            return 2 * number

    await Options(name="echo").start(Echo)

    async def asks() -> None:
        assert await Ref[Echo]("echo").call(Echo.twice, 2) == 4

    assert await wait_down(spawn(asks)) == NORMAL
