"""Faults that an operator injects into the running program, with what should happen beforehand and what did happen afterwards.

The prediction is made from links, `trap_exit` and the supervisors' strategies, as the tree is at that moment. The faults are those of the test kit, which is loaded with this
module: a program loads it only where it allows faults (`Admin(faults=True)`).
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from greenroom.errors import GreenroomError
from greenroom.supervision.kernel.links import linked
from greenroom.supervision.kernel.process_lookup import detached_task
from greenroom.supervision.supervisors.child_spec import affected_children
from greenroom.supervision.supervisors.supervisor import Supervisor
from greenroom.supervision.supervisors.supervisor_base import BaseSupervisor
from greenroom.supervision.testing.fault_actions import fault_kinds, kind_of
from greenroom.supervision.testing.fault_injection import Injection
from greenroom.supervision.testing.fault_plan import Fault, FaultPlan

from . import process_views
from .event_views import shown
from .view_models import FaultsView
from .view_rows import FaultKindRow, FaultRow, Prediction, ProcessRef

if TYPE_CHECKING:
    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.kernel.process_messages import Pid
    from greenroom.supervision.supervisors.supervisor_base import ChildRecord

    from .observatory import Observatory
    from .process_views import ProcessIndex
    from .view_models import ViewQuery

Ending: TypeAlias = Literal["normal", "shutdown", "crash", "killed"]

MOST_TRIALS: Final = 50
_MOST_SHOWN: Final = 50
_HANG_SECONDS: Final = 5.0
"""How long a process hangs, unless it is ended before."""
_CHECK: Final = 0.25
_QUIET_CHECKS: Final = 2
_LONGEST: Final = 30.0
"""Seconds after which a fault that has had no effect is missed."""

_ENDINGS: Final[dict[str, Ending]] = {
    "kill": "killed",
    "exit": "shutdown",
    "crash": "crash",
    "stop": "normal",
    "raise": "crash",
    "task_exit": "crash",
}
"""The kinds that end their process, and how."""
_WITH_MESSAGE: Final = "it acts when the next message is handled; without one nothing happens"
_HARMLESS: Final = "it ends no process: callers wait, lose a message or get a late reply, and their deadlines decide"
_SECONDS: Final = {"hang": _HANG_SECONDS, "swallow": _HANG_SECONDS}


class FaultRefused(GreenroomError):
    """A fault was not injected; the text says why."""


# --- the prediction


class _Death(NamedTuple):
    """A child that has died, for its supervisor to decide."""

    supervisor: Process
    record: ChildRecord
    ending: Ending


class _Simulation:
    """What follows from the end of one process."""

    def __init__(self, index: ProcessIndex) -> None:
        self.index = index
        self.dies: dict[Process, Ending] = {}
        self.restarts: list[str] = []
        self.gives_up: list[str] = []
        self.stays_away: list[str] = []
        self.notes: dict[str, None] = {}
        self._used: dict[Process, int] = {}
        self._decided: set[ChildRecord] = set()
        self._deaths: deque[_Death] = deque()

    def run(self, process: Process, ending: Ending) -> None:
        """End this process, and let all consequences follow."""
        self._end(process, ending)
        while self._deaths:
            death = self._deaths.popleft()
            if death.supervisor not in self.dies and death.record not in self._decided:
                self._decide(death)

    def _end(self, process: Process, ending: Ending) -> None:
        waiting: deque[tuple[Process, Ending]] = deque([(process, ending)])
        while waiting:
            at, how = waiting.popleft()
            if at in self.dies:
                continue
            self.dies[at] = how
            if at.monitors and at is process:
                self.notes["processes that watch it may do more than the tree shows"] = None
            waiting += self._consequences(at, how)
            found = self.index.supervisor_of(at)
            if found is not None:
                self._deaths.append(_Death(*found, how))

    def _consequences(self, process: Process, ending: Ending) -> list[tuple[Process, Ending]]:
        """The processes that end at once with this one: all children of a supervisor, and what is linked to it."""
        found: list[tuple[Process, Ending]] = []
        if isinstance(process.behaviour.inner, BaseSupervisor):
            below = self.index.below(process)
            found.extend(
                (each.process, "shutdown") for each in below if each.process is not None and each.record is not None
            )
        for other in linked(process):
            if other.is_remote or other in self.dies:
                continue
            if other.trap_exit:
                if other.parent is process:  # a server ends with its parent, whatever it traps
                    found.append((other, ending))
            elif ending != "normal":
                found.append((other, ending))
        return found

    def _decide(self, death: _Death) -> None:
        """What a supervisor does with a child that has died."""
        supervisor, record, ending = death
        self._decided.add(record)
        behaviour: Any = supervisor.behaviour.inner
        restart = record.spec.restart
        path = path_of(supervisor, record, self.index)
        if restart == "permanent" or (restart == "transient" and ending in ("crash", "killed")):
            used = self._used[supervisor] = self._used.get(supervisor, 0) + 1
            facts = process_views.supervisor_facts(supervisor)
            if facts is not None and used > facts.left:
                self.gives_up.append(path_of_process(supervisor, self.index))
                self._end(supervisor, "shutdown")
                return
            backoff = record.spec.backoff or behaviour.restart_backoff
            if backoff is not None:
                self.notes["it comes back after a delay that grows"] = None
            self._restart(supervisor, behaviour, record, path)
            return
        self.stays_away.append(path)
        if (
            isinstance(behaviour, Supervisor)
            and behaviour.restart_flags.auto_shutdown != "never"
            and record.spec.significant
        ):
            others = (each for each in behaviour.children() if each is not record and each.spec.significant)
            if behaviour.restart_flags.auto_shutdown == "any_significant" or all(each.pid is None for each in others):
                self._end(supervisor, "shutdown")

    def _restart(self, supervisor: Process, behaviour: Any, record: ChildRecord, path: str) -> None:
        if not isinstance(behaviour, Supervisor):
            self.restarts.append(path)
            return
        for each in affected_children(behaviour.restart_flags.strategy, list(behaviour.children()), record):
            self._decided.add(each)
            process = None if each.pid is None else self.index.node.process(each.pid)
            if process is not None and each is not record:
                self._end(process, "shutdown")
            if each is record or each.spec.restart != "temporary":
                self.restarts.append(path_of(supervisor, each, self.index))
            else:
                self.stays_away.append(path_of(supervisor, each, self.index))


def path_of_process(process: Process, index: ProcessIndex) -> str:
    """The path of a process in the tree: the ids of the children that lead to it."""
    found = index.supervisor_of(process)
    return shown(process.label) if found is None else path_of(*found, index)


def path_of(supervisor: Process, record: ChildRecord, index: ProcessIndex) -> str:
    """The path of a child."""
    parts = [process_views.text_of(record.spec.id)]
    above = index.supervisor_of(supervisor)
    while above is not None and len(parts) < _MOST_SHOWN:
        parts.append(process_views.text_of(above[1].spec.id))
        above = index.supervisor_of(above[0])
    return "/".join(reversed(parts))


def predict(process: Process, kind: str, index: ProcessIndex) -> tuple[Prediction, list[Process]]:
    """What a fault of this kind should do to a process and to the tree, and the processes that should die."""
    ending = _ENDINGS.get(kind)
    if ending is None:
        return Prediction(uncertain=_HARMLESS), []
    if kind == "exit" and process.trap_exit:
        return Prediction(uncertain="it traps exits, so its own code decides what a signal does"), []
    if (
        kind == "stop"
        and not isinstance(process.behaviour.inner, BaseSupervisor)
        and not hasattr(process.behaviour.inner, "handle_info")
    ):
        ending = "shutdown"
    simulation = _Simulation(index)
    if kind in ("raise", "task_exit"):
        simulation.notes[_WITH_MESSAGE if kind == "raise" else "a task of it ends, which ends the process"] = None
    simulation.run(process, ending)
    dies = list(simulation.dies)
    return (
        Prediction(
            dies=[process_views.ref_of(each) for each in dies[:_MOST_SHOWN]],
            restarts=simulation.restarts[:_MOST_SHOWN],
            gives_up=simulation.gives_up,
            stays_away=simulation.stays_away[:_MOST_SHOWN],
            uncertain="; ".join(simulation.notes),
        ),
        dies,
    )


# --- the trials


@dataclass(slots=True, eq=False)
class _Trial:
    """One fault, from its injection until the tree is quiet."""

    row: FaultRow
    target: Process
    expected: set[Process]
    expected_back: set[str]
    watched: list[Process]
    records: dict[ChildRecord, tuple[Process, str, Pid | None]]
    """The children that are kept alive: their supervisor, their path, and their pid before."""
    injection: Injection
    began: float = 0.0
    quiet: int = 0
    seen: tuple[int, ...] = ()
    task: asyncio.Task[None] | None = field(default=None)


class FaultTrials:
    """The faults that were injected into one program."""

    def __init__(self, observatory: Observatory) -> None:
        """`observatory` shows the program."""
        self._observatory = observatory
        self._trials: deque[_Trial] = deque(maxlen=MOST_TRIALS)
        self._count = 0

    def stop(self) -> None:
        """End all trials that are under way: what hangs continues."""
        for trial in self._trials:
            if trial.task is not None:
                trial.task.cancel()

    async def view(self, query: ViewQuery, head: dict[str, Any], index: ProcessIndex) -> FaultsView:
        """What can be injected, what a chosen fault would do, and what the others did."""
        view = FaultsView(**head, is_allowed=True, faults=[each.row for each in self._trials])
        process = process_views.find_process(index.node, query.pid) if query.pid else None
        if query.pid and process is None:
            view.notes = [f"there is no process {shown(query.pid)} any more"]
        view.kinds = [_kind_row(name, process) for name in fault_kinds()]
        if process is not None:
            found = index.supervisor_of(process)
            place = process_views.TreePlace(process, None if found is None else found[1])
            view.target = process_views.tree_row(place, 0, index)
            if query.kind in fault_kinds():
                view.prediction = predict(process, query.kind, index)[0]
        return view

    async def inject(self, process: Process, kind: str, principal: str) -> str:
        """Inject a fault. Raises `FaultRefused`."""
        if kind not in fault_kinds():
            raise FaultRefused(f"there is no kind of fault {shown(kind)!r}: there are {', '.join(fault_kinds())}")
        why_not = kind_of(kind).needs(process)
        if why_not is not None:
            raise FaultRefused(shown(why_not))
        observatory = self._observatory
        observatory.forget()
        index = await observatory.indexed()
        # After the last wait, so that two operators who inject at once are not both let through.
        if any(each.row.state == "pending" for each in self._trials):
            raise FaultRefused("another fault is under way: wait until the tree is quiet again")
        if process.life:
            raise FaultRefused("the process has ended")
        prediction, dies = predict(process, kind, index)
        path = path_of_process(process, index)
        self._count += 1
        fault = Fault(0.0, kind, f"#{process.pid.serial}", seconds=_SECONDS.get(kind))
        row = FaultRow(
            number=self._count,
            at=observatory.now(),
            kind=kind,
            target=str(process.pid),
            label=shown(process.label),
            path=path,
            principal=shown(principal),
            seed=observatory.node.seed if isinstance(observatory.node.seed, int) else secrets.randbelow(1 << 32),
            plan=FaultPlan.of(
                fault.but(target=f"/{path}" if index.supervisor_of(process) is not None else fault.target)
            ).dump(),
            predicted=prediction,
        )
        supervised = list(index.supervised())
        records = {
            record: (supervisor, path_of(supervisor, record, index), record.pid)
            for _, supervisor, record in supervised
            if record.spec.restart != "temporary"
        }
        kept = [each for each, _, record in supervised if record in records]
        trial = _Trial(
            row=row,
            target=process,
            expected=set(dies),
            expected_back=set(prediction.restarts),
            watched=list(dict.fromkeys([process, *dies, *islice(linked(process), _MOST_SHOWN), *kept])),
            records=records,
            injection=Injection(FaultPlan.of(fault)),
        )
        self._trials.appendleft(trial)
        trial.task = detached_task(self._follow(trial))
        return f"{kind} is injected into {shown(process.label)}"

    async def _follow(self, trial: _Trial) -> None:
        """Wait until the tree is quiet, and compare."""
        loop = self._observatory.node.loop
        trial.began = loop.time()
        try:
            try:
                await trial.injection.wait(_CHECK)
                while not self._is_settled(trial, loop.time() - trial.began):  # noqa: ASYNC110 - no event says that a tree is quiet
                    await asyncio.sleep(_CHECK)
            finally:
                await trial.injection.close()
            self._judge(trial)
        except (
            BaseException
        ):  # also when the program stops being observed: a pending trial would keep out all further ones
            trial.row = _replaced(trial.row, "missed", "it was not followed to its end", [], [])
            raise

    @staticmethod
    def _is_settled(trial: _Trial, passed: float) -> bool:
        """Whether nothing has changed for a while. A fault that waits for a message has more time."""
        records = trial.records
        now = (
            sum(each.life != 0 for each in trial.watched),
            *(each.restarts for each in records),
            *(hash(each.pid) for each in records),
        )
        is_quiet = now == trial.seen and not any(each.state == "restarting" for each in records)
        trial.seen = now
        trial.quiet = trial.quiet + 1 if is_quiet else 0
        waits_for_death = bool(trial.expected) and not trial.target.life
        if trial.row.predicted.uncertain == _HARMLESS or not trial.expected:
            return passed >= 2 * _CHECK * _QUIET_CHECKS and trial.quiet >= _QUIET_CHECKS
        return (trial.quiet >= _QUIET_CHECKS and not waits_for_death) or passed >= _LONGEST

    def _judge(self, trial: _Trial) -> None:
        """Note what has happened beside what was predicted."""
        died = [each for each in trial.watched if each.life]
        back = [
            path
            for record, (supervisor, path, before) in trial.records.items()
            if not supervisor.life and record.pid is not None and record.pid != before
        ]
        missed = trial.injection.missed
        differences: list[str] = []
        unforeseen = [each for each in died if each not in trial.expected]
        survived = [each for each in trial.expected if not each.life]
        lost = trial.expected_back - set(back)
        new = set(back) - trial.expected_back
        for words, found in (
            ("died unforeseen", [shown(each.label) for each in unforeseen]),
            ("did not die", [shown(each.label) for each in survived]),
            ("did not come back", sorted(lost)),
            ("came back unforeseen", sorted(new)),
        ):
            if found:
                differences.append(f"{words}: {', '.join(found[:10])}")
        state: Literal["as_predicted", "otherwise", "missed"] = "otherwise" if differences else "as_predicted"
        text = "; ".join(differences)
        if missed or (trial.expected and not trial.target.life):
            state, text = "missed", shown(missed[0].why) if missed else "no message came on which it could act"
        trial.row = _replaced(trial.row, state, text, died, back)
        trial.watched, trial.records = [], {}
        trial.expected.clear()
        self._observatory.forget()


def _replaced(row: FaultRow, state: Any, text: str, died: list[Process], back: list[str]) -> FaultRow:
    refs = [ProcessRef(pid=str(each.pid), label=shown(each.label), is_alive=False) for each in died[:_MOST_SHOWN]]
    return msgspec.structs.replace(row, state=state, text=text, died=refs, restarted=sorted(back)[:_MOST_SHOWN])


def _kind_row(name: str, process: Process | None) -> FaultKindRow:
    kind = kind_of(name)
    text = (kind.apply.__doc__ or "").strip().partition("\n")[0].replace("`", "")
    why_not = None if process is None else kind.needs(process)
    return FaultKindRow(
        kind=name, text=text or "A kind of this program's own.", why_not="" if why_not is None else shown(why_not)
    )
