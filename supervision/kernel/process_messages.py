"""What lies in a mailbox.

An entry is a plain tuple whose first item is its kind: tuples are what Python makes and takes apart fastest, and
users never see one. What users do see, in `handle_info` and from `receive`, are the frozen values below and
whatever was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from .links import Monitor

MailboxEntry: TypeAlias = tuple[Any, ...]

# The kinds. A call carries its Call last; a cast has no waiting caller; a signal is exempt from bounds.
CAST = 0  # (CAST, method, args, kwargs)
CALL = 1  # (CALL, method, args, kwargs, call)
INFO = 2  # (INFO, message)
SIGNAL = 3  # (SIGNAL, Down | Exit)
TELL = 4  # (TELL, request)
ASK = 5  # (ASK, request, call)
CONTINUE = 6  # (CONTINUE, token)
INIT = 7  # (INIT, args, kwargs, call)
TERMINATE = 8  # (TERMINATE, reason, entry that led to it or None, answer that is owed or None)
STOP = 9  # (STOP, reason)
SYSTEM = 10  # (SYSTEM, function, call): look inside, between two messages
TIMEOUT = 11  # (TIMEOUT, message, timer): void unless that timer is still the server's

EXEMPT = frozenset((SIGNAL, STOP, SYSTEM))
"""The kinds that no bound refuses and none counts."""


class Down(NamedTuple):
    """A monitored process is gone. Comes exactly once per monitor, behind all that the process had sent before."""

    ref: Monitor
    pid: Pid | None
    reason: ExitReason
    name: Hashable | None = None


class Exit(NamedTuple):
    """A linked process ended, or `exit` was called for this one; only a process that traps exits gets this message."""

    pid: Pid
    reason: ExitReason


def make_down(ref: Monitor, pid: Pid | None, reason: ExitReason, name: Any | None) -> Down:
    """A `Down`, made as `make_pid` makes a pid."""
    made: Down = _new(Down, (ref, pid, reason, name))
    return made


def make_exit(pid: Pid, reason: ExitReason) -> Exit:
    """An `Exit`, made as `make_pid` makes a pid."""
    made: Exit = _new(Exit, (pid, reason))
    return made


_new: Any = cast("Any", tuple).__new__  # typed so that checkers do not follow it into what is only partly known


@dataclass(frozen=True, slots=True)
class Timeout:
    """Nothing came for as long as the last callback had asked for."""


IDLE_TIMEOUT = Timeout()


# --- The address of a process: which node, which life of that node, which process.


class Pid(NamedTuple):
    """Immutable and comparable, and never used twice: `incarnation` changes each time the node starts.

    A tuple, because a tuple hashes and compares in C, and pids are keys everywhere.
    """

    node: str
    incarnation: int
    serial: int

    def __str__(self) -> str:
        return f"<{self.node}.{self.serial}>"

    def __repr__(self) -> str:
        return f"<{self.node}/{self.incarnation:x}.{self.serial}>"


_pid_new: Callable[[type[Pid], tuple[str, int, int]], Pid] = cast("Any", tuple).__new__


def make_pid(node: str, incarnation: int, serial: int) -> Pid:
    """A pid, without the detour over a NamedTuple's own constructor, which takes four times as long."""
    return _pid_new(Pid, (node, incarnation, serial))


# --- Why a process ended: exit reasons are values, matched with ``match``.
# An exit reason is data that travels along links and monitors, sits in reports and decides whether a supervisor
# restarts; an exception is for a caller. The two meet in `Crash`, which carries the exception that did it.


@dataclass(frozen=True, slots=True)
class Normal:
    """The work was done. Links ignore it; a transient child is not started again."""

    def __str__(self) -> str:
        return "normal"


@dataclass(frozen=True, slots=True)
class Shutdown:
    """An orderly end was asked for, or the process chose one; `detail` says which."""

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
    """There was no process at that address when the monitor, the link or the call was made."""

    def __str__(self) -> str:
        return "no such process"


@dataclass(frozen=True, slots=True)
class NoConnection:
    """The node of that process cannot be reached; the process may or may not be alive."""

    def __str__(self) -> str:
        return "no connection to its node"


@dataclass(frozen=True, slots=True)
class Crash:
    """Code of the process raised `error` and did not catch it. Any `BaseException` counts."""

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
_ORDERLY = (Normal, Shutdown)  # a union would be made anew by each call


def is_orderly(reason: ExitReason) -> bool:
    """Whether this end is no failure: `Normal` or `Shutdown`, the two that a transient child may die of."""
    return isinstance(reason, _ORDERLY)


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
