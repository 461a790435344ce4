"""Mailboxes: their order, their bounds, and entries exempt from bounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.supervision import (
    KILLED,
    NORMAL,
    SHUTDOWN,
    Continue,
    Down,
    Exit,
    GenServer,
    MailboxFull,
    NoReply,
    Options,
    Ref,
    exit,
    inbox,
    kill,
    start,
    stop,
)
from greenroom.supervision.behaviours.refs import process_of, request

from .sample_servers import Log, Trapping, seen_by


async def busy(ref: Ref[Any]) -> asyncio.Event:
    gate = asyncio.Event()
    assert ref.cast(Log.wait, gate)
    await asyncio.sleep(0)
    return gate


async def test_messages_are_handled_in_the_order_they_were_sent() -> None:
    ref = await start(Log)
    for number in range(10):
        ref.cast(Log.note, number)
        ref.send(number + 0.25)
        ref.tell(number + 0.5)
        ref.cast(Log.note_slowly, number + 0.75)
    assert await ref.call(Log.read) == [number / 4 for number in range(40)]


async def test_a_call_does_not_overtake_a_cast() -> None:
    ref = await start(Log)
    ref.cast(Log.note, 1)
    await ref.call(Log.note, 2)
    assert await ref.call(Log.read) == [1, 2]


async def test_a_full_mailbox_says_no_to_casts_and_messages() -> None:
    ref = await Options(mailbox=2).start(Log)
    gate = await busy(ref)
    assert [ref.cast(Log.note, 1), ref.send(2), ref.cast(Log.note, 3), ref.tell(4), ref.send(5)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    gate.set()
    assert await seen_by(ref) == [1, 2]
    assert ref.cast(Log.note, 6)


async def test_a_call_to_a_full_mailbox_raises() -> None:
    ref = await Options(mailbox=1, label="box").start(Log)
    gate = await busy(ref)
    assert ref.send(1)
    with pytest.raises(MailboxFull, match=r"the mailbox of box <node\.\d+> is full \(1 messages\)") as caught:
        await ref.call(Log.read)
    assert caught.value.limit == 1
    with pytest.raises(MailboxFull):
        await ref.ask("anything")
    with pytest.raises(MailboxFull):
        await request(ref, Log.read).wait()
    gate.set()
    assert await seen_by(ref) == [1]


async def test_down_and_trapped_exits_are_exempt_from_the_bound() -> None:
    async with inbox():
        ref = await Options(mailbox=1).start(Trapping)
        other = await start(Log)
        await ref.call(Log.watch, other)
        gate = await busy(ref)
        assert ref.send("one")
        assert not ref.send("two")
        exit(ref, SHUTDOWN)
        kill(other)
        assert not ref.send("three"), "signals neither take nor free a place"
        gate.set()
        first, trapped, down = await seen_by(ref)
    assert first == "one"
    assert isinstance(trapped, Exit)
    assert isinstance(down, Down)
    assert down.reason == KILLED


async def test_a_signal_that_comes_first_does_not_lift_the_bound() -> None:
    ref = await Options(mailbox=2).start(Log)
    other = await start(Log)
    await ref.call(Log.watch, other)
    kill(other)
    assert [ref.cast(Log.note, number) for number in range(4)] == [True, True, False, False]
    assert (await seen_by(ref))[1:] == [0, 1]


async def test_a_stop_passes_a_full_mailbox() -> None:
    ref = await Options(mailbox=1).start(Log)
    gate = await busy(ref)
    assert ref.send("full")
    stopping = asyncio.ensure_future(stop(ref))
    await asyncio.sleep(0)
    gate.set()
    await stopping


async def test_a_stop_that_comes_first_does_not_lift_the_bound() -> None:
    ref = await Options(mailbox=1).start(Log)
    stopping = asyncio.ensure_future(stop(ref))
    await asyncio.sleep(0)
    assert [ref.cast(Log.note, number) for number in range(3)] == [True, False, False]
    await stopping


async def test_handled_signals_free_their_room_in_the_mailbox() -> None:
    async with inbox():
        ref = await Options(mailbox=1).start(Trapping)
        for _ in range(3):
            gate = await busy(ref)
            exit(ref, NORMAL)
            assert ref.send("x")
            assert not ref.send("y")
            gate.set()
            await seen_by(ref)
        process = process_of(ref)
        assert process is not None
        assert process.exempt == 0


async def test_a_dead_mailbox_takes_nothing() -> None:
    ref = await start(Log)
    await stop(ref)
    assert not ref.send(1)
    assert not ref.cast(Log.note, 1)
    assert not ref.tell(1)


async def test_an_empty_mailbox_weighs_nothing() -> None:
    ref = await start(Log)
    ref.send(1)
    await ref.call(Log.read)
    process = process_of(ref)
    assert process is not None
    assert process.mailbox is None
    assert process.fast_append is None


class Steps(GenServer):
    """Returns `Continue` from each kind of callback."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def init(self) -> Continue:
        self.ref().send("sent in init")
        return Continue("init")

    def handle_continue(self, token: object) -> NoReply | None:
        self.seen.append(token)
        return NoReply(then=Continue("nested")) if token == "cast" else None

    def handle_cast(self, request: object) -> NoReply:
        return NoReply(then=Continue(request))

    async def go_on(self) -> NoReply:
        self.caller.reply(None)
        return NoReply(then=Continue("async call"))

    def handle_info(self, message: object) -> None:
        self.seen.append(message)

    def read(self) -> list[object]:
        return self.seen


async def test_the_next_step_comes_before_everything_that_waits() -> None:
    ref = await start(Steps)
    ref.tell("cast")
    ref.send("after cast")
    call = request(ref, Steps.go_on)
    ref.send("after call")
    await call.wait()
    assert await ref.call(Steps.read) == [
        "init",
        "sent in init",
        "cast",
        "nested",
        "after cast",
        "async call",
        "after call",
    ]


async def test_a_trapped_exit_comes_behind_what_was_sent_before() -> None:
    async with inbox() as me:
        ref = await start(Trapping)
        ref.cast(Log.note, 1)
        exit(ref, SHUTDOWN)
        ref.cast(Log.note, 2)
        assert await ref.call(Log.read) == [1, Exit(me.pid, SHUTDOWN), 2]
