"""Why a process ended: exit reasons are values, matched with ``match``.

An exit reason is data that travels along links and monitors, sits in reports and decides whether a supervisor
restarts; an exception is for a caller. The two meet in `Crash`, which carries the exception that did it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Normal:
    """The work was done. Links ignore it; a transient child is not started again."""

    def __str__(self) -> str:
        return "normal"


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Somebody asked for an orderly end, or the process chose one; `detail` says which."""

    detail: object = None

    def __str__(self) -> str:
        return "shutdown" if self.detail is None else f"shutdown ({self.detail})"


@dataclass(frozen=True, slots=True)
class Killed:
    """The process was ended by `kill`, which nothing can trap."""

    def __str__(self) -> str:
        return "killed"


@dataclass(frozen=True, slots=True)
class NoProcess:
    """There was nobody at that address when the monitor, the link or the call was made."""

    def __str__(self) -> str:
        return "no such process"


@dataclass(frozen=True, slots=True)
class NoConnection:
    """The node of that process cannot be reached; the process may or may not be alive."""

    def __str__(self) -> str:
        return "no connection to its node"


@dataclass(frozen=True, slots=True)
class Crash:
    """Code of the process raised `error` and nobody caught it. Any `BaseException` counts."""

    error: BaseException

    def __str__(self) -> str:
        name = type(self.error).__name__
        try:
            text = str(self.error)
        except BaseException:  # noqa: BLE001 - a reason must be told whatever a user's __str__ does
            return f"crash: {name} (its str raised)"
        return f"crash: {name}: {text}" if text else f"crash: {name}"


ExitReason: TypeAlias = Normal | Shutdown | Killed | NoProcess | NoConnection | Crash

NORMAL = Normal()
SHUTDOWN = Shutdown()
KILLED = Killed()
NO_PROCESS = NoProcess()
NO_CONNECTION = NoConnection()

_REASONS = (Normal, Shutdown, Killed, NoProcess, NoConnection, Crash)


def is_orderly(reason: ExitReason) -> bool:
    """Whether this end is nobody's fault: `Normal` or `Shutdown`, the two that a transient child may die of."""
    return isinstance(reason, Normal | Shutdown)


def as_reason(value: object) -> ExitReason:
    """What a user gave as a reason, as one: a reason stays itself, an exception becomes a `Crash`."""
    if isinstance(value, _REASONS):
        return value
    if isinstance(value, BaseException):
        return Crash(value)
    if isinstance(value, type) and issubclass(value, (*_REASONS, BaseException)):
        message = f"an exit reason is a value, not a class: write {value.__name__}(…) instead of {value.__name__}"
        raise TypeError(message)
    message = (
        f"{value!r} is not an exit reason: use Normal(), Shutdown(detail), Killed(), Crash(error), or an exception"
    )
    raise TypeError(message)
