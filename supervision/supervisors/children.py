"""The children of a supervisor: what it keeps of each, and what it shows of them to others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from greenroom.supervision.behaviours.calls import Ref

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Hashable

    from greenroom.supervision.kernel.pid import Pid

    from .spec import ChildSpec, ChildType

State: TypeAlias = Literal["running", "restarting", "undefined"]
"""A child runs, or is to run and does not come up, or does not run and nobody tries to change that."""

RUNNING: Final = "running"
RESTARTING: Final = "restarting"
UNDEFINED: Final = "undefined"


class Child:
    """One child, as its supervisor keeps it."""

    __slots__ = ("pid", "restarts", "since", "spec", "state", "timer", "tries", "turn")

    def __init__(self, spec: ChildSpec[Any]) -> None:
        """It does not run yet."""
        self.spec = spec
        self.state: State = UNDEFINED
        self.pid: Pid | None = None
        self.restarts = 0  # attempts that succeeded
        self.since = 0.0  # when it last came up
        self.tries = 0  # attempts in a row, since it last ran for a while; counted for a back-off only
        self.turn = 0  # a retry that was asked for in an earlier turn is void
        self.timer: asyncio.TimerHandle | None = None

    def runs_as(self, pid: Pid, now: float) -> None:
        """It was started."""
        self.state = RUNNING
        self.pid = pid
        self.since = now

    def ended(self, state: State) -> None:
        """It does not run any more, or still not; whatever retry was under way is off."""
        self.state = state
        self.pid = None
        self.turn += 1
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class ChildInfo(NamedTuple):
    """A child as `which_children` tells of it."""

    id: Hashable | None
    pid: Pid | None
    state: State
    type: ChildType

    @property
    def ref(self) -> Ref[Any] | None:
        """A handle on it, if it runs."""
        return None if self.pid is None else Ref(self.pid)


class Counts(NamedTuple):
    """How many children: `specs` in all, `active` running, and by type, running or not."""

    specs: int
    active: int
    supervisors: int
    workers: int


def info(child: Child) -> ChildInfo:
    """What is shown of a child."""
    return ChildInfo(child.spec.id, child.pid, child.state, child.spec.type)
