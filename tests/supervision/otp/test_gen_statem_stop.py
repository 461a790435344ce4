"""Exits of a state machine: stopped by others or by itself, in order and not, and wrong results."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    NO_PROCESS,
    NORMAL,
    BadReturn,
    CallTimeout,
    Crash,
    Down,
    Exit,
    Node,
    NotRegistered,
    On,
    Options,
    ProcessExited,
    Ref,
    Registry,
    Requests,
    Shutdown,
    ask_later,
    inbox,
    is_alive,
    start,
    start_link,
    start_monitor,
    stop,
    via,
)
from greenroom.supervision.statem import (
    After,
    AskEvent,
    Event,
    GenericTimeout,
    GenStatem,
    Keep,
    Next,
    Reply,
    StopAndReply,
    state,
)

from .machines import STYLES, Board, Line, Mapped, Phone, is_gone, works, works_in_calls
from .servers import Crashed, Stopped, crash_reports, raised_in

if TYPE_CHECKING:
    from greenroom.supervision import ExitReason

styles = pytest.mark.parametrize("style", STYLES)


@pytest.mark.otp("gen_statem_SUITE", "stop1")
@styles
async def test_a_stopped_machine_is_gone_when_stop_returns(style: type[Any]) -> None:
    ref = await start(style)
    await stop(ref)
    assert not is_alive(ref)
    with pytest.raises(ProcessExited) as exited:
        await stop(ref)
    assert exited.value.reason == NO_PROCESS


@pytest.mark.otp("gen_statem_SUITE", "stop2")
@styles
async def test_a_requested_abnormal_reason_is_no_error_for_the_caller_of_stop(style: type[Any]) -> None:
    reason = Crash(Stopped())
    async with inbox() as me:
        ref, watch = await start_monitor(style)
        await stop(ref, reason, None)
        assert not is_alive(ref)
        assert await me.receive() == Down(watch, ref.pid, reason)


@pytest.mark.otp("gen_statem_SUITE", "stop3")
@styles
async def test_a_time_that_is_none_is_refused_before_anything_happens(style: type[Any]) -> None:
    ref: Ref[Phone] = await start(style)
    invalid: Any = "invalid"
    with pytest.raises(ValueError, match="seconds"):
        await stop(ref, NORMAL, invalid)
    assert await ref.call(Phone.alive) == "yes"
    await stop(ref)
    assert not is_alive(ref)


@pytest.mark.otp("gen_statem_SUITE", "stop4")
@pytest.mark.otp("gen_statem_SUITE", "stop5")
@pytest.mark.otp("gen_statem_SUITE", "stop6")
@pytest.mark.otp("gen_statem_SUITE", "stop7")
@pytest.mark.parametrize("address", ["name", "name and node", "registry"])
@styles
async def test_a_machine_is_stopped_by_its_name(address: str, style: type[Any], node: Node) -> None:
    name: Any = via(await start(Registry), "to_stop") if address == "registry" else "to_stop"
    ref = await Options(name=name).start(style)
    who = On("to_stop", node.name) if address == "name and node" else name
    await stop(who)
    assert not is_alive(ref)
    with pytest.raises(NotRegistered):
        await stop(who)


@pytest.mark.otp("gen_statem_SUITE", "abnormal1")
@pytest.mark.otp("gen_statem_SUITE", "abnormal1clean")
@pytest.mark.otp("gen_statem_SUITE", "abnormal1dirty")
@styles
async def test_a_call_takes_as_long_as_it_may_and_its_late_answer_is_never_seen(style: type[Any]) -> None:
    async with inbox() as me:
        await Options(name="abnormal").start(style)
        ref: Ref[Phone] = Ref("abnormal")
        assert await ref.within(2).call(Phone.delayed_answer, 0.1) == "delayed"
        with pytest.raises(CallTimeout):
            await ref.within(0.1).call(Phone.delayed_answer, 2.0)
        await stop(ref)
        await asyncio.sleep(3)
        assert me.pending() == ()


@pytest.mark.otp("gen_statem_SUITE", "abnormal2")
@pytest.mark.otp("gen_statem_SUITE", "abnormal3")
@pytest.mark.otp("gen_statem_SUITE", "abnormal4")
@pytest.mark.otp("gen_statem_SUITE", "error_format_status")
@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("badreturn", "a state function returned 'badreturn', after call 'badreturn'"),
        (lambda _: Keep("badaction"), "'badaction' is no action, after call"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        (lambda _: Keep(("badtimeout", 4711, "ouch")), r"\('badtimeout', 4711, 'ouch'\) is no action, after call"),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ],
)
@styles
async def test_a_bad_return_is_the_machines_crash_and_names_what_is_bad(
    result: Any, said: str, style: type[Any], node: Node
) -> None:
    reports = crash_reports(node)
    async with inbox() as me:
        ref = await start_link(style, None, "some data")
        with pytest.raises(ProcessExited) as exited:
            await ref.ask(result)
        reason = exited.value.reason
        assert isinstance(reason, Crash)
        assert isinstance(reason.error, BadReturn)
        assert exited.match(said)
        assert await me.receive() == Exit(ref.pid, reason)
        assert me.pending() == ()
    (report,) = reports
    assert report.reason == reason
    assert report.state is not None
    assert report.state.startswith("state=<Line.IDLE: 'idle'>, ")
    assert "data='some data'" in report.state


@pytest.mark.otp("gen_statem_SUITE", "abnormal4")
async def test_a_bad_time_is_refused_where_it_is_made() -> None:
    def bad(_: object) -> Keep:
        return Keep(After(-1, GenericTimeout("ouch")))

    ref = await start(Board)
    with pytest.raises(ProcessExited) as exited:
        await ref.ask(bad)
    assert isinstance(exited.value.__cause__, ValueError)


@pytest.mark.otp("gen_statem_SUITE", "shutdown")
@styles
async def test_a_shutdown_with_a_detail_is_seen_as_that(style: type[Any], node: Node) -> None:
    reports = crash_reports(node)
    async with inbox() as me:
        ref = await start_link(style)
        await works(ref, me)
        await works_in_calls(ref, me)
        assert await ref.call(Phone.stop, Shutdown("reason")) == "stopped"
        assert await me.receive() == Exit(ref.pid, Shutdown("reason"))
        await is_gone(ref)
        assert me.pending() == ()
    assert reports == []


@pytest.mark.otp("gen_statem_SUITE", "stop_and_reply")
async def test_answers_are_given_in_order_before_the_end() -> None:
    def begin(machine: Mapped, event: Event) -> Any:
        match event:
            case AskEvent("first", caller):
                machine.data = caller
                return Next("wait")
            case _:
                return None

    def wait(machine: Mapped, event: Event) -> Any:
        match event:
            case AskEvent("second", caller):
                return StopAndReply(Crash(Stopped()), Reply(machine.data, "reply1"), Reply(caller, "reply2"))
            case _:
                return None

    async with inbox() as me:
        ref = await start_link(Mapped, Next("start"), {"start": begin, "wait": wait})
        asked = Requests()
        asked.add(ask_later(ref, "first"), 1)
        asked.add(ask_later(ref, "second"), 2)
        answers: list[Any] = []
        while (answered := await asked.next()) is not None:
            answers.append((answered.label, await answered.wait()))
        assert answers == [(1, "reply1"), (2, "reply2")]
        ended = await me.receive()
        assert isinstance(ended.reason.error, Stopped)
        with pytest.raises(ProcessExited):
            await ref.ask("hej")
        assert me.pending() == ()


class Bare(GenStatem[Line]):
    """Has no callback that it need not have."""

    initial = Line.IDLE

    @state(*Line)
    def everywhere(self, event: Event) -> Any:
        return None


@pytest.mark.otp("gen_statem_SUITE", "undef_terminate1")
@pytest.mark.otp("gen_statem_SUITE", "undef_terminate2")
@pytest.mark.parametrize("reason", [NORMAL, Crash(Stopped())])
async def test_a_machine_without_terminate_stops_with_the_reason_that_was_asked_for(reason: ExitReason) -> None:
    async with inbox() as me:
        ref, watch = await start_monitor(Bare)
        await stop(ref, reason, None)
        assert await me.receive() == Down(watch, ref.pid, reason)


@pytest.mark.otp("gen_statem_SUITE", "undef_in_terminate")
async def test_an_error_in_terminate_is_what_stop_raises() -> None:
    class Broken(Bare):
        def terminate(self, reason: ExitReason) -> None:
            self.there_is_no_such_method()  # type: ignore[attr-defined]

    async with inbox() as me:
        ref, watch = await start_monitor(Broken)
        with pytest.raises(ProcessExited) as exited:
            await stop(ref)
        assert isinstance(exited.value.__cause__, AttributeError)
        assert await me.receive() == Down(watch, ref.pid, exited.value.reason)


@pytest.mark.otp("gen_statem_SUITE", "terminate_crash_format")
@styles
async def test_a_crash_in_terminate_replaces_the_reason_and_the_caller_has_its_answer(
    style: type[Any], node: Node
) -> None:
    reports = crash_reports(node)
    crash = Crashed("terminate")
    async with inbox() as me:
        ref = await start_link(style, None, crash)
        assert await ref.call(Phone.stop) == "stopped"
        assert await me.receive(timeout=5) == Exit(ref.pid, Crash(crash))
    (report,) = reports
    assert (report.reason, report.during) == (Crash(crash), "terminate")
    assert report.last_message == "call stop(None)"
    assert "state=<Line.IDLE: 'idle'>" in str(report.state)
    assert "data=Crashed('terminate')" in str(report.state)
    assert raised_in(crash) == "terminate"
