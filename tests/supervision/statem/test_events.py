"""Events of a machine, and the replies to their senders."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

import greenroom.supervision.statem
from greenroom.supervision import (
    SHUTDOWN,
    CallTimeout,
    Down,
    Exit,
    Node,
    ProcessExited,
    Shutdown,
    StartFailed,
    StartIgnored,
    Unexpected,
    inbox,
    is_alive,
    kill,
    link,
    monitor,
    request,
    send_after,
    start,
    start_link,
    stop,
)
from greenroom.supervision.introspect import get_state, replace_state
from greenroom.supervision.statem import (
    IGNORE,
    POSTPONE,
    After,
    AskEvent,
    At,
    Call,
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
    Reject,
    RepeatState,
    StateTimeout,
    Stop,
    TellEvent,
)

from .door_machines import Door, DoorState, EnteringScript, Script, do

loose: Any = greenroom.supervision.statem  # for what a type checker refuses


class Other(Door):
    """A door that is never started."""

    def paint(self) -> None:
        """No event."""


async def test_a_door_opens_to_its_code_and_answers_the_waiting_push() -> None:
    ref = await start(Door, "12")
    pushing = request(ref, Door.push)
    assert not await ref.call(Door.unlock, "13")
    assert not pushing.done
    assert await ref.call(Door.unlock, "12")
    assert await pushing.wait() == 1
    assert (await get_state(ref))["state"] is DoorState.OPEN
    assert await ref.call(Door.push) == 2


@pytest.mark.parametrize(
    "arguments",
    [(("12",), {}), ((), {"code": "12"}), (("12",), {"quietly": True}), ((), {"quietly": False, "code": "12"})],
)
async def test_a_pattern_fits_however_the_call_was_written(arguments: Any) -> None:
    args, kwargs = arguments
    ref = await start(Door, "12")
    assert await ref.call(Door.unlock, *args, **kwargs)


async def test_a_call_that_names_no_event_or_does_not_fit_is_its_callers_mistake(node: Node) -> None:
    reports: list[Any] = []
    node.reports.subscribe(reports.append)
    ref: Any = await start(Door, "12")
    with pytest.raises(TypeError, match=r"Other.paint is no event of Door: mark the method with @event"):
        await ref.call(Other.paint)
    with pytest.raises(TypeError, match=r"Door.locked is no event of Door"):
        await ref.call(Door.locked, StateTimeout())
    with pytest.raises(TypeError, match=r"\[\] is no event of Door"):
        await ref.call([])
    with pytest.raises(TypeError, match=r"Door.unlock: missing a required argument: 'code'"):
        await ref.call(Door.unlock)
    with pytest.raises(TypeError, match=r"Door.unlock: too many positional arguments"):
        await ref.call(Door.unlock, "1", "2")
    ref.cast(Door.unlock, kode="1")
    ref.cast(Other.paint)
    assert await ref.call(Door.unlock, "12")
    assert [type(report) for report in reports] == [Unexpected, Unexpected]
    assert "missing a required argument: 'code'" in reports[0].message
    assert "is no event of Door" in reports[1].message


async def test_an_inherited_event_is_the_same_event() -> None:
    ref = await start(Other, "12")
    assert await ref.call(Other.unlock, "12")
    assert await ref.call(Door.push) == 1


async def test_an_event_that_no_state_expects_is_refused_or_reported(node: Node) -> None:
    reports: list[Any] = []
    node.reports.subscribe(reports.append)
    ref = await start(Door, "12")
    with pytest.raises(TypeError, match=r"Door does not expect call 'x' in DoorState.LOCKED"):
        await ref.ask("x")
    with pytest.raises(TypeError, match=r"Door does not expect call close\(\) in DoorState.LOCKED"):
        await ref.call(Door.close)
    ref.tell("y")
    ref.send("z")
    ref.cast(Door.close)
    assert await ref.call(Door.unlock, "12")
    assert [report.message for report in reports] == [
        "cast 'y' in DoorState.LOCKED",
        "info 'z' in DoorState.LOCKED",
        "cast close() in DoorState.LOCKED",
    ]


async def test_a_state_function_may_wait(node: Node) -> None:
    ref = await start(Door, "12")
    await ref.call(Door.unlock, "12")
    await ref.call(Door.push)
    with pytest.raises(PermissionError, match="not you"):
        await ref.ask("who")
    await ref.call(Door.close)
    ref.cast(Door.push)
    ref.tell("burn")
    with pytest.raises(ProcessExited) as caught:
        await ref.call(Door.push)
    assert caught.value.reason == Shutdown("fire")


async def test_a_machine_that_waits_takes_no_other_event() -> None:
    async def slowly(script: Script) -> Any:
        await asyncio.sleep(3)
        return Next(DoorState.OPEN, After(0, StateTimeout("now")))

    ref = await start(Script)
    ref.send(slowly)
    ref.send("later")
    send_after(1, ref, "soon")
    await asyncio.sleep(2)
    assert (await get_state(ref))["heard"] == [StateTimeout("now"), Info("later"), Info("soon")]


async def test_calls_that_are_postponed_hear_of_the_end() -> None:
    ref = await start(Door, "12")
    pushing = request(ref, Door.push)
    await stop(ref, Shutdown("closing"))
    with pytest.raises(ProcessExited, match="shutdown"):
        await pushing.wait()


async def test_a_late_answer_is_dropped() -> None:
    ref = await start(Door, "12")
    with pytest.raises(CallTimeout):
        await ref.within(1).call(Door.push)
    await ref.call(Door.unlock, "12")
    assert await ref.call(Door.push) == 2


async def test_reject_answers_and_is_no_event_that_changes_anything() -> None:
    def refuse(script: Script, _caller: Any) -> Any:
        raise Reject(LookupError("no"))

    ref = await start(Script)
    do(ref, lambda _: Keep(After(5, EventTimeout()), After(5, StateTimeout("still"))))
    with pytest.raises(LookupError, match="no"):
        await ref.ask(refuse)
    await asyncio.sleep(6)
    assert (await get_state(ref))["heard"] == [StateTimeout("still")]


class Indifferent(Script):
    """Handles messages in `handle_info`, independent of its state."""

    traps_exit = True

    def handle_info(self, message: Any) -> Any:
        if callable(message):
            return message(self)
        self.heard.append(TellEvent(message))
        return None


async def test_messages_that_mean_the_same_in_all_states_are_no_events() -> None:
    ref = await start(Indifferent)
    do(ref, lambda _: Next(DoorState.OPEN, After(3, EventTimeout("cancelled")), After(5, StateTimeout("still"))))
    ref.send("open")
    await asyncio.sleep(1)
    assert await get_state(ref) == {"hooks": {}, "heard": [TellEvent("open")], "state": DoorState.OPEN}
    await asyncio.sleep(6)
    do(ref, lambda _: Keep(NextEvent(Internal("next")), After(0, GenericTimeout("soon"))))
    other = await start(Script)
    await link_to(ref, other)
    kill(other.pid)
    await asyncio.sleep(1)
    heard = (await get_state(ref))["heard"]
    assert heard[:4] == [TellEvent("open"), StateTimeout("still"), Internal("next"), GenericTimeout("soon")]
    assert [type(each.request) for each in heard[4:]] == [Exit]


async def test_such_a_message_can_be_postponed_awaited_and_be_the_end(node: Node) -> None:
    reports: list[Any] = []
    node.reports.subscribe(reports.append)

    async def slowly(script: Script) -> Any:
        await asyncio.sleep(1)
        return Next(DoorState.OPEN)

    ref = await start(Indifferent)
    postponed = False

    def later(script: Script) -> Any:
        nonlocal postponed
        if postponed:
            script.heard.append(TellEvent("retried"))
            return None
        postponed = True
        return Keep(POSTPONE)

    do(ref, later)
    do(ref, slowly)
    await asyncio.sleep(2)
    assert (await get_state(ref))["heard"] == [TellEvent("retried")]
    do(ref, lambda script: script.missing)
    await asyncio.sleep(1)
    assert not is_alive(ref.pid)
    assert [type(each).__name__ for each in reports] == ["CrashReport"]
    assert "missing" in str(reports[0].reason)
    stopped = await start(Indifferent)
    do(stopped, lambda _: Stop(SHUTDOWN))
    await asyncio.sleep(1)
    assert not is_alive(stopped.pid)
    assert len(reports) == 1


async def link_to(ref: Any, other: Any) -> None:
    """Have the one linked to the other."""

    def linked(_: Script) -> None:
        link(other.pid)

    do(ref, linked)
    await asyncio.sleep(0)


class Trapping(Script):
    """Traps exits."""

    traps_exit = True


async def test_signals_of_others_are_events() -> None:
    ref = await start(Trapping)
    child = await start(Script)
    do(ref, lambda _: [monitor(child), None][1])
    do(ref, lambda _: link(child))
    await asyncio.sleep(0)
    kill(child)
    await asyncio.sleep(0)
    heard = (await get_state(ref))["heard"]
    assert [(type(each.message), each.message.pid) for each in heard] == [(Exit, child.pid), (Down, child.pid)]


async def test_the_exit_of_its_parent_is_the_end_of_a_machine() -> None:
    told: list[Any] = []
    async with inbox() as me:
        ref = await start_link(Trapping, terminate=lambda _, reason: told.append(reason))
        assert me.pid
    assert told == [SHUTDOWN]
    assert not is_alive(ref)


@pytest.mark.parametrize(("returned", "error"), [(IGNORE, StartIgnored), (Stop(Shutdown("no")), StartFailed)])
async def test_a_machine_may_choose_not_to_run(returned: Any, error: type[Exception]) -> None:
    class Unwilling(Script):
        def init(self) -> Any:
            return returned

    with pytest.raises(error):
        await start(Unwilling)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "init returned None, and Unwilling has no `initial` to begin in"),
        (Keep(), r"init returned Keep\(actions=\(\)\)"),
        (DoorState.OPEN, "init returned <DoorState.OPEN"),
        (Next("open"), "'open' is no state of DoorState"),
        (loose.Next(DoorState.OPEN, 5), "5 is no action"),
    ],
)
async def test_a_bad_beginning_is_named(returned: Any, said: str) -> None:
    class Unwilling(Script):
        initial: ClassVar[Any] = None

        def init(self) -> Any:
            return returned

    with pytest.raises(StartFailed, match=said):
        await start(Unwilling)


async def test_init_may_wait_and_begin_with_actions() -> None:
    class Slow(EnteringScript):
        async def init(self) -> Any:
            await asyncio.sleep(1)
            return Next(DoorState.LOCKED, NextEvent(Internal(1)), POSTPONE, After(0, StateTimeout(2)))

    ref = await start(Slow)
    ref.send(3)
    heard = [Enter(DoorState.LOCKED), Internal(1), StateTimeout(2), Info(3)]
    assert (await get_state(ref))["heard"] == heard


async def test_the_state_is_one_of_the_fields_that_are_looked_at_and_replaced() -> None:
    ref = await start(Door, "12")
    fields: dict[str, Any] = {"code": "12", "seconds": 5.0, "pushed": 0}
    assert await get_state(ref) == {"state": DoorState.LOCKED, **fields}
    await replace_state(ref, lambda fields: fields | {"state": DoorState.CLOSED, "pushed": 4})
    assert await ref.call(Door.push) == 5


async def test_repeat_enters_again_and_retries_nothing() -> None:
    ref = await start(EnteringScript)
    do(ref, lambda script: None if len(script.heard) > 3 else Keep(POSTPONE))
    do(ref, lambda _: RepeatState())
    do(ref, lambda _: Next(DoorState.LOCKED))
    ref.send("x")
    do(ref, lambda _: Next(DoorState.OPEN))
    locked = Enter(DoorState.LOCKED)
    assert (await get_state(ref))["heard"] == [locked, locked, Info("x"), locked]


def test_events_are_values() -> None:
    assert Cast(Door.push, (), {}) == Cast(Door.push, (), {})
    assert len({StateTimeout(1), StateTimeout(1), EventTimeout(1), GenericTimeout("a"), TellEvent(1), Info(1)}) == 5
    with pytest.raises(AttributeError):
        StateTimeout().content = 1  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    assert Next[DoorState](DoorState.OPEN, POSTPONE) == Next(DoorState.OPEN, POSTPONE)
    assert len({Keep(), RepeatState(), Keep(POSTPONE)}) == 3


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: loose.After(-1, StateTimeout()), "give 0 or more seconds"),
        (lambda: After(float("nan"), StateTimeout()), "give 0 or more seconds"),
        (lambda: At(float("nan"), StateTimeout()), "give a moment on the event loop's clock, not nan"),
        (lambda: loose.After(1, Internal()), r"a timer brings one of StateTimeout\(…\), .* not Internal"),
        (lambda: loose.Cancel(StateTimeout), r"a timer brings one of .*, not <class .*StateTimeout'>"),
        (lambda: loose.UpdateTimeout("a"), "a timer brings one of .*, not 'a'"),
        (lambda: loose.NextEvent(Enter(1)), r"the next event is one of Call\(…\), .* not Enter"),
        (lambda: loose.Reply("me", 1), "the caller to answer is the `caller` of a Call or an AskEvent, not 'me'"),
        (lambda: loose.Fail(None, ValueError()), "the caller to answer is"),
    ],
)
def test_bad_actions_are_refused_where_they_are_made(make: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        make()


def test_every_event_can_be_matched() -> None:
    def kind(event: Event) -> str:
        match event:
            case Call() | AskEvent():
                return "call"
            case Cast() | TellEvent():
                return "cast"
            case Info() | Internal():
                return "message"
            case StateTimeout() | EventTimeout() | GenericTimeout():
                return "timeout"
            case Enter():
                return "enter"

    assert kind(Info(1)) == "message"
