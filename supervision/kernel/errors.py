"""The exceptions of processes and calls.

::

    GreenroomError
    ├─ InternalError                a bug in greenroom: please report it
    └─ ActorError                 the base of errors about processes
       ├─ ProcessExited           the callee died before it answered (has `reason`)
       │  └─ NotRegistered        no process has that name, or ever had
       ├─ CallTimeout             the deadline passed first; the callee may still be working
       ├─ CallCycle               the call would wait for itself
       ├─ MailboxFull             the callee's bounded mailbox is full
       ├─ AlreadyRegistered       the name is taken (has `pid`)
       ├─ StartFailed             `init` failed (has `reason`)
       │  └─ StartTimeout         `init` took too long, and was killed
       ├─ StartIgnored            `init` chose not to run
       ├─ NoNode                  no node runs in this event loop
       └─ NotAnActor              only a process can do that: link, monitor, receive …

    Quit                          raised by a process itself, to end with a reason

Exceptions are for callers. Between processes, an `ExitReason` travels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.errors import GreenroomError

from .process_messages import as_reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .process_messages import ExitReason, Pid


class InternalError(GreenroomError):
    """A bug in greenroom: this should never happen. Please report it."""


class ActorError(GreenroomError):
    """The base of errors about processes: addresses, deadlines, mailboxes, starts."""


class ProcessExited(ActorError):
    """The callee ended before it answered; `reason` says why, and a crash is this error's cause."""

    def __init__(self, reason: ExitReason, who: object = None) -> None:
        """`who` is how the callee was addressed: its pid or its name."""
        super().__init__(reason, who)
        self.reason = reason
        self.who = who

    def __str__(self) -> str:
        return f"{'the process' if self.who is None else self.who} exited before it answered: {self.reason}"


class NotRegistered(ProcessExited):
    """No process is registered under that name."""

    def __str__(self) -> str:
        return f"no process is registered as {self.who!r}"


class CallTimeout(ActorError):
    """The reply did not come in time. The callee may still be working; its late reply is dropped."""

    def __init__(self, seconds: float, who: object = None, doing: str = "answer") -> None:
        """`doing` is the verb of the message: "did not answer within 5 s"."""
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
        """`limit` is the bound of the mailbox; 0 stands for the bound of a link to another node."""
        super().__init__(who, limit)
        self.who = who
        self.limit = limit

    def __str__(self) -> str:
        if not self.limit:
            return f"cannot send to {self.who}: too much is queued for the link to its node"
        return f"the mailbox of {self.who} is full ({self.limit} messages)"


class AlreadyRegistered(ActorError):
    """The name is taken by `pid`."""

    def __init__(self, name: object, pid: Pid) -> None:
        """`pid` is the process that has the name, and may be used instead."""
        super().__init__(name, pid)
        self.name = name
        self.pid = pid

    def __str__(self) -> str:
        return f"{self.name!r} is already registered by {self.pid}"


class StartFailed(ActorError):
    """The process did not start; `reason` says why, and a crash in `init` is this error's cause."""

    def __init__(self, reason: ExitReason, what: object = None) -> None:
        """`what` is the process, or its label."""
        super().__init__(reason, what)
        self.reason = reason
        self.what = what

    def __str__(self) -> str:
        return f"{'the process' if self.what is None else self.what} did not start: {self.reason}"


class StartTimeout(StartFailed):
    """`init` took longer than the starter would wait; the process was killed."""

    def __init__(self, seconds: float, reason: ExitReason, what: object = None) -> None:
        """`seconds` is the timeout of the start."""
        super().__init__(reason, what)
        self.args = (seconds, reason, what)  # the constructor's arguments, for pickle and copy
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{'the process' if self.what is None else self.what} did not start within {self.seconds:g} s"


class StartIgnored(ActorError):
    """`init` returned `IGNORE`: the process chose not to run, which is not a failure."""


class NoNode(ActorError):
    """No node runs in this event loop."""

    def __init__(self, message: str = "no node runs in this event loop: open one with `async with Node():`") -> None:
        """`message` says what to do."""
        super().__init__(message)


class NotAnActor(ActorError):
    """The operation needs a process, and the calling task belongs to none."""

    def __init__(self, verb: str) -> None:
        """`verb` names the operation."""
        super().__init__(verb)
        self.verb = verb

    def __str__(self) -> str:
        return f"only a process can {self.verb}: call it in a process, or open one here with `async with inbox():`"


class Quit(BaseException):
    """Raise it to end the running process with this reason, from any depth of its code.

    A `BaseException`, so that an `except Exception` on the way does not stop it.
    """

    def __init__(self, reason: ExitReason | BaseException) -> None:
        """`reason` is what links and monitors see; an exception becomes a `Crash`."""
        super().__init__(reason)
        self.reason = as_reason(reason)
