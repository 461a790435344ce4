"""Runs a plan on the real engine: starts the tree, applies the faults, and logs everything that can be observed.

`play` runs a plan once; the same seed gives the same history, byte for byte.

"""

from __future__ import annotations

import asyncio
import contextvars
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from greenroom.supervision import (
    NORMAL,
    SHUTDOWN,
    AlreadyPresent,
    AlreadyRegistered,
    AlreadyStarted,
    CallTimeout,
    ChildNotFound,
    ChildRestarting,
    ChildRunning,
    Crash,
    DynamicSupervisor,
    ExitReason,
    Pid,
    ProcessExited,
    Ref,
    StartFailed,
    StartIgnored,
    count_children,
    current_node,
    delete_child,
    exit,
    inbox,
    kill,
    restart_child,
    start,
    start_child,
    start_link,
    stop,
    terminate_child,
    which_children,
)
from greenroom.supervision.groups import Groups
from greenroom.supervision.testing import Fault, LeakError, fault_kind, inject, run

from .engine_supervisors import spec, worker_class
from .example_plan import (
    GRACE,
    GROUPS,
    OPERATOR_REQUESTS,
    OWN,
    OWN_FAULTS,
    ROOT,
    START,
    SUPERVISOR_FAULTS,
    WORKER_FAULTS,
    Call,
    Plan,
    SupervisorBlueprint,
    blueprint,
    exact,
    fault_kind_of,
    is_dynamic,
    is_task,
    next_role,
    role_of,
    supervisor_of,
)
from .run_log import Boom, RunLog, text

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from greenroom.supervision import Node
    from greenroom.supervision.testing import Seed
    from greenroom.supervision.testing.fault_actions import FaultContext

    from .prediction import Prediction, Snapshot

LOOK_AHEAD = 2.0**-12  # an idle supervisor answers at once, and no event of a plan is so close to another

_SIGNALS: dict[str, ExitReason] = {
    "signal_shutdown": SHUTDOWN,
    "signal_crash": Crash(Boom("signal")),
    "signal_normal": NORMAL,
}


@dataclass(slots=True)
class EngineRun:
    """The observations of a run."""

    lines: list[tuple[str, str]]
    outcomes: dict[str, tuple[float, str]]
    checks: list[Snapshot | None]
    faults: list[str]

    @property
    def history(self) -> dict[str, list[str]]:
        """The lines by supervisor."""
        found: dict[str, list[str]] = {}
        for whose, line in self.lines:
            found.setdefault(whose, []).append(line)
        return found

    def dump(self) -> str:
        """The whole run as text, for comparison."""
        lines = [f"{line}  ({whose})" for whose, line in self.lines]
        lines += [f"{label}: {when:.6f} {what}" for label, (when, what) in self.outcomes.items()]
        lines += [f"check {number}: {check}" for number, check in enumerate(self.checks)]
        return "\n".join([*lines, *self.faults])


def play(plan: Plan, prediction: Prediction, seed: Seed | None) -> EngineRun:
    """Run a plan. The prediction says when to inspect, and which processes must be killed in the end."""
    played: list[EngineRun] = []

    async def inside() -> None:
        groups = await start(Groups)
        played.append(await EngineSession(plan, prediction, groups).play())
        await stop(groups)

    try:
        run(inside, seed=seed, kill_grace=GRACE, handle_sigint=False, log=False)
    except LeakError as error:
        if not played:
            raise
        played[0].faults.append(str(error))
    return played[0]


SESSIONS: WeakKeyDictionary[Node, EngineSession] = WeakKeyDictionary()
"""Apply a fault in the session of its node."""


def _apply_fault(moment: FaultContext) -> None:
    stage = SESSIONS[moment.process.node]
    stage.do(stage.plan.faults.faults.index(moment.fault), moment.fault, moment.process.pid)


for _kind in {*WORKER_FAULTS, *SUPERVISOR_FAULTS, *OPERATOR_REQUESTS, START}:
    fault_kind(OWN + _kind)(_apply_fault)


