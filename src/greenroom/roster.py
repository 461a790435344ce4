"""What all workers have in common, in the program that was run: who is where, and whether the doors are open."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

from greenroom.actors.ensemble.desk import DESK, Desk
from greenroom.supervision import (
    ActorError,
    CallTimeout,
    ChildSpec,
    Crash,
    GenServer,
    On,
    ProcessExited,
    Ref,
    Shutdown,
    child,
)

from .wing import WING, Wing

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from greenroom.supervision import ExitReason

ROSTER: Final = "greenroom.roster"
_SLACK: Final = 0.5


class Roster(GenServer):
    """Brings nodes together: whoever comes is told of those who are there, and they of it."""

    def __init__(self, known: dict[str, Sequence[str]]) -> None:
        """`known` outlives this process."""
        self._known = known

    def arrived(self, name: str, addresses: Sequence[str]) -> None:
        """A node is there."""
        for other, theirs in self._known.items():
            if other != name:
                Ref[Desk](On(DESK, other)).cast(Desk.meet, name, addresses)
                Ref[Desk](On(DESK, name)).cast(Desk.meet, other, theirs)
        self._known[name] = addresses


@dataclass(slots=True)
class Doors:
    """Whether workers serve as soon as they are there: not before all are, or the first would get everybody."""

    names: tuple[str, ...]
    grace: float
    """For how many seconds what is running may take to end, when they close."""
    announce: Callable[[], object] = lambda: None
    """Called when they are open for the first time."""
    close_sockets: Callable[[], object] = lambda: None
    """Called when they close, before anything else: from then on, who connects is refused."""
    open: bool = False
    roster: Ref[Roster] = field(default_factory=lambda: Ref[Roster](ROSTER))


class Porter(GenServer):
    """The last child of the program's tree: opens the doors when all is there, and closes them before anything else stops."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, doors: Doors) -> None:
        """They are closed."""
        self._doors = doors

    async def init(self) -> None:
        """Open them. A worker that cannot serve, the first time, keeps the program from starting."""
        first, self._doors.open = not self._doors.open, True
        await self._all(None, lambda wing: _opened(wing, first=first))
        if first:
            self._doors.announce()

    async def terminate(self, reason: ExitReason) -> None:
        """Refuse new connections, and let what is running finish, in all workers at once."""
        if not isinstance(reason, Crash):
            self._doors.open = False
            self._doors.close_sockets()
        await self._all(self._doors.grace + _SLACK, _drained)

    async def _all(self, seconds: float | None, act: Callable[[Ref[Wing]], Coroutine[None, None, None]]) -> None:
        await asyncio.gather(*(act(Ref[Wing](On(WING, name), seconds)) for name in self._doors.names))


async def _opened(wing: Ref[Wing], *, first: bool) -> None:
    try:
        await wing.call(Wing.open)
    except ProcessExited as error:  # one that is being replaced just now sees by itself how things are
        match error.reason:
            case Shutdown(detail=ActorError() as why) if first:
                raise why from None
            case _:
                pass


async def _drained(wing: Ref[Wing]) -> None:
    with contextlib.suppress(ProcessExited, CallTimeout):  # whoever has not done it by now is stopped next
        await wing.call(Wing.drain)


def porter_child(doors: Doors) -> ChildSpec[Ref[Porter]]:
    """As a child."""
    return child(Porter, doors).but(id="doors", shutdown=doors.grace + 2 * _SLACK)
