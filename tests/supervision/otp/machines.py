"""The state machine of the cases of OTP's gen_statem suite, in both styles, and helpers of its tests."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from greenroom.supervision import NORMAL, Caller, CallTimeout, Pid, ProcessExited, Ref, request, send, send_after
from greenroom.supervision.statem import (
    POSTPONE,
    After,
    AskEvent,
    At,
    Call,
    Cast,
    Event,
    EventTimeout,
    GenStatem,
    Info,
    Internal,
    Keep,
    Next,
    NextEvent,
    Reply,
    Stop,
    StopAndReply,
    event,
    state,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.supervision import ExitReason, Inbox

DATA = "data"


class Line(Enum):
    """The states of a phone line."""

    IDLE = "idle"
    TIMEOUT = "timeout"
    TIMEOUT2 = "timeout2"
    WAITING = "waiting for confirmation"
    CONNECTED = "connected"
    NEXT_EVENTS = "next events"


class Phone:
    """What both styles have in common: the data, the beginning, the end and the events.

    `begin` is what `init` returns, raises or sleeps.
    """

    def __init__(self, begin: Any = None, data: Any = DATA) -> None:
        self.begin = begin
        self.data = data

    async def init(self) -> Any:
        match self.begin:
            case BaseException() as error:
                raise error
            case float(seconds):
                await asyncio.sleep(seconds)
                return Next(Line.IDLE)
            case None:
                return Next(Line.IDLE)
            case outcome:
                return outcome

    def terminate(self, reason: ExitReason) -> None:
        if isinstance(self.data, BaseException):
            raise self.data

    @event
    def alive(self, hear: Pid | None = None) -> str:
        """Whether it is alive. A cast names the process that is to hear."""
        raise NotImplementedError

    @event
    def connect(self, hear: Pid | None = None) -> str:
        """Wait for confirmation."""
        raise NotImplementedError

    @event
    def confirm(self) -> str:
        """Be connected."""
        raise NotImplementedError

    @event
    def ping(self, hear: Pid, tag: object) -> None:
        """Answered as soon as it is connected."""

    @event
    def say(self, tag: object, hear: Pid | None = None) -> tuple[str, Any]:
        """Answered with the same."""
        raise NotImplementedError

    @event
    def disconnect(self) -> str:
        """Be idle."""
        raise NotImplementedError

    @event
    def time_out(self, seconds: float) -> str:
        """Answered after some timeouts."""
        raise NotImplementedError

    @event
    def delayed_answer(self, seconds: float) -> str:
        """Answered in a while, in which the machine takes no event."""
        raise NotImplementedError

    @event
    def get(self) -> tuple[Line, Any]:
        """The state and the data."""
        raise NotImplementedError

    @event
    def stop(self, reason: ExitReason | None = None) -> str:
        """End."""
        raise NotImplementedError


class Board(Phone, GenStatem[Line]):
    """With a function for each state."""

    @state(Line.IDLE)
    def when_idle(self, event: Event) -> Any:
        return idle(self, event)

    @state(Line.TIMEOUT, Line.TIMEOUT2)
    def when_timeout(self, event: Event) -> Any:
        return (timeout if self.state is Line.TIMEOUT else timeout2)(self, event)

    @state(Line.WAITING)
    def when_waiting(self, event: Event) -> Any:
        return waiting(self, event)

    @state(Line.CONNECTED)
    def when_connected(self, event: Event) -> Any:
        return connected(self, event)

    @state(Line.NEXT_EVENTS)
    def when_next_events(self, event: Event) -> Any:
        return next_events(self, event)


class OneFunction(Phone, GenStatem[Any]):
    """With one function for all states, which but for the first are pairs and no members of an Enum."""

    async def handle_event(self, state: Any, event: Event) -> Any:
        result = FUNCTIONS[line(self)](self, event)
        if asyncio.iscoroutine(result):
            result = await result
        match result:
            case Next(state=Line() as following):
                return Next(("line", following), *result.actions)
            case _:
                return result


Either: TypeAlias = Board | OneFunction
STYLES: list[type[Any]] = [Board, OneFunction]


def line(phone: Either) -> Line:
    """The state, whatever the style."""
    match phone.state:
        case ("line", Line() as wrapped):
            return wrapped
        case bare:
            assert isinstance(bare, Line)
            return bare


def idle(phone: Either, event: Event) -> Any:
    match event:
        case Cast(Phone.connect, (Pid() as hear,)):
            send(hear, "accept")
            return Next(Line.WAITING, After(None, EventTimeout()))
        case Call(Phone.connect, caller=caller):
            caller.reply("accept")
            return Next(Line.WAITING, After(None, EventTimeout()))
        case Call(Phone.delayed_answer, (seconds,), caller=caller):
            return answer_late(seconds, caller)
        case Call(Phone.time_out, (seconds,), caller=caller):
            phone.data = (caller, seconds)
            return Next(Line.TIMEOUT, At(phone.now + seconds, EventTimeout("idle")))
        case Cast(Phone.say, (("next", *contents), _)):
            phone.data = list(contents)
            return Next(Line.NEXT_EVENTS, *(NextEvent(Internal(each)) for each in contents))
        case AskEvent(result, caller):
            return result(caller) if callable(result) else result
        case _:
            return common(phone, event) or phone.unexpected(event)


async def answer_late(seconds: float, caller: Caller[Any]) -> Keep:
    """Wait, answer, and only then take the next event."""
    await asyncio.sleep(seconds)
    caller.reply("delayed")
    return Keep()


def timeout(phone: Either, event: Event) -> Any:
    match event:
        case EventTimeout("idle"):
            caller, seconds = phone.data
            send_after(seconds, phone.pid, "done")
            phone.data = caller
            return Keep(After(0, EventTimeout(0)))
        case EventTimeout(0):
            return Next(Line.TIMEOUT2, After(0.001, EventTimeout("cancelled by what is retried")), POSTPONE)
        case _:
            return None


def timeout2(phone: Either, event: Event) -> Any:
    match event:
        case EventTimeout(0):
            return None
        case EventTimeout(content):
            return Stop(ValueError(content))
        case Info("done"):
            phone.data.reply("done")
            phone.data = DATA
            return Next(Line.IDLE)
        case _:
            return Keep()


def waiting(phone: Either, event: Event) -> Any:
    match event:
        case Call(Phone.confirm, caller=caller):
            return Next(Line.CONNECTED, Reply(caller, "yes"))
        case Cast(Phone.ping):
            return Keep(POSTPONE)
        case Cast(Phone.confirm):
            return Next(Line.CONNECTED)
        case _:
            return common(phone, event)


def connected(phone: Either, event: Event) -> Any:
    match event:
        case Call(Phone.say, (tag, _), caller=caller):
            return Keep(Reply(caller, ("said", tag)))
        case Cast(Phone.say, (tag, Pid() as hear)):
            send(hear, ("said", tag))
            return Keep()
        case Call(Phone.disconnect, caller=caller):
            return Next(Line.IDLE, Reply(caller, "yes"))
        case Cast(Phone.disconnect):
            return Next(Line.IDLE)
        case Cast(Phone.ping, (hear, tag)):
            send(hear, ("pong", tag))
            return Keep()
        case _:
            return common(phone, event)


def next_events(phone: Either, event: Event) -> Any:
    match event:
        case Internal(content):
            assert phone.data.pop(0) == content
            return Keep()
        case _:
            return common(phone, event)


def common(phone: Either, event: Event) -> Any:
    match event:
        case Call(Phone.get, caller=caller):
            return Keep(Reply(caller, (line(phone), phone.data)))
        case Call(Phone.stop, (reason,), caller=caller):
            return StopAndReply(reason or NORMAL, Reply(caller, "stopped"))
        case Call(Phone.alive, caller=caller):
            return Keep(Reply(caller, "yes"))
        case Cast(Phone.alive, (Pid() as hear,)):
            send(hear, "yes")
            return Keep()
        case _:
            return None


FUNCTIONS: Mapping[Line, Callable[[Any, Event], Any]] = {
    Line.IDLE: idle,
    Line.TIMEOUT: timeout,
    Line.TIMEOUT2: timeout2,
    Line.WAITING: waiting,
    Line.CONNECTED: connected,
    Line.NEXT_EVENTS: next_events,
}


class Mapped(GenStatem[str]):
    """A machine of functions by the names of its states. They get the machine, whose `data` is theirs, and the event."""

    def __init__(
        self, begin: Next[str], functions: Mapping[str, Callable[[Any, Event], Any]], data: Any = None
    ) -> None:
        self.begin = begin
        self.functions = functions
        self.data = data

    def init(self) -> Next[str]:
        return self.begin

    def handle_event(self, state: str, event: Event) -> Any:
        return self.functions[state](self, event)


class Entered(Mapped):
    """The same with enter calls."""

    state_enter = True


# --- what every machine that was started can do


async def in_state(ref: Ref[Phone], expected: Line) -> None:
    """It says that it is there."""
    state, _ = await ref.call(Phone.get)
    assert state is expected


async def works(ref: Ref[Phone], me: Inbox) -> None:
    """Casts, calls and requests, from one state to the next, and an event that is postponed on the way."""
    ref.cast(Phone.alive, me.pid)
    assert await me.receive() == "yes"
    await in_state(ref, Line.IDLE)
    ref.cast(Phone.connect, me.pid)
    assert await me.receive() == "accept"
    await in_state(ref, Line.WAITING)
    ref.cast(Phone.ping, me.pid, "early")
    ref.cast(Phone.confirm)
    assert await me.receive() == ("pong", "early")
    for number in range(3):
        await in_state(ref, Line.CONNECTED)
        ref.cast(Phone.say, number, me.pid)
        assert await me.receive() == ("said", number)
    ref.cast(Phone.disconnect)
    await in_state(ref, Line.IDLE)
    ref.cast(Phone.alive, me.pid)
    asked = request(ref, Phone.alive)
    try:
        assert await asked.wait(0) == "yes"
    except CallTimeout:
        assert await asked.wait(None) == "yes"
    assert await me.receive() == "yes"


async def works_in_calls(ref: Ref[Phone], me: Inbox) -> None:
    """The same in calls, and some timeouts."""
    assert await ref.call(Phone.alive) == "yes"
    await in_state(ref, Line.IDLE)
    assert await ref.call(Phone.connect) == "accept"
    await in_state(ref, Line.WAITING)
    ref.cast(Phone.ping, me.pid, "early")
    assert await ref.call(Phone.confirm) == "yes"
    assert await me.receive() == ("pong", "early")
    for number in range(3):
        await in_state(ref, Line.CONNECTED)
        assert await ref.call(Phone.say, number) == ("said", number)
    assert await ref.call(Phone.disconnect) == "yes"
    await in_state(ref, Line.IDLE)
    assert await ref.call(Phone.time_out, 0.2) == "done"
    assert await ref.call(Phone.alive) == "yes"
    await in_state(ref, Line.IDLE)


async def stops(ref: Ref[Phone]) -> None:
    """It ends when it is told to, and then is not there."""
    assert await ref.call(Phone.stop) == "stopped"
    await is_gone(ref)


async def is_gone(ref: Ref[Phone]) -> None:
    """The phone does not answer any more."""
    try:
        await ref.call(Phone.alive)
    except ProcessExited:
        return
    raise AssertionError(f"{ref} is still there")
