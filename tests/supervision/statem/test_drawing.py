"""The diagram of a machine shows the declared transitions, which are enforced."""

from __future__ import annotations

import pytest

from greenroom.supervision import ProcessExited, start
from greenroom.supervision.statem import END, Event, GenStatem, Next, Result, Stop, draw, state

from .door_machines import Door, DoorState

PICTURE = """\
---
title: Door
---
stateDiagram-v2
    [*] --> LOCKED
    LOCKED
    LOCKED --> CLOSED
    CLOSED
    CLOSED --> LOCKED
    CLOSED --> OPEN
    OPEN
    OPEN --> CLOSED
    OPEN --> [*]
"""


class Loose(GenStatem[DoorState]):
    """Declares the transitions of one state only."""

    exits = {DoorState.OPEN: (DoorState.CLOSED,)}  # noqa: RUF012 - a ClassVar of the base

    def init(self) -> Next[DoorState]:
        return Next(DoorState.LOCKED)

    def handle_event(self, state: DoorState, event: Event) -> Result[DoorState]:
        return Next(DoorState.OPEN) if state is DoorState.LOCKED else Stop()


def test_a_door() -> None:
    assert draw(Door) == PICTURE


def test_a_state_that_declares_nothing_may_lead_anywhere() -> None:
    assert draw(Loose).splitlines()[4:] == [
        "    LOCKED",
        "    note right of LOCKED : may lead anywhere",
        "    CLOSED",
        "    note right of CLOSED : may lead anywhere",
        "    OPEN",
        "    OPEN --> CLOSED",
    ]


async def test_an_undeclared_transition_is_refused() -> None:
    ref = await start(Loose)
    ref.send("open")
    with pytest.raises(
        ProcessExited, match=r"DoorState.OPEN may not stop: it declares DoorState.CLOSED, after call 'x'"
    ):
        await ref.ask("x")


async def test_where_a_machine_begins_is_held_to() -> None:
    class Wrong(Door):
        def init(self) -> Next[DoorState]:
            return Next(DoorState.OPEN)

    with pytest.raises(Exception, match=r"init begins in DoorState.OPEN, and `initial` is DoorState.LOCKED"):
        await start(Wrong, "1")


async def test_an_end_that_is_declared_is_one() -> None:
    class Brief(GenStatem[DoorState]):
        initial = DoorState.OPEN

        @state(DoorState.LOCKED, DoorState.CLOSED, DoorState.OPEN, to=(END,))
        def any(self, event: Event) -> Result[DoorState]:
            return Stop()

    ref = await start(Brief)
    with pytest.raises(ProcessExited, match="normal"):
        await ref.ask("x")
