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

from .engine_supervisors import server, spec
from .example_plan import (
    GRACE,
    GROUPS,
    ON_TEAM,
    ON_WORKER,
    ORDERS,
    OWN,
    ROOT,
    START,
    TROUBLES,
    Call,
    Plan,
    Team,
    blueprint,
    boss,
    exact,
    is_dynamic,
    is_task,
    kind_of,
    neighbour,
    target_of,
)
from .run_log import Book, Boom, text

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from greenroom.supervision import Node
    from greenroom.supervision.testing import Seed
    from greenroom.supervision.testing.fault_actions import FaultContext

    from .prediction import Prediction, Snapshot

ATTENTION = 2.0**-12  # an idle supervisor answers at once; no plan has anything else happen so soon

_SIGNALS: dict[str, ExitReason] = {
    "signal_shutdown": SHUTDOWN,
    "signal_crash": Crash(Boom("signal")),
    "signal_normal": NORMAL,
}


@dataclass(slots=True)
class Run:
    """All that was seen of a run."""

    lines: list[tuple[str, str]]
    outcomes: dict[str, tuple[float, str]]
    checks: list[Snapshot | None]
    faults: list[str]

    @property
    def history(self) -> dict[str, list[str]]:
        """The lines, by whose children they are about."""
        found: dict[str, list[str]] = {}
        for whose, line in self.lines:
            found.setdefault(whose, []).append(line)
        return found

    def dump(self) -> str:
        """The whole of it, to compare byte for byte."""
        lines = [f"{line}  ({whose})" for whose, line in self.lines]
        lines += [f"{label}: {when:.6f} {what}" for label, (when, what) in self.outcomes.items()]
        lines += [f"check {number}: {check}" for number, check in enumerate(self.checks)]
        return "\n".join([*lines, *self.faults])


def play(plan: Plan, prediction: Prediction, seed: Seed | None) -> Run:
    """Run a plan. The prediction says when to look, and who has to be killed in the end."""
    played: list[Run] = []

    async def inside() -> None:
        groups = await start(Groups)
        played.append(await Stage(plan, prediction, groups).play())
        await stop(groups)

    try:
        run(inside, seed=seed, kill_grace=GRACE, handle_sigint=False, log=False)
    except LeakError as error:
        if not played:
            raise
        played[0].faults.append(str(error))
    return played[0]


STAGES: WeakKeyDictionary[Node, Stage] = WeakKeyDictionary()
"""Where the faults of a node happen."""


def _happen(moment: FaultContext) -> None:
    stage = STAGES[moment.process.node]
    stage.do(stage.plan.faults.faults.index(moment.fault), moment.fault, moment.process.pid)


for _kind in {*ON_WORKER, *ON_TEAM, *ORDERS, START}:
    fault_kind(OWN + _kind)(_happen)


