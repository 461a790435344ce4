"""Definitions of machine classes are checked when the class is made."""

from __future__ import annotations

from enum import Enum
from typing import Any, Generic, TypeVar

import pytest

from greenroom.supervision import StartFailed, start
from greenroom.supervision.statem import END, Event, GenStatem, Next, Result, draw, event, state

from .door_machines import Door, DoorState

S = TypeVar("S")


class Light(Enum):
    ON = 1
    OFF = 0


class Stays:
    """State functions for both."""

    @state(Light.ON, to=(Light.OFF,))
    def on(self, event: Event) -> Result[Light]:
        return None

    @state(Light.OFF, to=(Light.ON, END))
    def off(self, event: Event) -> Result[Light]:
        return None


def test_a_state_without_a_handler_is_named() -> None:
    with pytest.raises(
        TypeError, match=r"^Lamp does not handle Light.OFF: mark a method with @state\(Light.OFF\), or "
    ):

        class Lamp(GenStatem[Light]):  # pyright: ignore[reportUnusedClass]
            @state(Light.ON)
            def on(self, event: Event) -> Result[Light]:
                return None


def test_a_state_of_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Lamp: @state names DoorState.OPEN, which is no state of Light"):

        class Lamp(Stays, GenStatem[Light]):  # pyright: ignore[reportUnusedClass]
            @state(DoorState.OPEN)
            def other(self, event: Event) -> Result[Light]:
                return None


def test_a_way_to_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Lamp: to names DoorState.OPEN, which is no state of Light"):

        class Lamp(Stays, GenStatem[Light]):  # pyright: ignore[reportUnusedClass]
            @state(Light.ON, to=(DoorState.OPEN,))
            def on(self, event: Event) -> Result[Light]:
                return None


def test_a_state_is_handled_once() -> None:
    with pytest.raises(TypeError, match=r"Lamp handles Light.ON twice: in on and in bright"):

        class Lamp(GenStatem[Light]):  # pyright: ignore[reportUnusedClass]
            @state(Light.ON, Light.OFF)
            def on(self, event: Event) -> Result[Light]:
                return None

            @state(Light.ON)
            def bright(self, event: Event) -> Result[Light]:
                return None


def test_a_machine_says_what_its_states_are() -> None:
    with pytest.raises(
        TypeError, match=r"Lamp: say what its states are, an Enum: class Lamp\(GenStatem\[DoorState\]\)"
    ):

        class Lamp(Stays, GenStatem):  # type: ignore[type-arg]  # pyright: ignore[reportUnusedClass, reportMissingTypeArgument]
            pass


def test_exits_are_for_machines_without_state_functions() -> None:
    with pytest.raises(TypeError, match=r"Lamp: exits is for machines that only override handle_event"):

        class Lamp(Stays, GenStatem[Light]):  # pyright: ignore[reportUnusedClass]
            exits = {Light.ON: (Light.OFF,)}  # noqa: RUF012 - a ClassVar of the base

    with pytest.raises(TypeError, match=r"Torch: exits names DoorState.OPEN, which is no state of Light"):

        class Torch(GenStatem[Light]):  # pyright: ignore[reportUnusedClass]
            exits = {Light.ON: (DoorState.OPEN,)}  # noqa: RUF012

            def handle_event(self, state: Light, event: Event) -> Result[Light]:
                return None


def test_marks_are_for_plain_methods() -> None:
    with pytest.raises(TypeError, match=r"@state marks a plain method, not <staticmethod"):
        state(Light.ON)(staticmethod(len))  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"@event marks a plain method, not <property"):
        event(property(len))  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"@state names the states that a method handles"):
        state(test_marks_are_for_plain_methods)
    with pytest.raises(TypeError, match=r"@state names the states that a method handles"):
        state()


def test_an_event_is_declared_once() -> None:
    with pytest.raises(TypeError, match=r"Gate.push is an event of Door already: match that one"):

        class Gate(Door):  # pyright: ignore[reportUnusedClass]
            @event
            def push(self) -> int:
                raise NotImplementedError


async def test_a_subclass_overrides_a_state_function_by_name_or_by_mark() -> None:
    class Lamp(Stays, GenStatem[Light]):
        initial = Light.ON

    class Quiet(Lamp):
        def on(self, event: Event) -> Result[Light]:  # the mark stays
            return Next(Light.OFF)

        @state(Light.OFF, to=())
        def dark(self, event: Event) -> Result[Light]:
            return Next(Light.ON)

    ref = await start(Quiet)
    with pytest.raises(Exception, match=r"Light.OFF may not lead to Light.ON: it declares nothing"):
        await ref.within(None).ask("twice") if ref.send("once") else None
    assert "ON --> OFF" in draw(Quiet)
    assert "OFF -->" not in draw(Quiet)


async def test_a_base_leaves_its_states_open() -> None:
    class Base(GenStatem[S], Generic[S]):
        @event
        def ping(self) -> str:
            raise NotImplementedError

    class Lamp(Stays, Base[Light]):
        initial = Light.OFF

    class Dimmed(Lamp):
        pass

    assert draw(Dimmed).splitlines()[4] == "    [*] --> OFF"
    base: Any = Base
    with pytest.raises(StartFailed, match="Base is a base for classes that say what its states are"):
        await start(base)


async def test_states_may_be_any_values_when_handle_event_handles_them() -> None:
    class Pair(GenStatem[tuple[str, int]]):
        def init(self) -> Next[tuple[str, int]]:
            return Next(("a", 1))

        @event
        def push(self) -> None:
            pass

        def handle_event(self, state: tuple[str, int], event: Event) -> Result[tuple[str, int]]:
            name, count = state
            return Next((name, count + 1))

    ref = await start(Pair)
    ref.cast(Pair.push)
    with pytest.raises(TypeError, match="Pair cannot be drawn: its states are no Enum"):
        draw(Pair)
