"""What a caller of a supervisor can be told, as exceptions.

::

    ActorError
    ├─ BadSpec              a child spec or a flag is wrong (has `field` and `value`); also a ValueError
    ├─ ChildNotFound        the supervisor has no such child
    ├─ AlreadyPresent       a child of that id is known, and does not run now
    │  ├─ AlreadyStarted    … and runs (has `pid`)
    │  ├─ ChildRunning      it runs: stop it first
    │  └─ ChildRestarting   it is being restarted: stop it first
    ├─ MaxChildren          the dynamic supervisor is full (has `limit`)
    └─ StartFailed
       └─ StartRaised       the start function itself failed, not the process that it was to start
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.supervision.kernel import describe
from greenroom.supervision.kernel.errors import ActorError, StartFailed

if TYPE_CHECKING:
    from collections.abc import Hashable

    from greenroom.supervision.kernel.pid import Pid


class BadSpec(ActorError, ValueError):
    """A child spec or a supervisor's flag cannot be: `field` is which, `value` what was given."""

    def __init__(self, field: str, value: object, wanted: str) -> None:
        """`wanted` completes the sentence "`field` must be …"."""
        super().__init__(field, value, wanted)
        self.field = field
        self.value = value
        self.wanted = wanted

    def __str__(self) -> str:
        return f"{self.field} must be {self.wanted}, not {describe.short(self.value)}"


class StartRaised(StartFailed):
    """The start function itself failed: no process has told of it, so the traceback is here alone."""


class ChildNotFound(ActorError):
    """The supervisor has no child of that id; a dynamic one, no child of that pid."""

    def __init__(self, id: object) -> None:
        """`id` is what was asked for."""
        super().__init__(id)
        self.id = id

    def __str__(self) -> str:
        return f"there is no child {self.id!r}"


class AlreadyPresent(ActorError):
    """The supervisor has a child of that id, which is not running: restart or delete that one."""

    def __init__(self, id: Hashable, pid: Pid | None = None) -> None:
        """`pid` is the running child's, if it runs."""
        super().__init__(id, pid)
        self.id = id
        self.pid = pid

    def __str__(self) -> str:
        return f"there is a child {self.id!r} already, which is not running: restart or delete it"


class AlreadyStarted(AlreadyPresent):
    """A child of that id runs, as `pid`."""

    def __str__(self) -> str:
        return f"child {self.id!r} runs already, as {self.pid}"


class ChildRunning(AlreadyPresent):
    """That cannot be done to a child that runs."""

    def __str__(self) -> str:
        return f"child {self.id!r} is running: terminate it first"


class ChildRestarting(AlreadyPresent):
    """That cannot be done to a child that is being restarted."""

    def __str__(self) -> str:
        return f"child {self.id!r} is being restarted: terminate it first"


class MaxChildren(ActorError):
    """The supervisor has as many children as it may, restarting ones included."""

    def __init__(self, limit: int) -> None:
        """`limit` is its `max_children`."""
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"the supervisor has {self.limit} children already, and may not have more"
