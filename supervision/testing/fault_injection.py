"""Fault injection: a process of the node that applies the faults of a plan, each at its time of the loop's clock.

Each fault is also a report, which appears in histories and with failed tests. When the process ends, by itself or with the node, handlers that it made hang
continue, and interceptors that were not triggered are removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from greenroom.supervision.behaviours.task import begin_routine
from greenroom.supervision.kernel import clock
from greenroom.supervision.kernel import process as lifecycle
from greenroom.supervision.kernel.errors import CallTimeout
from greenroom.supervision.kernel.node import ExitFuture
from greenroom.supervision.kernel.process import Behaviour
from greenroom.supervision.kernel.process_lookup import current_node
from greenroom.supervision.kernel.reports import Report
from greenroom.supervision.supervisors.supervision_tree import tree

from .fault_actions import FaultContext, FaultHolds, kind_of, tap_mailbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.kernel.process_messages import ExitReason, Pid
    from greenroom.supervision.supervisors.supervision_tree import Branch

    from .fault_plan import Fault, FaultPlan

LABEL = "fault-injection"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInjected(Report):
    """A fault was applied to that process."""

    fault: Fault

    def __str__(self) -> str:
        return f"fault at {self.fault}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultMissed(Report):
    """A fault was not applied: no process matched, or it cannot be applied to the one that did."""

    fault: Fault
    why: str

    def __str__(self) -> str:
        return f"no fault at {self.fault}, since {self.why}"


class Injection:
    """A running injection; made by `inject`."""

    def __init__(self, plan: FaultPlan) -> None:
        """Begin, in the running node; the times of the plan count from now."""
        for fault in plan:
            kind_of(fault.what)
        self.plan = plan
        self.injected: list[FaultInjected] = []
        self.missed: list[FaultMissed] = []
        node = self._node = current_node()
        self._began = clock.now(node.loop)
        self._holds = FaultHolds(node.loop)
        self._process = begin_routine(node, Injection.run, (self,), {})
        self._process.add_exit_waiter(self)
        # A tap on its own mailbox makes all calls of the node go through mailboxes, so that a run is the same with and without a recorder.
        tap_mailbox(self._process, lambda _, entry, pass_on: pass_on(entry))

    @property
    def pid(self) -> Pid:
        """The pid of the injecting process."""
        return self._process.pid

    @property
    def is_over(self) -> bool:
        """Whether the injection has ended; then it holds nothing any more."""
        return self._holds.is_over

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - the kernel's signature
        """The process has ended: release everything."""
        self._holds.close()

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until all faults were applied. A process that hangs then goes on hanging, until `close` or the node's end."""
        if not await self._holds.finished(timeout):
            raise CallTimeout(timeout or 0.0, self._process, "inject its faults")

    async def close(self) -> None:
        """End the injection: no further fault is applied, and what hangs continues."""
        if not self._holds.is_over:
            gone = ExitFuture(self._node.loop)
            self._process.add_exit_waiter(gone)
            lifecycle.kill(self._process)
            await gone.within(None)

    # --- the process

    async def run(self) -> None:
        """Apply the faults in order, then wait."""
        for fault in self.plan:
            await self._holds.wait(self._began + fault.at)
            self._at(fault)
        self._holds.finish()
        await self._holds.wait(None)  # until it is killed, since it holds what hangs

    def _at(self, fault: Fault) -> None:
        found = find_targets(self._node, fault, but=self._process)
        for process in found:
            self._apply(fault, process)
        if not found:
            self._miss(
                fault,
                self._process,
                f"no process matches {fault.target}" + ("" if fault.which in (0, "all") else " any more"),
            )

    def _apply(self, fault: Fault, process: Process) -> None:
        # Report first, since a fault acts at once: a history with a death before its cause would be hard to read.
        kind = kind_of(fault.what)
        why = kind.needs(process)
        if why is not None:
            self._miss(fault, process, why)
            return
        report = FaultInjected(pid=process.pid, label=process.label, fault=fault)
        self.injected.append(report)
        self._node.reports.emit(report)
        kind.apply(FaultContext(fault, process, self._holds))

    def _miss(self, fault: Fault, process: Process, why: str) -> None:
        report = FaultMissed(pid=process.pid, label=process.label, fault=fault, why=why)
        self.missed.append(report)
        self._node.reports.emit(report)


Injection.run.__qualname__ = LABEL  # the label of the process


async def inject(plan: FaultPlan) -> Injection:
    """Apply a plan in the running node; its times count from now.

    A fault without a matching process is `missed`, which is no error: in another delivery order the process might be there.

    """
    return Injection(plan)


# --- Finding the target processes of a fault, in the tree as it is at that moment.


def find_targets(node: Node, fault: Fault, but: Process | None = None) -> list[Process]:
    """The target processes of a fault, in the order of their start; `but` is never one."""
    target, processes = fault.target, node.processes
    if "/" in target:
        fitting = _find_by_path(node, [part for part in target.split("/") if part], anywhere=not target.startswith("/"))
    elif target.startswith("#"):
        fitting = [processes[int(target[1:])]] if target[1:].isdecimal() and int(target[1:]) in processes else []
    else:
        names = _registered_names if target.startswith("@") else _label_and_classes
        pattern = target.removeprefix("@")
        fitting = [each for each in processes.values() if any(fnmatchcase(name, pattern) for name in names(each))]
    found = [process for process in fitting if not process.life and process is not but]
    if fault.which == "all":
        return found
    return [found[fault.which]] if -len(found) <= fault.which < len(found) else []


def _label_and_classes(process: Process) -> list[str]:
    """The label, and the names of the behaviour's classes below `Behaviour`."""
    mro = type(process.behaviour.inner).__mro__
    return [process.label, *(cls.__name__ for cls in mro[: mro.index(Behaviour)])]


def _registered_names(process: Process) -> list[str]:
    return list(map(str, process.names or ()))


def _find_by_path(node: Node, parts: Sequence[str], *, anywhere: bool) -> list[Process]:
    """All processes matching the path. A leading `/` anchors it at top-level processes; otherwise it may begin anywhere."""
    found: dict[int, Process] = {}
    seen: set[tuple[int, int]] = set()
    root = tree()
    waiting: list[tuple[Branch, int]] = [(each, 0) for each in root.children]
    while waiting:
        branch, at = waiting.pop()
        if (id(branch), at) in seen:
            continue
        seen.add((id(branch), at))
        if anywhere and at == 0:
            waiting += [(each, 0) for each in branch.children]
        if parts[at] == "**":
            waiting += [(each, at) for each in branch.children]
            if at + 1 < len(parts):
                waiting.append((branch, at + 1))
                continue
        elif not _matches_part(branch, parts[at]):
            continue
        if at + 1 < len(parts):
            waiting += [(each, at + 1) for each in branch.children]
        elif branch.pid is not None and (process := node.process(branch.pid)) is not None:
            found[branch.pid.serial] = process
    return [found[serial] for serial in sorted(found)]


def _matches_part(branch: Branch, part: str) -> bool:
    known = (branch.id, branch.name, branch.label)
    return any(each is not None and fnmatchcase(str(each), part) for each in known)
