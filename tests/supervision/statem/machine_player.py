"""The real machine plays a table: state functions that look up what to do, on virtual time."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Any

from greenroom.supervision import (
    Crash,
    ProcessExited,
    Ref,
    Request,
    Shutdown,
    ask_later,
    inbox,
    monitor,
    request,
    send,
    start,
    stop,
)
from greenroom.supervision.behaviours.refs import process_of
from greenroom.supervision.statem import (
    After,
    AskEvent,
    At,
    BadReturn,
    Call,
    Cancel,
    Cast,
    Enter,
    Event,
    EventTimeout,
    Fail,
    GenericTimeout,
    GenStatem,
    Info,
    Internal,
    Keep,
    Next,
    NextEvent,
    Postpone,
    Reject,
    RepeatState,
    Reply,
    Result,
    StateTimeout,
    Stop,
    StopAndReply,
    TellEvent,
    UpdateTimeout,
    event,
    state,
)
from greenroom.supervision.testing import run

from .random_machines import FUEL
from .transition_model import Seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision.behaviours.replies import Caller

    from .random_machines import Do, Reaction, Script, Sent, Table
    from .transition_model import Told

LONG_AFTER = 10_000.0


class At3(Enum):
    """The states."""

    FIRST = 0
    SECOND = 1
    THIRD = 2


class Refused(Exception):
    """How a machine refuses, or crashes."""


def kind_and_content(event: Event) -> tuple[str, Any]:
    """The kind and content of an event as the model names them."""
    match event:
        case Call(Player.push, (content,)):
            return "call", content
        case Cast(Player.push, (content,)):
            return "cast", content
        case AskEvent(content):
            return "ask", content
        case TellEvent(content):
            return "tell", content
        case Info(content):
            return "info", content
        case Internal(content):
            return "internal", content
        case StateTimeout(content):
            return "state", content
        case EventTimeout(content):
            return "event", content
        case GenericTimeout(str(name), content):
            return name, content
        case Enter(At3() as old):
            return "enter", str(old.value)
        case _:
            raise AssertionError(event)


MAKE: dict[str, Callable[[str], Any]] = {
    "cast": lambda content: Cast(Player.push, (content,), {}),
    "tell": TellEvent,
    "info": Info,
    "internal": Internal,
    "state": StateTimeout,
    "event": EventTimeout,
    "a": lambda content: GenericTimeout("a", content),
    "b": lambda content: GenericTimeout("b", content),
}


class Player(GenStatem[At3]):
    """A machine that plays a table with `handle_event` for all its states."""

    def __init__(self, table: Table, seen: Seen, numbers: dict[str, int]) -> None:
        self.table = table
        self.seen = seen
        self.numbers = numbers
        self.reactions = 0
        self.visits: dict[tuple[int, str], int] = {}
        self.open: dict[int, Caller[Any]] = {}

    @event
    def push(self, content: str) -> str:
        """The event of calls and casts."""
        raise NotImplementedError

    def init(self) -> Next[At3]:
        told = [(do, f"init.{index}") for index, do in enumerate(self.table.begins)]
        return Next(At3(self.table.first), *self.actions(told, None))

    def handle_event(self, state: At3, event: Event) -> Any:
        assert self.state is state
        return self.react_slowly(event) if self.table.asynchronous else self.react(event)

    async def react_slowly(self, event: Event) -> Result[At3]:
        """React in a later turn of the loop."""
        await asyncio.sleep(0)
        return self.react(event)

    def react(self, event: Event) -> Result[At3]:
        """React as the table says."""
        kind, content = kind_and_content(event)
        state = self.state
        self.seen.trace.append((self.now, state.value, kind, content))
        number = None
        if isinstance(event, Call | AskEvent):
            number = self.numbers[content]
            if not event.caller.over:
                self.open[number] = self.open.get(number, event.caller)
        self.reactions += 1
        if self.reactions > FUEL:
            return None
        visit = self.visits[state.value, kind] = self.visits.get((state.value, kind), -1) + 1
        reaction = self.table.react(state.value, kind, visit)
        told = [(do, f"{self.reactions}.{index}") for index, do in enumerate(reaction.actions)]
        for do, sent in told:
            if do.verb == "send":
                send(self.pid, sent)
        match reaction.outcome:
            case "reject":
                if number is not None:
                    self.open.pop(number, None)
                raise Reject(Refused(f"refused {self.reactions}"))
            case "crash":
                raise Refused("crash")
            case "stop":
                return Stop(Shutdown())
            case "stop_and_reply":
                told = [(do, sent) for do, sent in told if do.verb in ("reply", "fail")]
                return StopAndReply(Shutdown(), *self.actions(told, event))
            case _:
                return self.result(reaction, self.actions(told, event))

    def result(self, reaction: Reaction, actions: list[Any]) -> Result[At3]:
        """What a function returns that goes on."""
        match reaction.outcome:
            case "none":
                return None
            case "next":
                return Next(At3(reaction.target), *actions)
            case "repeat":
                return RepeatState(*actions)
            case _:
                return Keep(*actions)

    def answer(self, do: Do, content: str, event: Event | None) -> Reply | Fail | None:
        """Answer this call, else the oldest one open."""
        if isinstance(event, Call | AskEvent):
            caller = event.caller
            self.open.pop(self.numbers[kind_and_content(event)[1]], None)
        elif self.open:
            caller = self.open.pop(next(iter(self.open)))
        else:
            return None
        return Reply(caller, f"reply {content}") if do.verb == "reply" else Fail(caller, Refused(f"fail {content}"))

    def actions(self, told: Told, event: Event | None) -> list[Any]:
        """The actions of the table, as greenroom has them."""
        actions = [self.action(do, content, event) for do, content in told if do.verb != "send"]
        return [each for each in actions if each is not None]

    def action(self, do: Do, content: str, event: Event | None) -> Any:
        """One of them; None for an answer that no caller waits for."""
        match do.verb:
            case "reply" | "fail":
                return self.answer(do, content, event)
            case "postpone" | "unpostpone":
                return Postpone(do.verb == "postpone")
            case "next":
                return NextEvent(MAKE[do.kind](content))
            case "again":
                again = Internal(content) if event is None or isinstance(event, Enter) else event
                return NextEvent(again)
            case "after":
                return After(do.seconds, MAKE[do.kind](content))
            case "zero":
                return After(0, MAKE[do.kind](content))
            case "never":
                return After(None, MAKE[do.kind](content))
            case "at":
                return At(self.now + do.seconds, MAKE[do.kind](content))
            case "cancel":
                return Cancel(MAKE[do.kind](content))
            case "update":
                return UpdateTimeout(MAKE[do.kind](content))
            case "send":
                raise AssertionError(do)


class Entering(Player):
    """The same with enter calls."""

    state_enter = True


class Functions(Player):
    """The same, with functions for its states."""

    def handle_event(self, state: At3, event: Event) -> Any:
        return self._otp_functions[state](self, event)

    @state(At3.FIRST)
    def first(self, event: Event) -> Any:
        assert self.state is At3.FIRST
        return Player.handle_event(self, At3.FIRST, event)

    @state(At3.SECOND, At3.THIRD)
    def other(self, event: Event) -> Any:
        assert self.state is not At3.FIRST
        return Player.handle_event(self, self.state, event)


class EnteringFunctions(Functions):
    """Both."""

    state_enter = True


CLASSES = {(False, False): Player, (True, False): Entering, (False, True): Functions, (True, True): EnteringFunctions}


def play(table: Table, script: Script) -> Seen:
    """Play the whole script on virtual time, until nothing can happen any more."""
    seen = Seen()
    numbers = {sent.content: sent.call for burst in script for sent in burst.events if sent.call is not None}

    async def main() -> None:
        loop = asyncio.get_running_loop()
        requests: dict[int, Request[Any]] = {}
        async with inbox() as me:
            ref = await start(CLASSES[table.enters, table.one_function], table, seen, numbers)
            monitor(ref)
            for burst in script:
                await asyncio.sleep(burst.moment - loop.time())
                for sent in burst.events:
                    _send(ref, sent, requests)
            await asyncio.sleep(LONG_AFTER)
            process = process_of(ref)
            if process is not None:
                machine: Any = process.behaviour
                seen.state = machine.state.value
                seen.postponed = [kind_and_content(each)[1] for each in machine._otp_pending.postponed]
                assert machine._otp_pending.timers == ()
                await stop(ref)
            seen.end = _ending((await me.receive()).reason)
            for number, each in requests.items():
                seen.answers[number] = await _answer(each)

    run(main, leaks=False)
    return seen


def _send(ref: Ref[Player], sent: Sent, requests: dict[int, Request[Any]]) -> None:
    match sent.kind:
        case "call":
            requests[sent.call or 0] = request(ref, Player.push, sent.content)
        case "ask":
            requests[sent.call or 0] = ask_later(ref, sent.content)
        case "cast":
            ref.cast(Player.push, content=sent.content)
        case "tell":
            ref.tell(sent.content)
        case _:
            ref.send(sent.content)


async def _answer(request: Request[Any]) -> str:
    try:
        answer: str = await request.wait(0.0)
    except Refused as error:
        return str(error)
    except ProcessExited:
        return "gone"
    return answer


def _ending(reason: object) -> str:
    match reason:
        case Crash(BadReturn()):
            return "bad return"
        case Crash(Refused() | Reject()):
            return "crash"
        case Crash(error):
            raise error
        case Shutdown():
            return "shutdown"
        case _:
            return "stopped"
