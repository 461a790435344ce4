"""What supervisors have to tell: OTP's four reports about children, and the fifth that says all is well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from greenroom.supervision.kernel.reports import Report

from .child_spec import start_text

if TYPE_CHECKING:
    from collections.abc import Hashable

    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.kernel.process_messages import ExitReason, Pid

    from .child_spec import ChildSpec, ChildType, Patience, Restart


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """The child that a report is about, and its spec in short; `count` is more than 1 when it is about several."""

    id: Hashable
    pid: Pid | None
    start: str
    restart: Restart
    shutdown: Patience
    type: ChildType
    significant: bool
    count: int = 1

    def __str__(self) -> str:
        if self.count > 1:
            return f"{self.count} children like {self.id!r}"
        return f"child {self.id!r}" if self.pid is None else f"child {self.id!r} {self.pid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorReport(Report):
    """Something about a child. `pid` and `label` are the supervisor's, `supervisor` is what it is called."""

    context: ClassVar[str]
    supervisor: str
    child: Offender
    ancestors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildTerminated(SupervisorReport):
    """A child ended, by itself and not as it should."""

    context: ClassVar[str] = "child_terminated"
    reason: ExitReason


@dataclass(frozen=True, slots=True, kw_only=True)
class StartError(SupervisorReport):
    """A child did not come up: when the supervisor started, or when it was to be restarted.

    `reported` says whether the child itself has told of it, in a crash report.
    """

    context: ClassVar[str] = "start_error"
    reason: ExitReason
    reported: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownError(SupervisorReport):
    """A child that was told to stop ended, but not of that."""

    context: ClassVar[str] = "shutdown_error"
    reason: ExitReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedMaxRestartIntensity(SupervisorReport):
    """The supervisor gives up: that child was one restart too many within the period."""

    context: ClassVar[str] = "shutdown"
    reason: ExitReason
    intensity: int
    period: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport(SupervisorReport):
    """A child was started; `asked_for` when a caller had asked for it, rather than the supervisor by itself."""

    context: ClassVar[str] = "progress"
    asked_for: bool = False


def make_offender(spec: ChildSpec[Any], pid: Pid | None, count: int = 1) -> Offender:
    """The child, for a report."""
    return Offender(
        id=spec.id,
        pid=pid,
        start=start_text(spec.start),
        restart=spec.restart,
        shutdown=spec.patience,
        type=spec.type,
        significant=spec.significant,
        count=count,
    )


def supervisor_name(process: Process) -> str:
    """What a supervisor is called: its name, or else what it is."""
    return str(process) if not process.names else f"{next(iter(process.names))!s} {process.pid}"


def ancestor_names(process: Process) -> tuple[str, ...]:
    """Where in the tree it stands: its ancestors, nearest first."""
    return tuple(str(ancestor) for ancestor in process.ancestors())
