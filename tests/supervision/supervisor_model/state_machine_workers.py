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
from .server_workers import PlanWorker


class WorkerState(Enum):
    """The states."""

    READY = "ready"
    AT_WORK = "at work"


class StateMachineWorker(PlanWorker, GenStatem[WorkerState]):
    """A worker that is a state machine."""

    initial = WorkerState.READY

    def first(self, seconds: float) -> Any:
        """Start the pause as an event."""
        return Next(WorkerState.READY, NextEvent(Internal(seconds))) if seconds else None

    # --- events

    @event
    def echo(self, token: str, seconds: float) -> str:
        """Answer at once."""
        raise NotImplementedError

    @event
    def work(self, token: str, seconds: float) -> str:
        """Answer after a while, and postpone everything else."""
        raise NotImplementedError

    @event
    def later(self, token: str, seconds: float) -> str:
        """Answer after a while, and handle messages meanwhile."""
        raise NotImplementedError

    @event
    def never(self, token: str, seconds: float) -> str:
        """Never answer."""
        raise NotImplementedError

    @event
    def crash(self, token: str, seconds: float) -> str:
        """Crash."""
        raise NotImplementedError

    @event
    def farewell(self, token: str, seconds: float) -> str:
        """Answer, and stop."""
        raise NotImplementedError

    @event
    def trouble(self, kind: str, after: float, other: Pid | None) -> None:
        """Do a fault to this worker."""
        raise NotImplementedError

    # --- states

    @state(WorkerState.READY, to=(WorkerState.AT_WORK, END))
    def ready(self, event: Event) -> Any:
        """Handles every event."""
        match event:
            case Internal(seconds):
                return self.rest(seconds)
            case Cast(StateMachineWorker.trouble, (kind, after, other)):
                return self.suffer(kind, after, other)
            case Call(method, (token, seconds), _, caller):
                return self._answer(method, token, seconds, Reply(caller, token))
            case Info():
                return None  # ignore exit signals of strangers
            case _:
                return self.unexpected(event)

    def _answer(self, method: Any, token: str, seconds: float, answer: Reply) -> Result[WorkerState]:
        match method:
            case StateMachineWorker.echo:
                return Next(WorkerState.READY, answer)
            case StateMachineWorker.work:
                return Next(WorkerState.AT_WORK, After(seconds, StateTimeout(answer)))
            case StateMachineWorker.later if seconds:
                self.log.node.loop.call_later(seconds, answer.caller.reply, token)
                return None
            case StateMachineWorker.later:
                return Next(WorkerState.READY, answer)
            case StateMachineWorker.never:
                return None
            case StateMachineWorker.crash:
                raise Boom("call")
            case _:
                return StopAndReply(NORMAL, answer)

    @state(WorkerState.AT_WORK, to=(WorkerState.READY,))
    def at_work(self, event: Event) -> Result[WorkerState]:
        """Postpones everything except the end of the work."""
        match event:
            case StateTimeout(Reply() as answer):
                return Next(WorkerState.READY, answer)
            case _:
                return Keep(POSTPONE)


class TrappingStateMachineWorker(StateMachineWorker):
    """A state machine that traps exits."""

    traps_exit: ClassVar[bool] = True
