"""State machines for the tests."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar

from greenroom.supervision import ExitReason, Shutdown
from greenroom.supervision.statem import (
    END,
    POSTPONE,
    After,
    AskEvent,
    Call,
    Cast,
    Event,
    Fail,
    GenStatem,
    Info,
    Keep,
    Next,
    Reply,
    Result,
    StateTimeout,
    Stop,
    TellEvent,
    event,
    state,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision import Caller, Ref


class DoorState(Enum):
    """The states of a door."""

    LOCKED = auto()
    CLOSED = auto()
    OPEN = auto()


class Door(GenStatem[DoorState]):
    """A door with a code; a push while it is locked is answered when it is unlocked."""

    initial = DoorState.LOCKED

    def __init__(self, code: str, seconds: float = 5.0) -> None:
        self.code = code
        self.seconds = seconds
        self.pushed = 0

    @event
    def unlock(self, code: str, *, quietly: bool = False) -> bool:
        """Try a code; whether it was the right one."""
        raise NotImplementedError

    @event
    def push(self) -> int:
        """Go in; how many have."""
        raise NotImplementedError

    @event
    def close(self) -> None:
        """Close it."""

    @state(DoorState.LOCKED, to=(DoorState.CLOSED,))
    def locked(self, event: Event) -> Result[DoorState]:
        match event:
            case Call(Door.unlock, (self.code,), {"quietly": bool()}, caller):
                return Next(DoorState.CLOSED, Reply(caller, value=True), After(self.seconds, StateTimeout()))
            case Call(Door.unlock, caller=caller):
                return Keep(Reply(caller, value=False))
            case Call(Door.push) | Cast(Door.push):
                return Keep(POSTPONE)
            case _:
                return self.unexpected(event)

    @state(DoorState.CLOSED, to=(DoorState.LOCKED, DoorState.OPEN))
    def closed(self, event: Event) -> Result[DoorState]:
        match event:
            case StateTimeout():
                return Next(DoorState.LOCKED)
            case Call(Door.push, caller=caller):
                self.pushed += 1
                return Next(DoorState.OPEN, Reply(caller, self.pushed))
            case Cast(Door.push):
                self.pushed += 1
                return Next(DoorState.OPEN)
            case _:
                return self.unexpected(event)

    @state(DoorState.OPEN, to=(DoorState.CLOSED, END))
    async def opened(self, event: Event) -> Result[DoorState]:
        match event:
            case Call(Door.push, caller=caller):
                self.pushed += 1
                return Keep(Reply(caller, self.pushed))
            case Call(Door.close, caller=caller):
                return Next(DoorState.CLOSED, Reply(caller))
            case TellEvent("burn"):
                return Stop(Shutdown("fire"))
            case AskEvent("who", caller):
                return Keep(Fail(caller, PermissionError("not you")))
            case _:
                return self.unexpected(event)


class Script(GenStatem[DoorState]):
    """A machine whose messages are functions, which return the result of the state function."""

    initial: ClassVar[Any] = DoorState.LOCKED

    def __init__(self, **hooks: Callable[[Any, Any], Any]) -> None:
        self.hooks = hooks
        self.heard: list[Event] = []

    def handle_event(self, state: DoorState, event: Event) -> Any:
        match event:
            case Info(function) | TellEvent(function) if callable(function):
                return function(self)
            case AskEvent(function, caller) if callable(function):
                return function(self, caller)
            case _:
                self.heard.append(event)
                return None

    def terminate(self, reason: ExitReason) -> None:
        if hook := self.hooks.get("terminate"):
            hook(self, reason)


class EnteringScript(Script):
    """The same with enter calls, whose result a hook decides."""

    state_enter = True

    def handle_event(self, state: DoorState, event: Event) -> Any:
        if hook := self.hooks.get(type(event).__name__):
            return hook(self, event)
        return super().handle_event(state, event)


def do(ref: Ref[Any], function: Callable[[Any], Any]) -> None:
    """Send a function to a machine."""
    ref.send(function)


async def ask(ref: Ref[Any], function: Callable[[Any, Caller[Any]], Any]) -> Any:
    """Send a function to a machine that also gets the caller."""
    return await ref.ask(function)
