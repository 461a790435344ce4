"""Monitors: one `Down` each, after all earlier messages, and flushing it."""

from __future__ import annotations

import asyncio

import pytest

from greenroom.supervision import (
    KILLED,
    NO_PROCESS,
    NORMAL,
    SHUTDOWN,
    Continue,
    Crash,
    Down,
    ExitReason,
    GenServer,
    Monitor,
    NoConnection,
    Pid,
    Shutdown,
    demonitor,
    exit,
    inbox,
    is_alive,
    kill,
    monitor,
    register,
    send,
    spawn_monitor,
    start,
    start_monitor,
    stop,
)
from greenroom.supervision.behaviours.refs import process_of

from .sample_servers import Log, turns

ERROR = KeyError("x")
REASONS: list[ExitReason] = [SHUTDOWN, Shutdown("why"), KILLED, Crash(ERROR), NO_PROCESS]


# --- monitors


@pytest.mark.parametrize("reason", REASONS, ids=str)
async def test_a_monitor_delivers_one_down_and_disturbs_no_process(reason: ExitReason) -> None:
    async with inbox() as me:
        ref = await start(Log)
        first, second = monitor(ref), monitor(ref)
        exit(ref, reason)
        assert [await me.receive(), await me.receive()] == [
            Down(first, ref.pid, reason),
            Down(second, ref.pid, reason),
        ]
        assert me.pending() == ()


async def test_a_monitor_of_a_missing_process_delivers_down_at_once() -> None:
    async with inbox() as me:
        gone = await start(Log)
        await stop(gone)
        ref = monitor(gone)
        assert await me.receive(timeout=0) == Down(ref, gone.pid, NO_PROCESS)
        ref = monitor("missing")
        assert await me.receive(timeout=0) == Down(ref, None, NO_PROCESS, "missing")
        ref = monitor(Pid("elsewhere", 1, 1))
        assert (await me.receive(timeout=0)).reason == NoConnection()
        ref = monitor(Pid("node", 1, 1))
        assert (await me.receive(timeout=0)).reason == NO_PROCESS


async def test_a_monitor_by_name_tells_the_name() -> None:
    async with inbox() as me:
        ref = await start(Log)
        register("log", ref.pid)
        watching = monitor("log")
        kill(ref)
        assert await me.receive() == Down(watching, ref.pid, KILLED, "log")


async def test_down_comes_behind_all_that_the_process_had_sent() -> None:
    async with inbox() as me:

        async def last_words() -> None:
            for number in range(3):
                send(me.pid, number)

        pid, ref = spawn_monitor(last_words)
        assert [await me.receive() for _ in range(4)] == [0, 1, 2, Down(ref, pid, NORMAL)]


async def test_demonitor_and_flush() -> None:
    async with inbox() as me:
        ref = await start(Log)
        first, second, third = monitor(ref), monitor(ref), monitor(ref)
        assert demonitor(first)
        assert not demonitor(first)
        kill(ref)
        await turns()
        assert not demonitor(second)
        assert not demonitor(third, flush=True)
        assert me.pending() == (Down(second, ref.pid, KILLED),)
        assert not demonitor(second, flush=True)
        assert me.pending() == ()
        assert not demonitor(second, flush=True)


async def test_flush_leaves_everything_else_and_the_mailbox_whole() -> None:
    ref, other = await start(Log), await start(Log)
    monitors: list[Monitor] = []
    await ref.call(Log.do, lambda: monitors.append(monitor(other)))
    kill(other)
    process = process_of(ref)
    assert process is not None
    assert demonitor(monitors[0], flush=True) is False
    ref.send("after")
    assert await ref.call(Log.read) == ["after"]
    assert process.watching is None


async def test_neither_side_keeps_a_monitor_that_is_over() -> None:
    watcher, target = await start(Log), await start(Log)
    await watcher.call(Log.watch, target)
    one, two = process_of(watcher), process_of(target)
    assert one is not None
    assert two is not None
    assert one.watching
    assert two.monitors
    kill(watcher)
    assert not two.monitors
    again = await start(Log)
    await again.call(Log.watch, target)
    kill(target)
    await turns()
    assert process_of(again).watching is None  # type: ignore[union-attr]


async def test_a_process_may_monitor_itself_and_never_hears_of_it() -> None:
    ref = await start(Log)
    await ref.call(Log.watch, ref)
    kill(ref)
    await turns()
    assert not is_alive(ref)


@pytest.mark.otp("proc_lib_SUITE", "sync_start_monitor")
async def test_start_monitor_tells_of_a_death_right_after_the_start() -> None:
    class Brief(GenServer):
        async def init(self) -> Continue:
            await asyncio.sleep(0)
            return Continue("end")

        def handle_continue(self, token: object) -> None:
            raise ERROR

    async with inbox() as me:
        ref, watching = await start_monitor(Brief)
        assert await me.receive() == Down(watching, ref.pid, Crash(ERROR))
        assert me.pending() == ()
