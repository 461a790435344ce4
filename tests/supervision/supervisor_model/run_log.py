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

from .example_plan import boss, is_dynamic

if TYPE_CHECKING:
    import asyncio

    from greenroom.supervision import Node, Ref, Report
    from greenroom.supervision.kernel.process import Process

    from .example_plan import Plan

MARGIN: Final = 50  # starts beyond those predicted: then it is a supervisor that restarts for ever, and starts hang


class Boom(Exception):
    """What workers raise."""


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


class Book:
    """What happened in one run, in the order in which it did."""

    def __init__(self, node: Node, plan: Plan, starts: int, groups: Ref[Groups]) -> None:
        """Nothing has, and so many starts are to come; workers join the group of their supervisor's role."""
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
        """Come back then, or when all is over."""
        loop = self.node.loop
        future: asyncio.Future[None] = loop.create_future()
        self._sleepers[future] = None
        future.add_done_callback(self._sleepers.pop)
        if when is not None:
            loop.call_at(when, _come_back, future)
        return future

    def close(self) -> None:
        """All is over: code that still sleeps after its process has left it behind may go on."""
        self.over = True
        for future in tuple(self._sleepers):
            _come_back(future)

    def note(self, whose: str, line: str) -> None:
        """Something happened among the children of `whose`."""
        self.lines.append((whose, f"{self.node.loop.time():.6f} {line}"))

    def name(self, pid: Pid | None) -> str:
        """Who that is."""
        return "nobody" if pid is None else self.names.get(pid.serial, str(pid))

    def born(self, process: Process, role: str) -> int:
        """A process begins to play a role; returns how many have by now."""
        self.births[role] += 1
        number = self.births[role]
        self.names[process.pid.serial] = f"{role}#{number}"
        self.cast[role] = process.pid
        process.label = role
        self.note(self.above(process), f"start {role}#{number}")
        process.add_exit_waiter(_Witness(self, process))
        return number

    def ready(self, process: Process) -> None:
        """Its init went well."""
        if process.life == ALIVE:
            self.note(self.above(process), f"ready {self.name(process.pid)}")

    def enlist(self, process: Process) -> None:
        """A worker joins the others of its supervisor."""
        self.groups.cast(Groups.join, boss(self.name(process.pid).partition("#")[0])[0], [process.pid])

    def enlisted(self) -> list[str]:
        """Who is in which group."""
        found = [
            f"{group}: {', '.join(sorted(map(self.name, members(self.groups, group))))}"
            for group in which_groups(self.groups)
        ]
        return sorted(found)

    def above(self, process: Process) -> str:
        """Whose child that is."""
        return "outside#1" if process.parent is None else self.names.get(process.parent.pid.serial, "outside#1")

    def outcome(self, label: str, what: str) -> None:
        """A call has ended."""
        if label in self.outcomes:
            self.twice.append(label)
        self.outcomes[label] = (self.node.loop.time(), what)

    @property
    def overrun(self) -> bool:
        """Whether there is a restart loop: more starts than predicted."""
        return self.births.total() > self.starts + MARGIN

    def ended(self, process: Process, whose: str, reason: ExitReason) -> None:
        """It is gone."""
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


def _come_back(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Witness:
    """Sees one process end."""

    def __init__(self, book: Book, process: Process) -> None:
        self._book = book
        self._process = process
        self._whose = book.above(process)

    def on_exit(self, reason: ExitReason) -> None:
        """It is gone."""
        self._book.ended(self._process, self._whose, reason)
