"""Workers that are state machines: they enter a state to work, and postpone messages meanwhile."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar

from greenroom.supervision import NORMAL, Pid
from greenroom.supervision.statem import (
    END,
    POSTPONE,
    After,
    Call,
    Cast,
    Event,
    GenStatem,
    Info,
    Internal,
    Keep,
    Next,
    NextEvent,
    Reply,
    Result,
    StateTimeout,
    StopAndReply,
    event,
    state,
)

from .run_log import Boom
from .server_workers import Habits


class Mood(Enum):
    """What a machine is at."""

    READY = "ready"
    AT_WORK = "at work"


class Machine(Habits, GenStatem[Mood]):
    """A worker that is a state machine."""

    initial = Mood.READY

    def first(self, seconds: float) -> Any:
        """Rest as an event of its own."""
        return Next(Mood.READY, NextEvent(Internal(seconds))) if seconds else None

    # --- events

    @event
    def echo(self, token: str, seconds: float) -> str:
        """Answer at once."""
        raise NotImplementedError

    @event
    def work(self, token: str, seconds: float) -> str:
        """Answer after a while, keeping all else for later."""
        raise NotImplementedError

    @event
    def later(self, token: str, seconds: float) -> str:
        """Answer after a while, doing other things meanwhile."""
        raise NotImplementedError

    @event
    def never(self, token: str, seconds: float) -> str:
        """Never answer."""
        raise NotImplementedError

    @event
    def crash(self, token: str, seconds: float) -> str:
        """Crash instead."""
        raise NotImplementedError

    @event
    def farewell(self, token: str, seconds: float) -> str:
        """Answer, and stop."""
        raise NotImplementedError

    @event
    def trouble(self, kind: str, after: float, other: Pid | None) -> None:
        """Do it to itself."""
        raise NotImplementedError

    # --- states

    @state(Mood.READY, to=(Mood.AT_WORK, END))
    def ready(self, event: Event) -> Any:
        """It deals with whatever comes."""
        match event:
            case Internal(seconds):
                return self.rest(seconds)
            case Cast(Machine.trouble, (kind, after, other)):
                return self.suffer(kind, after, other)
            case Call(method, (token, seconds), _, caller):
                return self._answer(method, token, seconds, Reply(caller, token))
            case Info():
                return None  # exit signals of strangers are nothing to it
            case _:
                return self.unexpected(event)

    def _answer(self, method: Any, token: str, seconds: float, answer: Reply) -> Result[Mood]:
        match method:
            case Machine.echo:
                return Next(Mood.READY, answer)
            case Machine.work:
                return Next(Mood.AT_WORK, After(seconds, StateTimeout(answer)))
            case Machine.later if seconds:
                self.book.node.loop.call_later(seconds, answer.caller.reply, token)
                return None
            case Machine.later:
                return Next(Mood.READY, answer)
            case Machine.never:
                return None
            case Machine.crash:
                raise Boom("call")
            case _:
                return StopAndReply(NORMAL, answer)

    @state(Mood.AT_WORK, to=(Mood.READY,))
    def at_work(self, event: Event) -> Result[Mood]:
        """All but the end of the work has to wait."""
        match event:
            case StateTimeout(Reply() as answer):
                return Next(Mood.READY, answer)
            case _:
                return Keep(POSTPONE)


class TrappingMachine(Machine):
    """One that is told when it has to stop."""

    traps_exit: ClassVar[bool] = True
