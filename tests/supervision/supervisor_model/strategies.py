"""Hypothesis strategies for plans: small trees with many behaviours, and bursts of faults with pauses between them.

Every choice is a number below a small bound, and zero is the simplest: that is fast to draw and shrinks well.

"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

from hypothesis import strategies as st

from greenroom.supervision.testing import Fault, FaultPlan

from .example_plan import (
    CALLS,
    OPERATOR_REQUESTS,
    OWN_FAULTS,
    ROOT,
    SIGNALS,
    START,
    STOPS,
    UNEXPECTED,
    Call,
    Plan,
    SupervisorBlueprint,
    WorkerBlueprint,
    blueprint,
    exact,
    fault,
    fault_kind_of,
    is_dynamic,
    role_of,
    supervisor_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .example_plan import AutoShutdown, Blueprint, Failure, Kind, Restart, ShutdownTime, Strategy

T = TypeVar("T")

DEPTH: Final = 4
RESTARTS: Final[tuple[Restart, ...]] = ("permanent", "transient", "permanent", "temporary")
SHUTDOWN_TIMES: Final[tuple[ShutdownTime, ...]] = (1.0, "infinity", "brutal_kill", 0.25, 4.0)
SUPERVISOR_SHUTDOWN_TIMES: Final[tuple[ShutdownTime, ...]] = ("infinity", "infinity", 2.0, 0.5, "brutal_kill")
PAUSES: Final = (0.0, 0.25, 0.75, 2.5, 6.0)
GAPS: Final = (0.25, 64.0, 0.5, 1.0, 0.25, 2.0, 4.0)
KINDS: Final[tuple[Kind, ...]] = ("server", "machine", "server", "task")
FAILURES: Final[tuple[Failure, ...]] = ("raise", "ignore", "stop", "exit", "raise", "hang")
BAD_STARTS: Final = ((), (), (), (), (2,), (2, 3), (3,), (2, 3, 4), (2, 4), (2, 3, 4, 5, 6), (3, 4), (1,))
SUPERVISORS: Final[tuple[Strategy, ...]] = ("one_for_one", "one_for_all", "rest_for_one", "dynamic")
AUTO: Final[tuple[AutoShutdown, ...]] = ("never", "never", "never", "any_significant", "all_significant")
INTENSITIES: Final = (1, 3, 2, 5, 3, 0, 8)
PERIODS: Final = (5, 1, 3, 20)

WORKER_FAULT_KINDS: Final = ("raise", "kill", *OWN_FAULTS, *SIGNALS, *STOPS, *OPERATOR_REQUESTS, "raise", "kill")
SUPERVISOR_FAULT_KINDS: Final = ("kill", *SIGNALS, *STOPS, *OPERATOR_REQUESTS, UNEXPECTED, "kill")
ROOT_FAULT_KINDS: Final = ("kill", *SIGNALS, *STOPS, UNEXPECTED)
AFTERWARDS: Final = (*OPERATOR_REQUESTS[1:], START)  # the requests of an operator who has stopped a child
BEFORE: Final = (-0.125, 0.125, 0.0625)
DEADLINES: Final = (None, 5.0, 1.0)


@cache
def _numbers(below: int) -> st.SearchStrategy[int]:
    return st.integers(0, below - 1)


def _pick(draw: st.DrawFn, options: Sequence[T]) -> T:
    return options[draw(_numbers(len(options)))]


def _worker(draw: st.DrawFn, *, significant: bool) -> WorkerBlueprint:
    """A worker with few features."""
    kind = _pick(draw, KINDS)
    task = kind == "task"
    restart = _pick(draw, RESTARTS)
    starts = _pick(draw, BAD_STARTS)
    habits = draw(_numbers(128))
    traps, ends_ill = bool(habits & 1), bool(habits & 16)
    slow_start = bool(habits & 8) or (starts and ends_ill)
    failure = _pick(draw, FAILURES) if starts else "raise"
    return WorkerBlueprint(
        kind=kind,
        restart=restart,
        significant=significant and restart != "permanent" and bool(habits & 32),
        shutdown=_pick(draw, SHUTDOWN_TIMES),
        named=bool(habits & 64) and not task,
        traps=traps,
        stubborn=habits & 6 == 6,
        init=_pick(draw, PAUSES) if slow_start else 0.0,
        terminate=_pick(draw, PAUSES) if (traps or ends_ill) and not task else 0.0,
        terminate_raises=habits & 50 == 50 and not task,
        failures=dict.fromkeys(starts, "stop" if task and failure == "ignore" else failure),
    )


def _supervisor(draw: st.DrawFn, depth: int, *, significant: bool) -> SupervisorBlueprint:
    """A supervisor and everything below it."""
    strategy = _pick(draw, SUPERVISORS)
    dynamic = strategy == "dynamic"
    top = depth == DEPTH
    auto = "never" if dynamic else _pick(draw, AUTO)
    children: list[Blueprint] = []
    for _ in range(1 if dynamic else 1 + draw(_numbers(4 if top else 3))):
        if depth > 1 and draw(_numbers(3)) == 2:
            children.append(_supervisor(draw, depth - 1, significant=auto != "never"))
        else:
            children.append(_worker(draw, significant=auto != "never"))
    restart = "permanent" if top else _pick(draw, RESTARTS)
    habits = draw(_numbers(32))
    return SupervisorBlueprint(
        strategy=strategy,
        template=dynamic and bool(habits & 1),
        backoff=(0.5, 3.0)[habits & 1] if habits & 24 == 24 else 0.0,
        intensity=_pick(draw, INTENSITIES),
        period=_pick(draw, PERIODS),
        auto_shutdown=auto,
        children=tuple(children),
        restart=restart,
        named=not top and bool(habits & 2),
        significant=significant and restart != "permanent" and bool(habits & 4),
        shutdown="infinity" if top else _pick(draw, SUPERVISOR_SHUTDOWN_TIMES),
    )


class _Roles:
    """The roles of a tree, filled so far."""

    def __init__(self, tree: SupervisorBlueprint) -> None:
        self.tree = tree
        self.workers: list[str] = []
        self.callees: list[str] = []
        self.teams: list[str] = []
        self.next: dict[str, int] = {}
        self.enter(ROOT)

    def enter(self, role: str) -> None:
        """Fill that role, and the roles below it."""
        plan = blueprint(self.tree, role)
        if isinstance(plan, WorkerBlueprint):
            self.workers.append(role)
            if plan.kind != "task":
                self.callees.append(role)
            return
        self.teams.append(role)
        self.next[role] = 0 if plan.strategy == "dynamic" else len(plan.children)
        for index in range(self.next[role]):
            self.enter(f"{role}.{index}")

    def near(self, role: str) -> list[str]:
        """The workers of the same supervisor."""
        return [each for each in self.workers if each.rpartition(".")[0] == role.rpartition(".")[0]]

    def hiring(self) -> list[str]:
        """Supervisors that may be told to start one more: dynamic ones up to three, the others one."""
        return [role for role in self.teams if self.next[role] < self._most(role)]

    def _most(self, role: str) -> int:
        plan = blueprint(self.tree, role)
        assert isinstance(plan, SupervisorBlueprint)
        return 3 if plan.strategy == "dynamic" else len(plan.children) + 1

    def hire(self, role: str) -> str:
        """Add a child."""
        hired = f"{role}.{self.next[role]}"
        self.next[role] += 1
        self.enter(hired)
        return hired


def _fault(draw: st.DrawFn, cast: _Roles, last: Fault | None) -> tuple[str, str]:
    """Draw the next fault."""
    hiring = cast.hiring()
    choice = draw(_numbers(20))
    if last is not None and fault_kind_of(last) == "terminate_child" and choice % 2:
        kind = _pick(draw, AFTERWARDS)
        if kind == START and is_dynamic(cast.tree, supervisor_of(role_of(last))[0]):
            kind = "terminate_child"  # a dynamic supervisor would start a second one beside the first
        return role_of(last), kind
    near = cast.near(role_of(last)) if last is not None and choice < 5 else []
    if near:
        return _pick(draw, near), _pick(draw, WORKER_FAULT_KINDS)
    if hiring and (choice > 16 or not cast.workers):
        return cast.hire(_pick(draw, hiring)), START
    if cast.workers and (choice < 11 or (choice != 13 and not cast.teams[1:])):
        return _pick(draw, cast.workers), _pick(draw, WORKER_FAULT_KINDS)
    if choice != 13 and cast.teams[1:]:
        return _pick(draw, cast.teams[1:]), _pick(draw, SUPERVISOR_FAULT_KINDS)
    return ROOT, _pick(draw, ROOT_FAULT_KINDS)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a plan."""
    tree = _supervisor(draw, DEPTH, significant=False)
    cast = _Roles(tree)
    faults: list[Fault] = []
    calls: list[Call] = []
    now = 0.0
    for number in range(1 + draw(_numbers(10))):
        now += _pick(draw, GAPS)
        target, kind = _fault(draw, cast, faults[-1] if faults else None)
        faults.append(fault(exact(now, "fault", number), target, kind))
        for _ in range(draw(_numbers(4)) if cast.callees else 0):
            at = exact(now + _pick(draw, BEFORE), "call", len(calls))
            habits = draw(_numbers(9))
            seconds, deadline = (0.5, 0.0, 3.0)[habits % 3], DEADLINES[habits // 3]
            calls.append(Call(at, _pick(draw, cast.callees), _pick(draw, CALLS), seconds, deadline))
    calls.sort(key=_when)
    return Plan(tree, FaultPlan(tuple(faults)), tuple(calls), exact(now + _pick(draw, (0.5, 64.0)), "stop"))


def _when(call: Call) -> float:
    return call.at
