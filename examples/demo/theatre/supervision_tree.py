"""The supervision tree of the demonstration: a theatre, with a supervisor of each strategy.

The performers behave like real workers: they take a moment to start, keep a state that is lost with them, answer calls, and take
a moment to stop. So the order of starts and stops is visible.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final, NoReturn

from greenroom.supervision import (
    DynamicSupervisor,
    ExitReason,
    GenServer,
    Options,
    Ref,
    Stop,
    Supervisor,
    child,
    send_after,
)

if TYPE_CHECKING:
    from greenroom.supervision import ChildSpec

DRESSING: Final = 0.15  # seconds that a performer needs to start
BOWING: Final = 0.05  # and to stop
BEAT: Final = 0.1

LIGHT: Final = ("console", "dimmer", "spots")
BAND: Final = ("drums", "bass", "sax")
CAST: Final = ("king", "queen", "fool")
PERFORMERS: Final = (*LIGHT, *BAND, *CAST)

DEPARTMENTS: Final = {"light": LIGHT, "band": BAND, "cast": CAST}

SEATS: Final = 3
CAST_INTENSITY: Final = 2
CAST_PERIOD: Final = 5.0


class Performer(GenServer):
    """A supervised worker that counts beats since its start and is called by name."""

    traps_exit = True

    def __init__(self, part: str) -> None:
        """`part` is its name."""
        self.part = part
        self.beats = 0

    async def init(self) -> None:
        """Take a moment to start: the supervisor waits for it."""
        await asyncio.sleep(DRESSING)
        send_after(BEAT, self.pid, "beat")

    def handle_info(self, message: object) -> None:
        """Count a beat."""
        if message == "beat":
            self.beats += 1
            send_after(BEAT, self.pid, "beat")

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - the reason does not matter, on leaving
        """Take a moment to stop."""
        await asyncio.sleep(BOWING)

    def beat(self) -> int:
        """The number of beats since its start."""
        return self.beats

    # --- what may go wrong

    def forget(self) -> NoReturn:
        """Raise an ordinary exception."""
        raise ValueError("forgot the line")

    def faint(self) -> NoReturn:
        """Raise SystemExit, which would end a program."""
        sys.exit("fainted")

    async def trip(self) -> None:
        """Raise in a task of its own, with an exception that would end an event loop."""

        async def stumble() -> NoReturn:
            raise KeyboardInterrupt("tripped")

        await asyncio.gather(stumble(), asyncio.sleep(1))

    def walk_off(self) -> Stop:
        """Stop with a normal reason."""
        return Stop()


class Guest(GenServer):
    """A temporary worker that ends by itself and is not restarted."""

    def __init__(self, stay: float) -> None:
        """`stay` is in seconds."""
        self.stay = stay

    def init(self) -> None:
        """Start the timer."""
        send_after(self.stay, self.pid, "last bus")

    def handle_info(self, message: object) -> Stop:  # noqa: ARG002 - it gets no other
        """Stop when the timer fires."""
        return Stop()


def performer(part: str) -> ChildSpec[Ref[Performer]]:
    """The child spec of a performer."""
    return child(Performer, part).but(id=part, options=Options(name=part, label=part))


def guest(number: int, stay: float) -> ChildSpec[Ref[Guest]]:
    """The child spec of a guest."""
    seat = f"seat {number}"
    return child(Guest, stay).but(id=seat, restart="temporary", options=Options(label=seat))


async def open_house() -> Ref[Supervisor]:
    """Start the whole tree."""
    light = child(Supervisor, [performer(part) for part in LIGHT], strategy="rest_for_one", intensity=9)
    band = child(Supervisor, [performer(part) for part in BAND], strategy="one_for_all", intensity=9)
    cast = child(Supervisor, [performer(part) for part in CAST], intensity=CAST_INTENSITY, period=CAST_PERIOD)
    departments = {"light": light, "band": band, "cast": cast, "guests": child(DynamicSupervisor, max_children=SEATS)}
    house = [spec.but(id=name, options=Options(name=name, label=name)) for name, spec in departments.items()]
    return await Options(name="theatre", label="theatre").start(Supervisor, house, intensity=9)