class Stage:
    """One run, from outside."""

    def __init__(self, plan: Plan, prediction: Prediction, groups: Ref[Groups]) -> None:
        """The node of the running loop is open."""
        self.plan = plan
        self.prediction = prediction
        self.node = current_node()
        self.context = contextvars.copy_context()  # of no process: requests are not the injection's
        self.book = Book(self.node, plan, prediction.starts, groups)
        self.others = set(self.node.processes.values())
        self.checks: list[Snapshot | None] = []
        self.faults: list[str] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.curtain = asyncio.Event()
        self.done = asyncio.Event()

    async def play(self) -> Run:
        """The whole plan."""
        house = asyncio.create_task(self._house())
        STAGES[self.node] = self
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
            for serial in [serial for serial, name in self.book.names.items() if name == who]:
                kill(Pid(self.node.name, self.node.incarnation, serial))
        await self._until(self.prediction.end + 1.0)
        await injection.close()
        await self._leave()
        self.done.set()
        await house
        return Run(self.book.lines, self.book.outcomes, self.checks, self.faults)

    async def _house(self) -> None:
        """The process above the tree, which starts it and tells it to stop."""
        async with inbox("outside"):
            starting = asyncio.create_task(self._start())
            await self.curtain.wait()
            exit(self.book.cast[ROOT], SHUTDOWN)
            await self.done.wait()
            await starting

    async def _start(self) -> None:
        with suppress(StartFailed):
            await start_link(server(self.book, ROOT), self.book, ROOT)

    async def _until(self, when: float) -> None:
        loop = self.node.loop
        if when > loop.time():
            moment: asyncio.Future[None] = loop.create_future()
            loop.call_at(when, moment.set_result, None)
            await moment

    # --- what is done

    def do(self, number: int, fault: Fault, target: Pid) -> None:
        """What our kinds of faults do."""
        kind = kind_of(fault)
        pid = self.book.cast.get(target_of(fault))
        if kind not in ORDERS and kind != START:
            pid = target
        if kind in ORDERS or kind == START:
            above, index = boss(target_of(fault))
            supervisor = target
            if kind == START:
                self._later(f"order {number}", self._hire(supervisor, target_of(fault)))
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
        elif kind in TROUBLES:
            after = exact(0.5, target_of(fault), kind, number) if kind == "task_exit" else 0.0
            other = self.book.cast.get(neighbour(target_of(fault)))
            if kind != "link" or other is not None:
                self._trouble(target_of(fault), pid, (kind, after, other))
        else:
            Ref[Any](pid).send(kind)

    def _trouble(self, role: str, pid: Pid, trouble: tuple[Any, ...]) -> None:
        if is_task(self.plan.tree, role):
            Ref[Any](pid).send(("trouble", *trouble))
        else:
            Ref[Any](pid).cast(server(self.book, role).trouble, *trouble)

    async def _hire(self, supervisor: Pid, role: str) -> None:
        above, index = boss(role)
        team = blueprint(self.plan.tree, above)
        if isinstance(team, Team) and team.template:
            await Ref[DynamicSupervisor](supervisor, None).call(DynamicSupervisor.start_child, role)
        else:
            await start_child(supervisor, spec(self.book, role, index))

    def _order(self, number: int, kind: str, supervisor: Pid, child: object) -> None:
        order: Callable[[Any, Any], Coroutine[Any, Any, Any]] = {
            "terminate_child": terminate_child,
            "restart_child": restart_child,
            "delete_child": delete_child,
        }[kind]
        self._later(f"order {number}", order(supervisor, child))

    def _call(self, number: int, call: Call) -> None:
        pid = self.book.cast.get(call.target)
        if pid is None:
            return
        label = f"call {number}"
        deadline = None if call.deadline is None else exact(call.deadline, label, "deadline")
        ref = Ref[Any](pid, deadline)
        method = getattr(server(self.book, call.target), call.kind)
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
        except BaseException as error:  # noqa: BLE001 - any outcome is one, and only one may come
            self.book.outcome(label, _in_words(error))
        else:
            if label.startswith("call"):
                self.book.outcome(label, "answered" if answer == label else f"answered {answer!r}")
            else:
                self.book.outcome(label, "done" if label.startswith("stop") else "ok")

    # --- what is seen

    async def _look(self) -> None:
        """What the supervisors show, if all is at rest."""
        expected = self.prediction.checks[len(self.checks)]
        if expected is None:
            self.checks.append(None)
            return
        names = {name: serial for serial, name in self.book.names.items()}
        seen: Snapshot = {}
        for name in expected:
            if name == GROUPS:
                seen[name] = self.book.enlisted()
                continue
            try:
                async with asyncio.timeout(ATTENTION):
                    seen[name] = await self._show(Pid(self.node.name, self.node.incarnation, names[name]))
            except (KeyError, TimeoutError, ProcessExited) as error:
                seen[name] = [f"{type(error).__name__}: {error}"]
        self.checks.append(seen)

    async def _show(self, supervisor: Pid) -> list[str]:
        shown: list[str] = []
        for each in await which_children(supervisor):
            role = self.book.name(each.pid)
            state = role if each.state == "running" else each.state
            shown.append(state if each.id is None else f"{each.id}: {state}")
        if is_dynamic(self.plan.tree, self.book.name(supervisor).partition("#")[0]):
            shown.sort()
        counts = await count_children(supervisor)
        words = f"{counts.specs} specs, {counts.active} active"
        return [*shown, f"{words}, {counts.supervisors} supervisors, {counts.workers} workers"]

    async def _leave(self) -> None:
        """No process, request or handler may be left."""
        for process in tuple(self.node.processes.values()):
            if process not in self.others and process.label != "outside":
                self.faults.append(f"{self.book.name(process.pid)} is still there")
                kill(process.pid)
        self.book.close()
        for _ in range(8):
            await asyncio.sleep(0)
        for task in tuple(self.tasks):
            self.faults.append(f"{task.get_name()} has no outcome")
            task.cancel()
        self.faults += [f"{label} has two outcomes" for label in self.book.twice]
        if self.node.workers.busy:
            self.faults.append(f"{self.node.workers.busy} handlers still run")


_IN_WORDS: dict[type[BaseException], str] = {
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


def _in_words(error: BaseException) -> str:
    match error:
        case ProcessExited(reason=reason):
            return f"exited: {text(reason)}"
        case StartFailed(reason=reason):
            return f"failed: {text(reason)}"
        case _:
            return _IN_WORDS.get(type(error)) or f"{type(error).__name__}: {error}"
