"""The entries of a mailbox, pids, and exit reasons.

A mailbox entry is a plain tuple whose first item is its kind: tuples are what Python makes and takes apart fastest, and users never see one. Users see, in
`handle_info` and from `receive`, the frozen values below and the messages that were sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from .links import Monitor

MailboxEntry: TypeAlias = tuple[Any, ...]

# The kinds. A call carries its Caller last; a cast has no waiting caller; a signal is exempt from bounds.
CAST = 0  # (CAST, method, args, kwargs)
CALL = 1  # (CALL, method, args, kwargs, call)
INFO = 2  # (INFO, message)
SIGNAL = 3  # (SIGNAL, Down | Exit)
TELL = 4  # (TELL, request)
ASK = 5  # (ASK, request, call)
CONTINUE = 6  # (CONTINUE, token)
INIT = 7  # (INIT, args, kwargs, call)
TERMINATE = 8  # (TERMINATE, reason, entry that led to it or None, pending reply or None)
STOP = 9  # (STOP, reason)
SYSTEM = 10  # (SYSTEM, function, call): introspection, between two messages
TIMEOUT = 11  # (TIMEOUT, message, timer): ignored unless that timer is still the server's

EXEMPT = frozenset((SIGNAL, STOP, SYSTEM))
"""The kinds that a bound neither refuses nor counts."""


class Down(NamedTuple):
    """A monitored process has exited. Delivered exactly once per monitor, after all messages the process had sent."""

    ref: Monitor
    pid: Pid | None
    reason: ExitReason
    name: Hashable | None = None


class Exit(NamedTuple):
    """A linked process exited, or `exit` was called for this one; delivered only to a process that traps exits."""

    pid: Pid
    reason: ExitReason


def make_down(ref: Monitor, pid: Pid | None, reason: ExitReason, name: Any | None) -> Down:
    """Make a `Down` as fast as `make_pid` makes a pid."""
    made: Down = _new(Down, (ref, pid, reason, name))
    return made


def make_exit(pid: Pid, reason: ExitReason) -> Exit:
    """Make an `Exit` as fast as `make_pid` makes a pid."""
    made: Exit = _new(Exit, (pid, reason))
    return made


_new: Any = cast("Any", tuple).__new__  # typed so that checkers do not follow it into what is only partly known


@dataclass(frozen=True, slots=True)
class Timeout:
    """No message came for as long as the last callback asked for."""


IDLE_TIMEOUT = Timeout()


# --- The address of a process: which node, which life of that node, which process.


class Pid(NamedTuple):
    """The address of a process, never reused: `incarnation` changes each time the node starts.

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
    """Make a pid by `tuple.__new__`: a NamedTuple's own constructor takes four times as long."""
    return _pid_new(Pid, (node, incarnation, serial))


# --- Why a process ended: exit reasons are values, matched with ``match``.
# An exit reason is data that travels along links and monitors, is part of reports and decides whether a supervisor
# restarts; an exception is for a caller. `Crash` joins the two: it carries the exception that ended the process.


@dataclass(frozen=True, slots=True)
class Normal:
    """The process finished its work. Links ignore it; a transient child is not restarted."""

    def __str__(self) -> str:
        return "normal"


@dataclass(frozen=True, slots=True)
class Shutdown:
    """An orderly end, requested or chosen by the process; `detail` says more."""

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
    """Code of the process raised `error`, any `BaseException`, and did not catch it."""

    error: BaseException

    def __str__(self) -> str:
        name = type(self.error).__name__
        try:
            text = str(self.error)
        except BaseException:  # noqa: BLE001 - a reason must have a text whatever a user's __str__ does
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
    """Whether the reason is no failure: `Normal` or `Shutdown`, after which a transient child is not restarted."""
    return isinstance(reason, _ORDERLY)


def as_reason(value: object) -> ExitReason:
    """Convert a user's value to an exit reason: a reason stays itself, an exception becomes a `Crash`."""
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
