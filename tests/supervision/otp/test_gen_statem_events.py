"""The order of events of a state machine: inserted ones, postponed ones, and timeouts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import Crash, Exit, Pid, ProcessExited, Shutdown, inbox, send, start, start_link
from greenroom.supervision.introspect import get_state
from greenroom.supervision.statem import (
    POSTPONE,
    After,
    AskEvent,
    At,
    Call,
    Cancel,
    Cast,
    Enter,
    Event,
    EventTimeout,
    GenericTimeout,
    Info,
    Internal,
    Keep,
    Next,
    NextEvent,
    RepeatState,
    Reply,
    StateTimeout,
    Stop,
    StopAndReply,
    TellEvent,
    UpdateTimeout,
)

from .machines import Entered, Mapped
from .servers import Stopped

if TYPE_CHECKING:
    from greenroom.supervision import Inbox, Ref


async def heard(me: Inbox) -> list[Any]:
    """The messages until no more come."""
    await asyncio.sleep(0.5)
    return [await me.receive() for _ in range(len(me))]


async def is_gone(ref: Ref[Any]) -> None:
    with pytest.raises(ProcessExited):
        await ref.ask("hej")


@pytest.mark.otp("gen_statem_SUITE", "state_enter")
async def test_a_state_is_told_when_it_is_entered_and_again_when_that_is_repeated() -> None:
    def count(machine: Mapped) -> int:
        machine.data[1] += 1
        number: int = machine.data[1] - 1
        return number

    def tell(machine: Mapped, *what: Any) -> None:
        hear: Pid = machine.data[0]
        send(hear, what)

    def begin(machine: Mapped, event: Event) -> Any:
        number = count(machine)
        match event:
            case Enter(previous):
                tell(machine, number, "enter", "start", previous)
                return Keep()
            case Internal(previous):
                tell(machine, number, "internal", "start", previous)
                return None
            case AskEvent("repeat", caller):
                return RepeatState(Reply(caller, (number, "repeat", "start")))
            case AskEvent("echo", caller):
                return Next("wait", Reply(caller, (number, "echo", "start")), After(0, EventTimeout(number)))
            case AskEvent("stop", caller):
                return StopAndReply(Stopped(), Reply(caller, (number, "stop")))
            case _:
                raise AssertionError(event)

    def wait(machine: Mapped, event: Event) -> Any:
        if isinstance(event, AskEvent) and event.request == "repeat":
            number = machine.data[1]  # does not count
            return RepeatState(Reply(event.caller, (number, "repeat", "wait")), After(0, EventTimeout(number)))
        number = count(machine)
        zeros = (After(0, EventTimeout(number)), After(0, StateTimeout(number)))
        match event:
            case Enter(previous) if number < 5:
                tell(machine, number, "enter", previous)
                return RepeatState(*zeros)
            case Enter(previous):
                tell(machine, number, "enter", "wait", previous)
                return Keep(*zeros)
            case EventTimeout(content):
                tell(machine, number, "timeout", content)
                return None
            case StateTimeout(content):
                tell(machine, number, "state timeout", content)
                return None
            case AskEvent("echo", caller):
                return Next("start", NextEvent(Internal("wait")), Reply(caller, (number, "echo", "wait")))
            case _:
                raise AssertionError(event)

    async with inbox() as me:
        ref = await start_link(Entered, Next("start"), {"start": begin, "wait": wait}, [me.pid, 1])
        assert await heard(me) == [(1, "enter", "start", "start")]
        assert await ref.ask("echo") == (2, "echo", "start")
        assert await heard(me) == [
            (3, "enter", "start"),
            (4, "enter", "start"),
            (5, "enter", "wait", "start"),
            (6, "timeout", 5),
            (7, "state timeout", 5),
        ]
        fields = await get_state(ref)
        assert (fields["state"], fields["data"][1]) == ("wait", 8)
        assert await ref.ask("repeat") == (8, "repeat", "wait")
        assert await heard(me) == [(8, "enter", "wait", "wait"), (9, "timeout", 8), (10, "state timeout", 8)]
        assert await ref.ask("echo") == (11, "echo", "wait")
        assert await heard(me) == [(12, "enter", "start", "wait"), (13, "internal", "start", "wait")]
        assert await ref.ask("repeat") == (14, "repeat", "start")
        assert await heard(me) == [(15, "enter", "start", "start")]
        assert await ref.ask("stop") == (16, "stop")
        (ended,) = await heard(me)
        assert isinstance(ended, Exit)
        assert isinstance(ended.reason, Crash)
        assert isinstance(ended.reason.error, Stopped)
        await is_gone(ref)
        assert await heard(me) == []


@pytest.mark.otp("gen_statem_SUITE", "event_order")
async def test_inserted_events_come_before_postponed_ones_and_both_before_a_timeout() -> None:
    def begin(machine: Mapped, event: Event) -> Any:
        match event:
            case TellEvent():
                return Keep(POSTPONE)
            case AskEvent("buffer", caller):
                return Next(
                    "buffer",
                    NextEvent(Internal("ok3")),
                    NextEvent(Internal("ok4")),
                    After(
                        0, EventTimeout("ok5")
                    ),  # cancelled by what comes first: that which is inserted and postponed
                    Reply(caller, "ok"),
                )
            case _:
                raise AssertionError(event)

    def buffer(machine: Mapped, event: Event) -> Any:
        match event:
            case Internal(content) | EventTimeout(content) | TellEvent(content):
                machine.data.append(content)
                return None
            case AskEvent("stop", caller):
                return Next("stop", Reply(caller, machine.data), NextEvent(Internal(Stop(Shutdown("reason")))))
            case _:
                raise AssertionError(event)

    def end(_: Mapped, event: Event) -> Any:
        assert isinstance(event, Internal)
        return event.content

    async with inbox() as me:
        ref = await start_link(Mapped, Next("start"), {"start": begin, "buffer": buffer, "stop": end}, [])
        ref.tell("ok1")
        ref.tell("ok2")
        assert await ref.ask("buffer") == "ok"
        assert await ref.ask("stop") == ["ok3", "ok4", "ok1", "ok2"]
        assert await heard(me) == [Exit(ref.pid, Shutdown("reason"))]
        await is_gone(ref)


@pytest.mark.otp("gen_statem_SUITE", "state_timeout")
async def test_a_change_of_state_cancels_its_timeout_and_zero_timeouts_keep_their_order() -> None:
    def begin(machine: Mapped, event: Event) -> Any:
        assert isinstance(event, AskEvent)
        seconds = event.request
        machine.data = (seconds, event.caller)
        send(machine.pid, "to self")
        timers = (After(seconds, EventTimeout(1)), After(seconds, StateTimeout(1)))
        return Next("state1", *timers, NextEvent(Internal(1)))  # which comes before what comes from outside

    def state1(_: Mapped, event: Event) -> Any:
        assert event == Internal(1)
        return Next("state2", After(0, EventTimeout(2)), After(0, StateTimeout(2)), NextEvent(Internal(2)))

    def state2(machine: Mapped, event: Event) -> Any:
        seconds, caller = machine.data
        match event:
            case Internal(2):  # a state timeout of 0 comes after it, and cancels this:
                return Keep(After(0, EventTimeout(3)))
            case StateTimeout(2):
                return Keep(After(0, EventTimeout(4)), After(0, StateTimeout(5)))
            case EventTimeout(4):  # the two come in order; the other one is started anew
                return Keep(After(0, StateTimeout(6)), After(0, EventTimeout(7)))
            case StateTimeout(6):
                return Next("state3", Reply(caller, "ok"), After(seconds, StateTimeout(8)))
            case _:
                raise AssertionError(event)

    def state3(machine: Mapped, event: Event) -> Any:
        match event:
            case Info("to self"):
                machine.data = None
                return None
            case AskEvent("check", caller):
                machine.data = caller
                return None
            case StateTimeout(8):
                return StopAndReply(Shutdown(), Reply(machine.data, "ok"))
            case _:
                raise AssertionError(event)

    functions = {"start": begin, "state1": state1, "state2": state2, "state3": state3}
    clock = asyncio.get_running_loop()
    async with inbox() as me:
        ref = await start_link(Mapped, Next("start"), functions)
        begun = clock.time()
        assert await ref.ask(0.5) == "ok"
        assert clock.time() == begun
        assert await ref.ask("check") == "ok"
        assert clock.time() == begun + 0.5
        assert await heard(me) == [Exit(ref.pid, Shutdown())]


@pytest.mark.otp("gen_statem_SUITE", "timeout_cancel_and_update")
async def test_a_timeout_is_cancelled_or_brings_something_else_also_when_it_has_run_out_unseen() -> None:
    def begin(machine: Mapped, event: Event) -> Any:
        assert isinstance(event, AskEvent)
        machine.data = event.caller
        send(machine.pid, "to self")
        return Next("state1", After(0.017, StateTimeout(1)), NextEvent(Internal(1)))

    def state1(_: Mapped, event: Event) -> Any:
        match event:
            case Internal(1):
                return Keep(Cancel(StateTimeout()), After(0.017, GenericTimeout("a", 1)))
            case Info("to self"):
                return Keep(UpdateTimeout(GenericTimeout("a", "a")))
            case GenericTimeout("a", "a"):
                return Next("state2", After(0.017, StateTimeout(2)), NextEvent(Internal(2)))
            case _:
                raise AssertionError(event)

    async def late(_: Mapped) -> Any:
        await asyncio.sleep(0.05)  # now the state timeout has run out
        return Keep(UpdateTimeout(StateTimeout("b")), After(0.017, EventTimeout(2)))

    def state2(machine: Mapped, event: Event) -> Any:
        match event:
            case Internal(2):
                return late(machine)
            case StateTimeout("b"):
                return Next("state3", Reply(machine.data, "ok"), After(17, EventTimeout(17)))
            case _:
                raise AssertionError(event)

    def state3(_: Mapped, event: Event) -> Any:
        assert isinstance(event, AskEvent)
        return StopAndReply(Shutdown(), Reply(event.caller, "ok"))

    functions = {"start": begin, "state1": state1, "state2": state2, "state3": state3}
    async with inbox() as me:
        ref = await start_link(Mapped, Next("start"), functions)
        assert await ref.ask("test") == "ok"
        fields = await get_state(ref)
        assert fields["state"] == "state3"
        assert await ref.ask("stop") == "ok"
        assert await heard(me) == [Exit(ref.pid, Shutdown())]


@pytest.mark.otp("gen_statem_SUITE", "event_types")
async def test_every_kind_of_event_can_be_put_there() -> None:
    def begin(_: Mapped, event: Event) -> Any:
        assert event == Internal(0)
        return Next("start2")

    def start2(_: Mapped, event: Event) -> Any:
        assert isinstance(event, AskEvent)
        inserted = (
            *(Internal(1), StateTimeout(2), EventTimeout(3), Info(4), TellEvent(5), Cast(Mapped.init, (), {})),
            *(GenericTimeout(6, 6), Call(Mapped.init, (), {}, event.caller), event),
        )
        return Next(0, *(NextEvent(each) for each in inserted))

    def state(_: Mapped, event: Event) -> Any:
        order.append(type(event).__name__)
        if isinstance(event, AskEvent):
            return StopAndReply(Shutdown(), Reply(event.caller, order))
        return Next(len(order))

    order: list[str] = []
    functions: Any = {"start1": begin, "start2": start2, **dict.fromkeys(range(9), state)}
    async with inbox() as me:
        ref = await start_link(Mapped, Next("start1", NextEvent(Internal(0))), functions)
        kinds = [
            "Internal",
            "StateTimeout",
            "EventTimeout",
            "Info",
            "TellEvent",
            "Cast",
            "GenericTimeout",
            "Call",
            "AskEvent",
        ]
        assert await ref.ask("stop") == kinds
        assert await heard(me) == [Exit(ref.pid, Shutdown())]
        await is_gone(ref)


@pytest.mark.otp("gen_statem_SUITE", "generic_timers")
async def test_timers_with_names_run_through_changes_of_state() -> None:
    def begin(_: Mapped, event: Event) -> Any:
        assert isinstance(event, AskEvent)
        timers = (After(1.5, GenericTimeout("a", 1)), After(1.5, StateTimeout(1)), After(1, GenericTimeout("b", 1)))
        return Next("state1", *timers, NextEvent(event))

    def state1(machine: Mapped, event: Event) -> Any:
        return Next(
            "state2",
            At(machine.now + 0.5, GenericTimeout("c", 2)),
            After(0, GenericTimeout("d", 2)),
            After(0, EventTimeout(2)),
            After(None, GenericTimeout("b", 2)),
            After(1, GenericTimeout("a", event)),
        )

    def expects(expected: Event, following: str) -> Any:
        def function(_: Mapped, event: Event) -> Any:
            assert event == expected
            return Next(following)

        return function

    def state4(_: Mapped, event: Event) -> Any:
        assert isinstance(event, GenericTimeout)
        assert event.name == "a"
        return StopAndReply(Shutdown(), Reply(event.content.caller, "stopped"))

    functions = {
        "start": begin,
        "state1": state1,
        "state2": expects(GenericTimeout("d", 2), "state3"),
        "state3": expects(GenericTimeout("c", 2), "state4"),
        "state4": state4,
    }
    clock = asyncio.get_running_loop()
    async with inbox() as me:
        ref = await start_link(Mapped, Next("start"), functions)
        begun = clock.time()
        assert await ref.ask("stop") == "stopped"
        assert clock.time() == begun + 1
        assert await heard(me) == [Exit(ref.pid, Shutdown())]
        await is_gone(ref)


async def test_a_machine_that_does_nothing_waits_for_nothing() -> None:
    def nothing(_machine: Mapped, _event: Event) -> None:
        return None

    ref = await start(Mapped, Next("start"), {"start": nothing})
    ref.send("x")
    await asyncio.sleep(1_000_000)
    assert (await get_state(ref))["state"] == "start"
