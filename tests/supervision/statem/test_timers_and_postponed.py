"""Timers and postponed events of a machine: times, order, and bounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.supervision import MailboxFull, Options, demonitor, kill, monitor, request, start
from greenroom.supervision.introspect import get_state, replace_state, resume, suspend
from greenroom.supervision.statem import (
    POSTPONE,
    After,
    At,
    Cancel,
    EventTimeout,
    GenericTimeout,
    Info,
    Keep,
    StateTimeout,
    UpdateTimeout,
)

from .door_machines import Door, DoorState, Script, do


async def test_timers_are_relative_or_absolute_and_bring_what_they_were_last_given() -> None:
    ref = await start(Script)

    def arm(script: Script) -> Any:
        return Keep(
            After(3, GenericTimeout("a", 1)),
            At(script.now + 2, GenericTimeout("b", 1)),
            At(script.now - 2, GenericTimeout("c", 1)),
            At(float("inf"), GenericTimeout("never")),
            After(None, GenericTimeout("never")),
            After(float("inf"), StateTimeout("never")),
            After(1, GenericTimeout("d")),
        )

    ref.send(arm)
    do(ref, lambda _: Keep(UpdateTimeout(GenericTimeout("a", 2)), Cancel(GenericTimeout("d", "whatever"))))
    do(ref, lambda _: Keep(UpdateTimeout(EventTimeout("none ran"))))
    await asyncio.sleep(4)
    assert (await get_state(ref))["heard"] == [
        EventTimeout("none ran"),
        GenericTimeout("c", 1),
        GenericTimeout("b", 1),
        GenericTimeout("a", 2),
    ]


async def test_timers_that_fall_due_together_come_in_the_order_of_their_starts() -> None:
    ref = await start(Script)
    names = [f"{number}" for number in range(20)]
    do(ref, lambda _: Keep(*(After(1, GenericTimeout(name)) for name in names)))
    do(ref, lambda _: Keep(After(1, GenericTimeout("3"))))
    await asyncio.sleep(2)
    order = [*names[:3], *names[4:], "3"]
    assert (await get_state(ref))["heard"] == [GenericTimeout(name) for name in order]


async def test_timers_and_events_of_the_dead_are_gone() -> None:
    ref = await start(Script)
    do(ref, lambda _: Keep(After(1, StateTimeout())))
    await asyncio.sleep(0.5)
    kill(ref)
    await asyncio.sleep(1)  # nothing rings, or it would be said that a dead process was asked to handle it


async def test_a_suspended_machine_keeps_events_and_timeouts() -> None:
    ref = await start(Script)
    do(ref, lambda _: Keep(After(1, StateTimeout())))
    await suspend(ref)
    ref.send("x")
    await asyncio.sleep(2)
    assert (await get_state(ref))["heard"] == []
    await resume(ref)
    assert (await get_state(ref))["heard"] == [Info("x"), StateTimeout()]


async def test_a_postponed_event_counts_for_the_bound_until_it_is_retried() -> None:
    ref = await Options(mailbox=2).start(Door, "12")
    waiting = [request(ref, Door.push), request(ref, Door.push)]
    await asyncio.sleep(0)
    with pytest.raises(MailboxFull):
        await ref.call(Door.unlock, "12")
    assert not ref.tell("x")
    await replace_state(ref, lambda fields: fields | {"state": DoorState.CLOSED})  # a system message passes any bound
    await suspend(ref)
    await resume(ref)
    assert not ref.tell("y")
    await replace_state(ref, lambda fields: fields | {"state": DoorState.LOCKED})
    assert not any(each.done for each in waiting)


async def test_a_retried_event_no_longer_counts_for_the_bound() -> None:
    ref = await Options(mailbox=2).start(Door, "12")
    pushing = request(ref, Door.push)
    await asyncio.sleep(0)
    assert await ref.call(Door.unlock, "12")
    assert await pushing.wait() == 1
    assert [request(ref, Door.push).done for _ in range(2)] == [False, False]
    with pytest.raises(MailboxFull):
        await ref.call(Door.push)


async def test_signals_and_postponed_events_do_not_spoil_each_others_count() -> None:
    ref = await Options(mailbox=1).start(Script)
    child = await start(Script)
    do(ref, lambda _: [monitor(child), None][1])
    await asyncio.sleep(0)
    do(ref, lambda _: Keep(POSTPONE))
    kill(child)
    await asyncio.sleep(0)
    assert (await get_state(ref))["heard"][0].message.pid == child.pid
    assert not ref.send("one too many")


async def test_a_signal_that_is_flushed_does_not_spoil_the_count_of_what_is_postponed() -> None:
    ref = await Options(mailbox=2).start(Script)
    child = await start(Script)

    def flush(_: Script) -> None:
        watch = monitor(child)
        kill(child)
        demonitor(watch, flush=True)

    do(ref, lambda _: Keep(POSTPONE))
    do(ref, flush)
    await asyncio.sleep(0)
    assert (await get_state(ref))["heard"] == []
    assert [ref.send(number) for number in range(2)] == [True, False]
