"""State machines: typed events, results that name their states, and actions with matching parameters."""

from __future__ import annotations

from enum import Enum
from typing import assert_type

from greenroom.supervision import Ref, start
from greenroom.supervision.statem import (
    After,
    Call,
    Cancel,
    Cast,
    Event,
    EventTimeout,
    GenericTimeout,
    GenStatem,
    Info,
    Internal,
    Keep,
    Next,
    NextEvent,
    Reply,
    Result,
    StateTimeout,
    Stop,
    StopAndReply,
    event,
    state,
)


class Light(Enum):
    """The states."""

    ON = 1
    OFF = 2


class Other(Enum):
    """Other states."""

    ON = 1


class Lamp(GenStatem[Light]):
    """A lamp."""

    initial = Light.OFF

    def __init__(self, watts: int) -> None:
        """The brightness of the lamp."""
        self.watts = watts

    @event
    def press(self, finger: str) -> int:
        """Answered with the brightness."""
        raise NotImplementedError

    @state(Light.OFF, to=(Light.ON,))
    def off(self, event: Event) -> Result[Light]:
        """Dark."""
        match event:
            case Call(Lamp.press, (str(finger),), caller=caller):
                assert_type(finger, str)
                return Next(Light.ON, Reply(caller, self.watts), After(5, StateTimeout(finger)))
            case Cast(Lamp.press):
                return Next(Light.ON)
            case GenericTimeout("name", content):
                return Keep(NextEvent(Internal(content)), Cancel(GenericTimeout("name")))
            case Info():
                return Stop()
            case _:
                return None

    @state(Light.ON)
    async def on(self, event: Event) -> Result[Light]:
        """Bright."""
        if isinstance(event, Call):
            return StopAndReply(ValueError("too hot"), Reply(event.caller))
        assert_type(self.state, Light)
        return self.unexpected(event)

    def narrowly(self, event: Event) -> Next[Light] | None:
        """A function may say more exactly what it returns."""
        return Next(Light.ON)


class AnyWay(GenStatem[tuple[str, int]]):
    """States may be any values for a machine that has one function for all of them."""

    def init(self) -> Next[tuple[str, int]]:
        """Begin."""
        return Next(("a", 1))

    def handle_event(self, state: tuple[str, int], event: Event) -> Result[tuple[str, int]]:
        """Handle."""
        name, count = state
        assert_type(count, int)
        return Next((name, count + 1))


async def right() -> None:
    """Accepted by both checkers."""
    ref = await start(Lamp, 40)
    assert_type(ref, Ref[Lamp])
    assert_type(await ref.call(Lamp.press, "thumb"), int)
    assert_type(await ref.call(Lamp.press, finger="thumb"), int)
    assert_type(ref.cast(Lamp.press, "thumb"), bool)


async def wrong(ref: Ref[Lamp]) -> None:
    """Refused by both checkers."""
    await start(Lamp, "bright")  # expect-error: arg-type, reportArgumentType
    await ref.call(Lamp.press)  # expect-error: call-overload, reportCallIssue
    await ref.call(Lamp.press, 7)  # expect-error: call-overload, reportCallIssue, reportArgumentType
    ref.cast(Lamp.press, 7)  # expect-error: arg-type, reportArgumentType
    After(1, Internal())  # expect-error: arg-type, reportArgumentType
    Keep(StateTimeout())  # expect-error: arg-type, reportArgumentType
    Reply(ref)  # expect-error: arg-type, reportArgumentType


class Wrong(GenStatem[Light]):
    """Refused by both checkers."""

    @state(Light.ON)
    def on(self, event: Event) -> Result[Light]:
        """Another machine's state."""
        return Next(Other.ON)  # expect-error: arg-type, reportReturnType

    @state(Light.OFF)  # expect-error: type-var, reportArgumentType, reportUntypedFunctionDecorator
    def off(self, event: EventTimeout) -> Result[Light]:
        """Other events come too."""
        return None

    @state(Light.OFF)  # expect-error: type-var, reportArgumentType, reportUntypedFunctionDecorator
    def late(self, event: Event) -> int:
        """No result."""
        return 1
