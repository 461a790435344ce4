"""Watching a server: its notes, their limit, and that other processes are not affected."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import pytest

from greenroom.supervision import (
    KILLED,
    SHUTDOWN,
    ActorError,
    Crash,
    GenServer,
    NoReply,
    NotRegistered,
    ProcessExited,
    Ref,
    Registry,
    Reply,
    Stop,
    exit,
    inbox,
    kill,
    receive,
    spawn,
    start,
    stopping,
    via,
    wait_down,
)
from greenroom.supervision.introspect import Trace, get_state, resume, suspend, watch
from greenroom.supervision.kernel.process import DOZING, IDLE
from greenroom.supervision.registry import lookup


class Counter(GenServer):
    """Counts."""

    def __init__(self, total: int = 0) -> None:
        self.total = total

    def add(self, amount: int) -> int:
        self.total += amount
        return self.total

    async def add_slowly(self, amount: int) -> int:
        await asyncio.sleep(10)
        return self.add(amount)

    def fail(self) -> NoReturn:
        raise ValueError("why")

    def finish(self) -> int:
        return stopping(self.total)

    def handle_call(self, request: Any, caller: Any) -> Reply:
        return Reply(request)

    def handle_info(self, message: Any) -> NoReply | Stop | None:
        return NoReply(idle_after=1) if message == "idle" else None


def brief(notes: Any) -> list[tuple[str, str]]:
    """Kind and text."""
    return [(note.kind, note.what) for note in notes]


@pytest.mark.otp("sys_SUITE", "trace")
async def test_everything_a_watched_server_does_is_noted_in_order() -> None:
    counter = await start(Counter)
    seen: list[Trace] = []
    watching = watch(counter, seen.append)
    assert await counter.call(Counter.add, 2) == 2
    counter.cast(Counter.add, 3)
    assert await counter.ask("hello") == "hello"
    assert await counter.within(None).call(Counter.add_slowly, 1) == 6
    with pytest.raises(ProcessExited):
        await counter.call(Counter.fail)
    assert brief(seen) == [
        ("message", "call add(2)"),
        ("reply", "2"),
        ("state", "total=2"),
        ("message", "cast add(3)"),
        ("state", "total=5"),
        ("message", "call 'hello'"),
        ("reply", "'hello'"),
        ("message", "call add_slowly(1)"),
        ("reply", "6"),
        ("state", "total=6"),
        ("message", "call fail()"),
        ("crash", "ValueError: why"),
        ("exit", "crash: ValueError: why"),
    ]
    assert list(watching.notes) == seen
    assert [note.number for note in seen] == list(range(13))
    assert {note.time for note in seen[:7]} == {0.0}
    assert {note.time for note in seen[7:]} == {10.0}
    assert not watching.on


@pytest.mark.otp("sys_SUITE", "stats")
async def test_statistics_say_what_it_did_and_what_took_longest() -> None:
    counter = await start(Counter)
    watching = watch(counter, limit=0)
    for _ in range(5):
        await counter.call(Counter.add, 1)
    counter.cast(Counter.add, 1)
    with pytest.raises(ProcessExited):
        await counter.call(Counter.fail)
    statistics = watching.statistics
    assert (statistics.messages, statistics.replies, statistics.crashes) == (7, 5, 1)
    assert 0 < statistics.longest <= statistics.busy
    assert statistics.longest_message
    assert (len(watching.notes), watching.dropped) == (0, 3 * 5 + 2 + 3)


@pytest.mark.otp("sys_SUITE", "log")
async def test_only_what_is_wanted_is_noted_and_only_so_much_is_kept() -> None:
    counter = await start(Counter)
    replies = watch(counter, kinds=["reply"], limit=3)
    for _ in range(5):
        await counter.call(Counter.add, 1)
    assert brief(replies.notes) == [("reply", "3"), ("reply", "4"), ("reply", "5")]
    assert replies.dropped == 2
    assert [note.number for note in replies.notes] == [2, 3, 4]


async def test_the_end_is_noted_with_what_it_interrupted() -> None:
    counter = await start(Counter)
    watching = watch(counter)
    counter.cast(Counter.add_slowly, 1)
    await asyncio.sleep(1)
    kill(counter)
    assert await wait_down(counter) == KILLED
    assert brief(watching.notes) == [("exit", "killed, in the middle of cast add_slowly(1)")]


@pytest.mark.otp("sys_SUITE", "install")
async def test_two_watches_of_one_server_do_not_know_of_each_other() -> None:
    counter = await start(Counter)
    first, second, third = watch(counter), watch(counter), watch(counter)
    await counter.call(Counter.add, 1)
    second.stop()
    second.stop()
    await counter.call(Counter.add, 1)
    assert [each.on for each in (first, second, third)] == [True, False, True]
    first.stop()
    third.stop()
    await counter.call(Counter.add, 1)
    assert [len(each.notes) for each in (first, second, third)] == [6, 3, 6]


@pytest.mark.otp("sys_SUITE", "install")
async def test_nothing_is_left_of_a_watch_that_is_over() -> None:
    counter = await start(Counter)
    process = counter._process
    assert process is not None
    behaviour = process.behaviour
    watching = watch(counter)
    assert process.idle_activity == process.activity == DOZING
    counter.send("idle")
    await counter.call(Counter.add, 1)
    assert process.idle_activity == DOZING, "the idle timer that ended does not end the watch"
    watching.stop()
    await counter.call(Counter.add, 1)
    assert process.behaviour is behaviour
    assert process.idle_activity == process.activity == IDLE


async def test_a_suspended_server_stays_suspended_when_a_watch_ends() -> None:
    counter = await start(Counter)
    watching = watch(counter)
    await suspend(counter)
    counter.cast(Counter.add, 1)
    watching.stop()
    assert await get_state(counter) == {"total": 0}
    await resume(counter)
    assert await counter.call(Counter.add, 0) == 1


async def test_a_subscriber_that_raises_does_not_disturb_the_watched_server(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Trace) -> None:
        raise ValueError("my own")

    class Shy(Counter):
        def report_state(self) -> str:
            raise RuntimeError("do not look")

    counter = await start(Shy)
    watching = watch(counter, broken)
    assert await counter.call(Counter.add, 1) == 1
    assert await counter.call(Counter.add, 1) == 2
    assert len([record for record in caplog.records if "goes on without it" in record.getMessage()]) == 1
    assert brief(watching.notes) == [
        ("message", "call add(1)"),
        ("reply", "1"),
        ("message", "call add(1)"),
        ("reply", "2"),
    ]


async def test_a_watched_server_can_stop_and_be_stopped() -> None:
    counter = await start(Counter, 7)
    watching = watch(counter)
    assert await counter.call(Counter.finish) == 7
    assert brief(watching.notes) == [("message", "call finish()"), ("reply", "7"), ("exit", "normal")]
    other = await start(Counter)
    watching = watch(other)
    exit(other, SHUTDOWN)
    assert brief(watching.notes) == [("exit", "shutdown")]
    with pytest.raises(NotRegistered):
        watch(other)


async def test_a_registry_works_while_it_is_watched() -> None:
    registry = await start(Registry)
    watching = watch(registry, kinds=["message"])
    counter = await start(Counter)
    await registry.call(Registry.register, "counter", counter.pid)
    assert lookup(registry, "counter") == [(counter.pid, None)]
    by_name: Ref[Counter] = Ref(via(registry, "counter"))
    assert await by_name.call(Counter.add, 1) == 1
    assert brief(watching.notes) == [("message", f"call register('counter', {counter.pid!r})")]


async def test_only_servers_can_be_watched_and_nonsense_is_refused() -> None:
    async with inbox() as me:
        with pytest.raises(ActorError, match="is no server"):
            watch(me)

    async def routine() -> None:
        await receive()

    with pytest.raises(ActorError, match="is no server"):
        watch(spawn(routine))
    counter = await start(Counter)
    with pytest.raises(ValueError, match="limit must be 0 notes or more, not -1"):
        watch(counter, limit=-1)
    kinds: Any = ["message", "rumour"]
    with pytest.raises(ValueError, match="not 'rumour'"):
        watch(counter, kinds=kinds)


async def test_a_crash_of_a_watched_server_is_reported_as_ever() -> None:
    counter = await start(Counter)
    watch(counter)
    with pytest.raises(ProcessExited) as died:
        await counter.call(Counter.fail)
    assert isinstance(died.value.reason, Crash)
    assert isinstance(died.value.__cause__, ValueError)