class EngineSession:
    """One run, driven from outside the tree."""

    def __init__(self, plan: Plan, prediction: Prediction, groups: Ref[Groups]) -> None:
        """Made when the node of the running loop is open."""
        self.plan = plan
        self.prediction = prediction
        self.node = current_node()
        self.context = contextvars.copy_context()  # the requests below belong to no process, and not to the injection
        self.log = RunLog(self.node, plan, prediction.starts, groups)
        self.others = set(self.node.processes.values())
        self.checks: list[Snapshot | None] = []
        self.faults: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.curtain = asyncio.Event()
        self.done = asyncio.Event()

    async def play(self) -> EngineRun:
        """Run the whole plan."""
        house = asyncio.create_task(self._house())
        SESSIONS[self.node] = self
        injection = await inject(self.plan.faults)
        for when, look, number, step in self.plan.looks():
            await self._until(when)
            if look:
                await self._look()
            elif not isinstance(step, Fault):
                self._call(number, step)
        await self._until(self.plan.stop_at)
        await self._look()
        self.curtain.set()
        await self._until(self.prediction.rest + 1.0)
        await self._look()
        for when, who in self.prediction.leftovers:
            await self._until(when)
            for serial in [serial for serial, name in self.log.names.items() if name == who]:
                kill(Pid(self.node.name, self.node.incarnation, serial))
        await self._until(self.prediction.end + 1.0)
        await injection.close()
        await self._leave()
        self.done.set()
        await house
        return EngineRun(self.log.lines, self.log.outcomes, self.checks, self.faults)

    async def _house(self) -> None:
        """The process above the tree, which starts it and tells it to stop."""
        async with inbox("outside"):
            starting = asyncio.create_task(self._start())
            await self.curtain.wait()
            exit(self.log.cast[ROOT], SHUTDOWN)
            await self.done.wait()
            await starting

    async def _start(self) -> None:
        with suppress(StartFailed):
            await start_link(worker_class(self.log, ROOT), self.log, ROOT)

    async def _until(self, when: float) -> None:
        loop = self.node.loop
        if when > loop.time():
            moment: asyncio.Future[None] = loop.create_future()
            loop.call_at(when, moment.set_result, None)
            await moment

    # --- faults and calls

    def do(self, number: int, fault: Fault, target: Pid) -> None:
        """Do a fault of the model's own kinds."""
        kind = fault_kind_of(fault)
        pid = self.log.cast.get(role_of(fault))
        if kind not in OPERATOR_REQUESTS and kind != START:
            pid = target
        if kind in OPERATOR_REQUESTS or kind == START:
            above, index = supervisor_of(role_of(fault))
            supervisor = target
            if kind == START:
                self._later(f"order {number}", self._hire(supervisor, role_of(fault)))
            elif is_dynamic(self.plan.tree, above):
                if pid is not None:
                    self._order(number, kind, supervisor, pid)
            else:
                self._order(number, kind, supervisor, index)
        elif pid is None:
            return
        elif kind == "kill":
            kill(pid)
        elif kind in _SIGNALS:
            exit(pid, _SIGNALS[kind])
        elif kind == "stop_normal":
            self._later(f"stop {number}", stop(pid, NORMAL))
        elif kind == "stop_shutdown":
            self._later(f"stop {number}", stop(pid, SHUTDOWN))
        elif kind in OWN_FAULTS:
            after = exact(0.5, role_of(fault), kind, number) if kind == "task_exit" else 0.0
            other = self.log.cast.get(next_role(role_of(fault)))
            if kind != "link" or other is not None:
                self._trouble(role_of(fault), pid, (kind, after, other))
        else:
            Ref[Any](pid).send(kind)

    def _trouble(self, role: str, pid: Pid, trouble: tuple[Any, ...]) -> None:
        if is_task(self.plan.tree, role):
            Ref[Any](pid).send(("trouble", *trouble))
        else:
            Ref[Any](pid).cast(worker_class(self.log, role).trouble, *trouble)

    async def _hire(self, supervisor: Pid, role: str) -> None:
        above, index = supervisor_of(role)
        team = blueprint(self.plan.tree, above)
        if isinstance(team, SupervisorBlueprint) and team.template:
            await Ref[DynamicSupervisor](supervisor, None).call(DynamicSupervisor.start_child, role)
        else:
            await start_child(supervisor, spec(self.log, role, index))

    def _order(self, number: int, kind: str, supervisor: Pid, child: object) -> None:
        order: Callable[[Any, Any], Coroutine[Any, Any, Any]] = {
            "terminate_child": terminate_child,
            "restart_child": restart_child,
            "delete_child": delete_child,
        }[kind]
        self._later(f"order {number}", order(supervisor, child))

    def _call(self, number: int, call: Call) -> None:
        pid = self.log.cast.get(call.target)
        if pid is None:
            return
        label = f"call {number}"
        deadline = None if call.deadline is None else exact(call.deadline, label, "deadline")
        ref = Ref[Any](pid, deadline)
        method = getattr(worker_class(self.log, call.target), call.kind)
        self._later(label, ref.call(method, label, exact(call.seconds, label)))

    def _later(self, label: str, request: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(self._outcome(label, request), name=label, context=self.context)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _outcome(self, label: str, request: Coroutine[Any, Any, Any]) -> None:
        try:
            answer = await request
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - any exception is an outcome, and there must be exactly one
            self.log.outcome(label, _error_text(error))
        else:
            if label.startswith("call"):
                self.log.outcome(label, "answered" if answer == label else f"answered {answer!r}")
            else:
                self.log.outcome(label, "done" if label.startswith("stop") else "ok")

    # --- observations

    async def _look(self) -> None:
        """The children lists of the supervisors, if everything is at rest."""
        expected = self.prediction.checks[len(self.checks)]
        if expected is None:
            self.checks.append(None)
            return
        names = {name: serial for serial, name in self.log.names.items()}
        seen: Snapshot = {}
        for name in expected:
            if name == GROUPS:
                seen[name] = self.log.enlisted()
                continue
            try:
                async with asyncio.timeout(LOOK_AHEAD):
                    seen[name] = await self._show(Pid(self.node.name, self.node.incarnation, names[name]))
            except (KeyError, TimeoutError, ProcessExited) as error:
                seen[name] = [f"{type(error).__name__}: {error}"]
        self.checks.append(seen)

    async def _show(self, supervisor: Pid) -> list[str]:
        shown: list[str] = []
        for each in await which_children(supervisor):
            role = self.log.name(each.pid)
            state = role if each.state == "running" else each.state
            shown.append(state if each.id is None else f"{each.id}: {state}")
        if is_dynamic(self.plan.tree, self.log.name(supervisor).partition("#")[0]):
            shown.sort()
        counts = await count_children(supervisor)
        words = f"{counts.specs} specs, {counts.active} active"
        return [*shown, f"{words}, {counts.supervisors} supervisors, {counts.workers} workers"]

    async def _leave(self) -> None:
        """Note processes, requests and handlers that are left."""
        for process in tuple(self.node.processes.values()):
            if process not in self.others and process.label != "outside":
                self.faults.append(f"{self.log.name(process.pid)} is still there")
                kill(process.pid)
        self.log.close()
        for _ in range(8):
            await asyncio.sleep(0)
        for task in tuple(self.tasks):
            self.faults.append(f"{task.get_name()} has no outcome")
            task.cancel()
        self.faults += [f"{label} has two outcomes" for label in self.log.twice]
        if self.node.workers.busy:
            self.faults.append(f"{self.node.workers.busy} handlers still run")


_ERROR_TEXTS: dict[type[BaseException], str] = {
    CallTimeout: "timed out",
    StartIgnored: "failed: (ignored)",
    ChildNotFound: "not found",
    ChildRunning: "running",
    ChildRestarting: "restarting",
    AlreadyStarted: "already started",
    AlreadyPresent: "already present",
    TypeError: "not for dynamic",
    AlreadyRegistered: "failed: crash AlreadyRegistered",
}


def _error_text(error: BaseException) -> str:
    match error:
        case ProcessExited(reason=reason):
            return f"exited: {text(reason)}"
        case StartFailed(reason=reason):
            return f"failed: {text(reason)}"
        case _:
            return _ERROR_TEXTS.get(type(error)) or f"{type(error).__name__}: {error}"
