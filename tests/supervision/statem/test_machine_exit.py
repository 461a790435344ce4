"""Exits of machines: wrong results, their reports, and the order of notifications."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import greenroom.supervision.statem
from greenroom.supervision import (
    KILLED,
    NORMAL,
    ActorError,
    Crash,
    CrashReport,
    ExitReason,
    Node,
    ProcessExited,
    Quit,
    Ref,
    Shutdown,
    Supervisor,
    acknowledge,
    ask_later,
    become,
    child,
    inbox,
    is_alive,
    kill,
    monitor,
    receive,
    send,
    start,
    start_link,
    start_routine,
    stop,
    wait_down,
)
from greenroom.supervision import Reply as ServerReply
from greenroom.supervision import Stop as ServerStop
from greenroom.supervision.introspect import get_state
from greenroom.supervision.statem import (
    POSTPONE,
    After,
    Enter,
    GenericTimeout,
    Info,
    Internal,
    Keep,
    Next,
    NextEvent,
    Postpone,
    Reject,
    Reply,
    StateTimeout,
    StopAndReply,
)

from .door_machines import Door, DoorState, EnteringScript, Script, ask, do

if TYPE_CHECKING:
    from collections.abc import Callable

loose: Any = greenroom.supervision.statem  # for what a type checker refuses


async def crash_of(ref: Any, function: Callable[..., Any]) -> str:
    """The crash of a machine whose state function returns the result of `function`."""
    with pytest.raises(ProcessExited) as caught:
        await ref.ask(function)
    reason = caught.value.reason
    assert isinstance(reason, Crash)
    return f"{type(reason.error).__name__}: {reason.error}"


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (7, "BadReturn: a state function returned 7, after call <function"),
        ("open", "BadReturn: a state function returned 'open'"),
        (DoorState.OPEN, "BadReturn: a state function returned <DoorState.OPEN"),
        (ServerReply(1), "BadReturn: a state function returned Reply(value=1"),
        (ServerStop(NORMAL, 1), "BadReturn: a state function returned Stop("),
        (Keep, "BadReturn: a state function returned <class"),
        (Next("open"), "BadReturn: 'open' is no state of DoorState"),
        (loose.Keep("later"), "BadReturn: 'later' is no action"),
        (loose.Keep(Postpone), "BadReturn: <class"),
        (loose.Keep(StateTimeout()), "BadReturn: StateTimeout(content=None) is no action"),
        (
            loose.StopAndReply(NORMAL, POSTPONE),
            "BadReturn: StopAndReply takes Reply(…) and Fail(…), not Postpone(on=True)",
        ),
    ],
)
async def test_a_bad_return_is_named_with_what_it_came_of(result: Any, said: str) -> None:
    ref = await start(Script)
    assert (await crash_of(ref, lambda *_: result)).startswith(said)


async def test_actions_before_a_bad_one_are_done() -> None:
    ref = await start(Script)
    answer = await ask(ref, lambda _, caller: loose.Keep(Reply(caller, 5), 7))
    assert answer == 5
    assert not is_alive(ref)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (Keep(POSTPONE), "an enter call cannot do Postpone(on=True), after continue Enter("),
        (Keep(NextEvent(Internal())), "an enter call cannot do NextEvent("),
        (Next(DoorState.LOCKED), "an enter call cannot change the state, to DoorState.LOCKED"),
    ],
)
async def test_an_enter_call_may_neither_queue_nor_leave(result: Any, said: str) -> None:
    ref = await start(EnteringScript, Enter=lambda script, _: result if script.state is DoorState.OPEN else None)
    assert said in await crash_of(ref, lambda *_: Next(DoorState.OPEN))


async def test_an_enter_call_may_set_timers_answer_and_name_its_own_state() -> None:
    def enter(script: Script, event: Enter) -> Any:
        script.heard.append(event)
        return Next(script.state, Postpone(on=False), After(0, StateTimeout(script.state.name)))

    ref = await start(EnteringScript, Enter=enter)
    do(ref, lambda _: Next(DoorState.OPEN, POSTPONE, After(0, StateTimeout("overridden"))))
    assert (await get_state(ref))["heard"] == [
        Enter(DoorState.LOCKED),
        StateTimeout("LOCKED"),
        Enter(DoorState.LOCKED),
        StateTimeout("OPEN"),
    ]


async def test_a_crash_report_tells_state_queue_postponed_and_timers(node: Node) -> None:
    reports: list[Any] = []
    node.reports.subscribe(reports.append)
    ref = await start(Door, "12")
    ref.cast(Door.push)
    script = await start(Script)
    do(script, lambda _: Keep(POSTPONE))
    do(script, lambda _: Keep(NextEvent(Info(broken)), NextEvent(Internal(1)), After(5, GenericTimeout("a"))))

    def broken(_: Script) -> None:
        raise ValueError("on purpose")

    assert await wait_down(script) is not None
    [report] = reports
    assert isinstance(report, CrashReport)
    assert report.during == "handler"
    assert (report.last_message or "").startswith("info <function")
    state = report.state or ""
    assert state.startswith(
        "state=<DoorState.LOCKED: 1>, queued=(Internal(content=1),), postponed=(Info(message=<function"
    )
    assert "timers=(GenericTimeout(name='a', content=None),)" in state
    assert "heard=[]" in state


async def test_a_report_shows_nothing_that_is_named_like_a_secret(node: Node) -> None:
    class Safe(Script):
        def init(self) -> Any:
            self.password = "hush"
            raise ValueError("on purpose")

    reports: list[Any] = []
    node.reports.subscribe(reports.append)
    with pytest.raises(ActorError):
        await start(Safe)
    assert "hush" not in reports[0].state


async def test_terminate_comes_before_what_is_queued_and_sees_the_state() -> None:
    told: list[Any] = []

    def end(_: Script) -> ServerStop:
        return ServerStop(Shutdown("enough"))

    ref = await start(Script, terminate=lambda script, reason: told.append((script.state, reason, script.heard)))
    do(ref, lambda _: Next(DoorState.OPEN, NextEvent(Info(end)), NextEvent(Info(1))))
    assert await wait_down(ref) == Shutdown("enough")
    assert told == [(DoorState.OPEN, Shutdown("enough"), [])]


async def test_answers_come_before_terminate() -> None:
    order: list[str] = []

    async def asking(ref: Any) -> None:
        assert await ask(ref, lambda _, caller: StopAndReply(NORMAL, Reply(caller, "bye"))) == "bye"
        order.append("answer")

    class Slow(Script):
        async def terminate(self, reason: ExitReason) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
            await asyncio.sleep(1)
            order.append("terminate")

    ref = await start(Slow)
    await asking(ref)
    assert await wait_down(ref) == NORMAL
    assert order == ["answer", "terminate"]


async def test_quit_ends_with_its_reason_from_anywhere() -> None:
    def leave(*_: Any) -> Any:
        raise Quit(Shutdown("left"))

    ref = await start(Script)
    with pytest.raises(ProcessExited) as caught:
        await ref.ask(leave)
    assert caught.value.reason == Shutdown("left")


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
async def test_whatever_a_state_function_raises_is_its_machines_crash(error: BaseException) -> None:
    def crash(*_: Any) -> Any:
        raise error

    ref = await start(Script)
    with pytest.raises(ProcessExited) as caught:
        await ref.ask(crash)
    assert caught.value.reason == Crash(error)


async def test_reject_without_a_caller_is_a_crash() -> None:
    def refuse(*_: Any) -> Any:
        raise Reject(ValueError("never delivered"))

    ref = await start(Script)
    ref.send(refuse)
    assert isinstance(await wait_down(ref), Crash)


async def test_a_machine_that_waits_can_be_killed() -> None:
    async def wait(*_: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    ref = await start(Script)
    waiting, queued = ask_later(ref, wait), ask_later(ref, "x")
    await asyncio.sleep(0)
    kill(ref)
    assert await wait_down(ref) == KILLED
    for each in (waiting, queued):
        with pytest.raises(ProcessExited, match="killed"):
            await each.wait()


async def test_a_stop_from_outside_waits_for_what_is_queued() -> None:
    ref = await start(Script)
    do(ref, lambda _: Keep(NextEvent(Info(1)), After(0, StateTimeout(2))))
    heard: list[Any] = []
    do(ref, lambda script: heard.extend(script.heard))
    await stop(ref)
    assert heard == [Info(1), StateTimeout(2)]


async def test_a_process_can_become_a_machine() -> None:
    async def main() -> None:
        acknowledge()
        become(EnteringScript(), first=Next(DoorState.LOCKED, NextEvent(Internal("first"))))

    ref = await start_routine(main)
    send(ref, "x")
    assert (await get_state(ref))["heard"] == [Enter(DoorState.LOCKED), Internal("first"), Info("x")]


async def test_a_process_cannot_become_a_machine_in_no_state() -> None:
    async def main() -> None:
        acknowledge()
        await receive()
        become(Script(), first=Next("nowhere"))

    ref = await start_routine(main)
    ref.send("now")
    assert "'nowhere' is no state of DoorState" in str(await wait_down(ref))


async def test_links_and_monitors_fire() -> None:
    async with inbox() as me:
        ref = await start_link(Script)
        watch = monitor(ref)
        do(ref, lambda _: ServerStop(Shutdown(1)))
        first, second = await me.receive(), await me.receive()
    assert {type(first).__name__, type(second).__name__} == {"Exit", "Down"}
    assert watch in (*first, *second)


async def test_a_supervisor_starts_a_machine_again_where_it_begins() -> None:
    async with inbox():
        await start_link(Supervisor, [child(Door, "12").but(name="door")])
        ref: Ref[Door] = Ref("door")
        assert await ref.call(Door.unlock, "12")
        before = ref.pid
        kill(ref)
        await asyncio.sleep(1)
        assert ref.pid != before
        assert not await ref.call(Door.unlock, "13")
