"""What a caller can be told, as exceptions.

::

    GreenroomError
    ├─ InternalError                a promise of ours is broken: please report it
    └─ ActorError                 something about processes
       ├─ ProcessExited           the callee died before it answered (has `reason`)
       │  └─ NotRegistered        no process has that name, or ever had
       ├─ CallTimeout             the deadline passed first; the callee may still be at it
       ├─ CallCycle               the call would wait for itself
       ├─ MailboxFull             the callee's bounded mailbox said no
       ├─ AlreadyRegistered       the name is taken (has `pid`)
       ├─ StartFailed             `init` did not come through (has `reason`)
       │  └─ StartTimeout         `init` took too long, and was killed
       ├─ StartIgnored            `init` chose not to run
       ├─ NoNode                  no node runs in this event loop
       └─ NotAnActor              only a process can do that: link, monitor, receive …

    Quit                          raised by a process itself, to end with a reason

Exceptions are for callers. What travels between processes is an `ExitReason`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.errors import GreenroomError

from .process_messages import as_reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .process_messages import ExitReason, Pid


class InternalError(GreenroomError):
    """This should never happen: a promise of greenroom itself is broken. Please report it."""


class ActorError(GreenroomError):
    """Something about processes: the address, the deadline, the mailbox, the start."""


class ProcessExited(ActorError):
    """The callee ended before it answered; `reason` says why, and a crash is this error's cause."""

    def __init__(self, reason: ExitReason, who: object = None) -> None:
        """`who` is how the callee was addressed: its pid, its name."""
        super().__init__(reason, who)
        self.reason = reason
        self.who = who

    def __str__(self) -> str:
        return f"{'the process' if self.who is None else self.who} exited before it answered: {self.reason}"


class NotRegistered(ProcessExited):
    """No process is registered under that name."""

    def __str__(self) -> str:
        return f"nobody is registered as {self.who!r}"


class CallTimeout(ActorError):
    """The answer did not come in time. The callee may still be working; its late reply is dropped."""

    def __init__(self, seconds: float, who: object = None, doing: str = "answer") -> None:
        """`doing` is the verb that did not happen."""
        super().__init__(seconds, who, doing)
        self.seconds = seconds
        self.who = who
        self.doing = doing

    def __str__(self) -> str:
        return f"{self.who} did not {self.doing} within {self.seconds:g} s"


class CallCycle(ActorError):
    """The call can never be answered: a process on its path waits for the caller."""

    def __init__(self, path: Sequence[object]) -> None:
        """`path` runs from the caller over all processes that wait, back to the caller."""
        super().__init__(tuple(path))
        self.path = tuple(path)

    def __str__(self) -> str:
        steps = " → ".join(str(step) for step in self.path)
        kind = "a process cannot call itself" if self.path[1:-1] == () else "a cycle of calls can never end"
        return f"{kind}: {steps}"


class MailboxFull(ActorError):
    """The callee's mailbox is bounded and full: it is slower than its callers."""

    def __init__(self, who: object, limit: int) -> None:
        """`limit` is the bound that was asked for."""
        super().__init__(who, limit)
        self.who = who
        self.limit = limit

    def __str__(self) -> str:
        if not self.limit:
            return f"there is more to be sent to {self.who} than the link to its node may hold back"
        return f"the mailbox of {self.who} is full ({self.limit} messages)"


class AlreadyRegistered(ActorError):
    """The name is taken by `pid`."""

    def __init__(self, name: object, pid: Pid) -> None:
        """`pid` has the name, and may be the one to use instead."""
        super().__init__(name, pid)
        self.name = name
        self.pid = pid

    def __str__(self) -> str:
        return f"{self.name!r} is already registered by {self.pid}"


class StartFailed(ActorError):
    """The process did not come up; `reason` says why, and a crash in `init` is this error's cause."""

    def __init__(self, reason: ExitReason, what: object = None) -> None:
        """`what` is what was to be started."""
        super().__init__(reason, what)
        self.reason = reason
        self.what = what

    def __str__(self) -> str:
        return f"{'the process' if self.what is None else self.what} did not start: {self.reason}"


class StartTimeout(StartFailed):
    """`init` took longer than the starter would wait; the process was killed."""

    def __init__(self, seconds: float, reason: ExitReason, what: object = None) -> None:
        """`seconds` is what it had."""
        super().__init__(reason, what)
        self.args = (seconds, reason, what)  # what makes another one like it, for pickle and copy
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{'the process' if self.what is None else self.what} did not start within {self.seconds:g} s"


class StartIgnored(ActorError):
    """`init` returned `IGNORE`: the process chose not to run, and that is no failure."""


class NoNode(ActorError):
    """No node runs in this event loop."""

    def __init__(self, message: str = "no node runs in this event loop: open one with `async with Node():`") -> None:
        """The message says what to do."""
        super().__init__(message)


class NotAnActor(ActorError):
    """Only a process can do that, and the calling task is none."""

    def __init__(self, verb: str) -> None:
        """`verb` is what was tried."""
        super().__init__(verb)
        self.verb = verb

    def __str__(self) -> str:
        return f"only a process can {self.verb}: call it in a process, or open one here with `async with inbox():`"


class Quit(BaseException):
    """End the running process with this reason, from however deep in its code.

    A `BaseException`, so that an `except Exception` on the way does not stop it.
    """

    def __init__(self, reason: ExitReason | BaseException) -> None:
        """`reason` is what links and monitors see; an exception becomes a `Crash`."""
        super().__init__(reason)
        self.reason = as_reason(reason)
