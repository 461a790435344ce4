"""The parts of the model's world: reasons as texts, the conditions that a process can await, processes and calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from .model_world import World

NORMAL: Final = "normal"
SHUTDOWN: Final = "shutdown"
KILLED: Final = "killed"
NO_PROCESS: Final = "no such process"
IGNORED: Final = "(ignored)"


def crash(what: str) -> str:
    """The reason of a process whose code raised."""
    return f"crash {what}"


def is_crash(reason: str) -> bool:
    """Whether code raised."""
    return reason.startswith("crash ")


def is_orderly(reason: str) -> bool:
    """`normal`, `shutdown`, or a shutdown that says more."""
    return reason == NORMAL or reason.startswith(SHUTDOWN)


@dataclass(frozen=True, slots=True)
class Sleep:
    """Nothing for so many seconds; for ever when None. Who sleeps `lightly` ends at once, however stubborn."""

    seconds: float | None
    lightly: bool = False


@dataclass(frozen=True, slots=True)
class Receive:
    """The next message."""


@dataclass(frozen=True, slots=True)
class Gone:
    """That all of these are gone, or the time is over: resumes with whether they are."""

    processes: tuple[Process, ...]
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """That a process that was started has finished its init: resumes with None, or why it did not."""

    process: Process


Wish: TypeAlias = Sleep | Receive | Gone | Begun
Code: TypeAlias = Generator[Wish, Any, str]

ALIVE, DYING, GONE = range(3)


def is_busy(wish: Wish | None) -> bool:
    """Whether code that waits for that is in the middle of something."""
    return isinstance(wish, Sleep | Gone | Begun)


WAITING: Final = object()


@dataclass(eq=False, slots=True)
class Process:
    """One process: `role` is its part in the tree, `number` tells it from those that played the part before."""

    role: str
    number: int
    parent: Process | None
    traps: bool
    stubborn: bool = False
    life: int = ALIVE
    reason: str = ""
    code: Code | None = None
    wish: Wish | None = None
    until: float | None = None
    turn: int = 0
    links: dict[Process, None] = field(default_factory=dict["Process", None])
    waiters: list[Callable[[str], None]] = field(default_factory=list[Callable[[str], None]])
    mailbox: deque[tuple[Any, ...]] = field(default_factory=deque[tuple[Any, ...]])
    started: Any = WAITING
    refused: str = ""
    tasks: bool = False
    straggler: bool = False
    slowly: bool = False
    ended_at: float = -1.0

    def __str__(self) -> str:
        return f"{self.role}#{self.number}"

    def alive(self) -> bool:
        """Whether nothing has ended it."""
        return self.life == ALIVE

    def idle(self) -> bool:
        """Whether it lives and waits for a message."""
        return self.alive() and isinstance(self.wish, Receive)


class Call:
    """A request that a caller waits for; whatever comes first is its outcome."""

    __slots__ = ("label", "outcome", "wanted", "world")

    def __init__(self, world: World, label: str, wanted: str | None) -> None:
        """`label` is how the outcomes name it; `wanted` is the end that is asked for, where an end is."""
        self.world = world
        self.label = label
        self.wanted = wanted
        self.outcome: tuple[float, str] | None = None

    def settle(self, outcome: str) -> None:
        """Only the first counts."""
        now = self.world.now
        if self.outcome is None:
            self.world.outcomes[self.label] = self.outcome = (now, outcome)
        elif self.outcome[0] == now and outcome != self.outcome[1] and "timed out" in (outcome, self.outcome[1]):
            self.world.races.append(f"{now}: {self.label} {self.outcome[1]}, or {outcome}")

    def on_exit(self, reason: str) -> None:
        """Who was asked is gone."""
        self.settle("done" if reason == self.wanted else f"exited: {reason}")
