"""The log of one run, in order: starts, exits with their reasons, reports, and outcomes of calls."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from greenroom.supervision import (
    AlreadyRegistered,
    Crash,
    ExitReason,
    Leaked,
    Pid,
    ProgressReport,
    ReachedMaxRestartIntensity,
    Shutdown,
    SupervisorReport,
)
from greenroom.supervision.groups import Groups, members, which_groups
from greenroom.supervision.kernel.process import ALIVE
from greenroom.supervision.supervisors.supervisor import FailedToStartChild

from .example_plan import is_dynamic, supervisor_of

if TYPE_CHECKING:
    import asyncio

    from greenroom.supervision import Node, Ref, Report
    from greenroom.supervision.kernel.process import Process

    from .example_plan import Plan

MARGIN: Final = 50  # starts beyond the predicted ones: then a supervisor restarts for ever, and further starts hang


class Boom(Exception):
    """The exception of workers."""


def text(reason: ExitReason) -> str:
    """A reason as both sides write it."""
    match reason:
        case Crash(error=AlreadyRegistered()):
            return "crash AlreadyRegistered"
        case Crash(error=error):
            return f"crash {type(error).__name__}: {error}"
        case Shutdown(detail=FailedToStartChild(id=index, reason=why)):
            return f"shutdown (child {index}: {text(why)})"
        case _:
            return str(reason)


class RunLog:
    """The log of one run, in order."""

    def __init__(self, node: Node, plan: Plan, starts: int, groups: Ref[Groups]) -> None:
        """An empty log for a plan with so many predicted starts; workers join the group of their supervisor's role."""
        self.groups = groups
        self.starts = starts
        self.node = node
        self.plan = plan
        self.over = False
        self.lines: list[tuple[str, str]] = []
        self.outcomes: dict[str, tuple[float, str]] = {}
        self.twice: list[str] = []
        self.cast: dict[str, Pid] = {}
        self.names: dict[int, str] = {}
        self.births: Counter[str] = Counter()
        self._leaked: set[Pid] = set()
        self._sleepers: dict[asyncio.Future[None], None] = {}
        node.reports.subscribe(self._report)

    def wake(self, when: float | None) -> asyncio.Future[None]:
        """Sleep until then, or until the run is over."""
        loop = self.node.loop
        future: asyncio.Future[None] = loop.create_future()
        self._sleepers[future] = None
        future.add_done_callback(self._sleepers.pop)
        if when is not None:
            loop.call_at(when, _resume, future)
        return future

    def close(self) -> None:
        """End the run: code that still sleeps after its process is gone may continue."""
        self.over = True
        for future in tuple(self._sleepers):
            _resume(future)

    def note(self, whose: str, line: str) -> None:
        """Append a line about a child of `whose`."""
        self.lines.append((whose, f"{self.node.loop.time():.6f} {line}"))

    def name(self, pid: Pid | None) -> str:
        """The role and number of a process."""
        return "no process" if pid is None else self.names.get(pid.serial, str(pid))

    def born(self, process: Process, role: str) -> int:
        """Log the start of a process in a role; returns how many it has had."""
        self.births[role] += 1
        number = self.births[role]
        self.names[process.pid.serial] = f"{role}#{number}"
        self.cast[role] = process.pid
        process.label = role
        self.note(self.above(process), f"start {role}#{number}")
        process.add_exit_waiter(_ExitCallback(self, process))
        return number

    def ready(self, process: Process) -> None:
        """Log a successful init."""
        if process.life == ALIVE:
            self.note(self.above(process), f"ready {self.name(process.pid)}")

    def enlist(self, process: Process) -> None:
        """Add a worker to its supervisor's group."""
        self.groups.cast(Groups.join, supervisor_of(self.name(process.pid).partition("#")[0])[0], [process.pid])

    def enlisted(self) -> list[str]:
        """The members of all groups."""
        found = [
            f"{group}: {', '.join(sorted(map(self.name, members(self.groups, group))))}"
            for group in which_groups(self.groups)
        ]
        return sorted(found)

    def above(self, process: Process) -> str:
        """The supervisor of a process."""
        return "outside#1" if process.parent is None else self.names.get(process.parent.pid.serial, "outside#1")

    def outcome(self, label: str, what: str) -> None:
        """Log the outcome of a call."""
        if label in self.outcomes:
            self.twice.append(label)
        self.outcomes[label] = (self.node.loop.time(), what)

    @property
    def overrun(self) -> bool:
        """Whether there are more starts than predicted, as in a restart loop."""
        return self.births.total() > self.starts + MARGIN

    def ended(self, process: Process, whose: str, reason: ExitReason) -> None:
        """Log the exit of a process."""
        leaked = " (leaked)" if process.pid in self._leaked else ""
        self.note(whose, f"end {self.name(process.pid)}: {text(reason)}{leaked}")

    def _report(self, report: Report) -> None:
        if isinstance(report, Leaked):
            self._leaked.add(report.pid)
        elif isinstance(report, SupervisorReport) and not isinstance(report, ProgressReport):
            reason = getattr(report, "reason", None)
            assert reason is not None
            what = text(reason)
            if isinstance(report, ReachedMaxRestartIntensity):
                what = "reached_max_restart_intensity"
            self.note(self.name(report.pid), f"report {report.context} {self._who(report)}: {what}")

    def _who(self, report: SupervisorReport) -> str:
        if self.node.process(report.pid) is None:
            return "?"
        role = self.name(report.pid).partition("#")[0]
        if not is_dynamic(self.plan.tree, role):
            return str(report.child.id)
        if report.context == "shutdown_error":
            return f"{report.child.count} of them"
        return "?" if report.child.pid is None else self.name(report.child.pid).partition("#")[0].rpartition(".")[2]


def _resume(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _ExitCallback:
    """Logs the exit of one process."""

    def __init__(self, log: RunLog, process: Process) -> None:
        self._book = log
        self._process = process
        self._whose = log.above(process)

    def on_exit(self, reason: ExitReason) -> None:
        """Log the exit."""
        self._book.ended(self._process, self._whose, reason)
