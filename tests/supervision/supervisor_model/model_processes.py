"""The parts of the model's world: reasons as texts, the conditions that a process can await, processes and calls."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from .model_world import ModelWorld

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
    """Whether the reason is `normal`, `shutdown`, or a shutdown with details."""
    return reason == NORMAL or reason.startswith(SHUTDOWN)


@dataclass(frozen=True, slots=True)
class Sleep:
    """Sleep for so many seconds, for ever with None. A `lightly` sleeping process ends at once, even if stubborn."""

    seconds: float | None
    lightly: bool = False


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait for the next message."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Wait until these processes are gone or the time is over; resumes with whether they are gone."""

    processes: tuple[ModelProcess, ...]
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """Wait until a started process has finished its init; resumes with None, or the reason of the failure."""

    process: ModelProcess


WaitCondition: TypeAlias = Sleep | Receive | Gone | Begun
Code: TypeAlias = Generator[WaitCondition, Any, str]

ALIVE, DYING, GONE = range(3)


def is_busy(wish: WaitCondition | None) -> bool:
    """Whether code with this wait condition is in the middle of something."""
    return isinstance(wish, Sleep | Gone | Begun)


WAITING: Final = object()


@dataclass(eq=False, slots=True)
class ModelProcess:
    """A process. `role` is its place in the tree, `number` counts the processes in that role."""

    role: str
    number: int
    parent: ModelProcess | None
    traps: bool
    stubborn: bool = False
    life: int = ALIVE
    reason: str = ""
    code: Code | None = None
    wish: WaitCondition | None = None
    until: float | None = None
    turn: int = 0
    links: dict[ModelProcess, None] = field(default_factory=dict["ModelProcess", None])
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
        """Whether it has not been ended."""
        return self.life == ALIVE

    def idle(self) -> bool:
        """Whether it lives and waits for a message."""
        return self.alive() and isinstance(self.wish, Receive)


class ModelCall:
    """A request whose caller waits; the first result is its outcome."""

    __slots__ = ("label", "outcome", "wanted", "world")

    def __init__(self, world: ModelWorld, label: str, wanted: str | None) -> None:
        """`label` names it in outcomes; `wanted` is the exit that it asks for, if any."""
        self.world = world
        self.label = label
        self.wanted = wanted
        self.outcome: tuple[float, str] | None = None

    def settle(self, outcome: str) -> None:
        """Set the outcome, unless there is one."""
        now = self.world.now
        if self.outcome is None:
            self.world.outcomes[self.label] = self.outcome = (now, outcome)
        elif self.outcome[0] == now and outcome != self.outcome[1] and "timed out" in (outcome, self.outcome[1]):
            self.world.races.append(f"{now}: {self.label} {self.outcome[1]}, or {outcome}")

    def on_exit(self, reason: str) -> None:
        """The called process is gone."""
        self.settle("done" if reason == self.wanted else f"exited: {reason}")
