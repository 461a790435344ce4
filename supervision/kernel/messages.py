"""What lies in a mailbox.

An entry is a plain tuple whose first item is its kind: tuples are what Python makes and takes apart fastest, and
users never see one. What users do see, in `handle_info` and from `receive`, are the frozen values below and
whatever was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Hashable

    from .links import Monitor
    from .pid import Pid
    from .reasons import ExitReason

Entry: TypeAlias = tuple[Any, ...]

# The kinds. A call carries its Call last; a cast has nobody waiting; a signal is exempt from bounds.
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
    """A linked process ended, or somebody called `exit`; only a process that traps exits gets this message."""

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
