"""The reports of supervisors: OTP's four reports of failures, and its progress report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from greenroom.supervision.kernel.process import kind_name
from greenroom.supervision.kernel.reports import Report

from .child_spec import start_name, start_text

if TYPE_CHECKING:
    from collections.abc import Hashable

    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.kernel.process_messages import ExitReason, Pid

    from .child_spec import ChildSpec, ChildType, Patience, Restart


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """The child of a report, with its spec in short; `count` is more than 1 when the report covers several.

    `kind` is the class or the function that runs, or its start function if it never ran.
    """

    id: Hashable
    pid: Pid | None
    start: str
    restart: Restart
    shutdown: Patience
    type: ChildType
    significant: bool
    count: int = 1
    kind: str = ""

    def __str__(self) -> str:
        if self.count > 1:
            return f"{self.count} children like {self.id!r}"
        return f"child {self.id!r}" if self.pid is None else f"child {self.id!r} {self.pid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorReport(Report):
    """The base of reports about a child. `pid`, `label` and `kind` are the supervisor's, `supervisor` is its name."""

    context: ClassVar[str]
    supervisor: str
    child: Offender
    ancestors: tuple[str, ...] = ()
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildTerminated(SupervisorReport):
    """A child exited abnormally, or exited and has to be restarted."""

    context: ClassVar[str] = "child_terminated"
    reason: ExitReason


@dataclass(frozen=True, slots=True, kw_only=True)
class StartError(SupervisorReport):
    """A child did not start, with the supervisor or at a restart.

    `reported` is whether the child itself has emitted a crash report.
    """

    context: ClassVar[str] = "start_error"
    reason: ExitReason
    reported: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownError(SupervisorReport):
    """A stopped child exited with another reason than expected."""

    context: ClassVar[str] = "shutdown_error"
    reason: ExitReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedMaxRestartIntensity(SupervisorReport):
    """The supervisor gives up: restarting that child would exceed the intensity."""

    context: ClassVar[str] = "shutdown"
    reason: ExitReason
    intensity: int
    period: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressReport(SupervisorReport):
    """A child was started; `asked_for` is whether a caller requested it, rather than the supervisor itself.

    `is_restart` is whether an earlier one had ended. A `DynamicSupervisor` reports these only: its other children are started by callers, often one for
    each request.
    """

    context: ClassVar[str] = "progress"
    asked_for: bool = False
    is_restart: bool = False


def make_offender(spec: ChildSpec[Any], pid: Pid | None, count: int = 1, kind: str = "") -> Offender:
    """Describe a child for a report; `kind` is empty for a child that never ran."""
    return Offender(
        id=spec.id,
        pid=pid,
        start=start_text(spec.start),
        restart=spec.restart,
        shutdown=spec.patience,
        type=spec.type,
        significant=spec.significant,
        count=count,
        kind=kind or kind_name(start_name(spec.start)),
    )


def supervisor_name(process: Process) -> str:
    """The name of a supervisor, or else its label."""
    return str(process) if not process.names else f"{next(iter(process.names))!s} {process.pid}"


def ancestor_names(process: Process) -> tuple[str, ...]:
    """The names of its ancestors, nearest first."""
    return tuple(str(ancestor) for ancestor in process.ancestors())
