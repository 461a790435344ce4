"""The model's supervisors: OTP's supervisor implemented a second time, from its description alone.

The model predicts which children restart in which order, when a supervisor gives up, what it reports and what its children list shows.

"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from .example_plan import (
    QUIET,
    ShutdownTime,
    SupervisorBlueprint,
    WorkerBlueprint,
    backoff,
    blueprint,
    is_named,
    shutdown_time,
)
from .model_children import GAVE_UP, UNLINKED, ModelChild, is_accepted_exit
from .model_processes import (
    GONE,
    IGNORED,
    KILLED,
    SHUTDOWN,
    Begun,
    Code,
    Gone,
    ModelProcess,
    Receive,
    WaitCondition,
    crash,
    is_orderly,
)
from .model_workers import Doing, settle, worker

if TYPE_CHECKING:
    from collections.abc import Generator

    from .model_world import ModelWorld

TAKEN: Final = crash("AlreadyRegistered")


@dataclass(eq=False)
class ModelSupervisor:
    """A supervisor: its state and its code."""

    world: ModelWorld
    tree: SupervisorBlueprint
    me: ModelProcess
    plan: SupervisorBlueprint
    children: list[ModelChild] = field(default_factory=list[ModelChild])
    restarts: list[float] = field(default_factory=list[float])

    @property
    def dynamic(self) -> bool:
        """Whether it is a dynamic supervisor."""
        return self.plan.strategy == "dynamic"

    def listed(self) -> list[str]:
        """The children list: last one first; dynamic children unordered and without ids."""
        if self.dynamic:
            return sorted(child.show() for child in self.children)
        return [f"{child.index}: {child.show()}" for child in reversed(self.children)]

    def counts(self) -> str:
        """The counts of `count_children`. A dynamic supervisor does not check whether its children are alive."""
        number = len(self.children)
        running = [child for child in self.children if child.process is not None]
        active = len([child for child in running if child.process and (self.dynamic or child.process.alive())])
        teams = sum(isinstance(self._plan_of(child.index), SupervisorBlueprint) for child in self.children)
        specs = 1 if self.plan.template else number
        return f"{specs} specs, {active} active, {teams} supervisors, {number - teams} workers"

    # --- the main loop

    def code(self) -> Code:
        """The whole life of the supervisor."""
        if not self.dynamic:
            self.children = [self._child(index) for index in range(len(self.plan.children))]
            failed = yield from self._start_all(self.children)
            if failed is not None:
                yield from self._stop_all(self.children)
                return f"shutdown (child {failed[0].index}: {failed[1]})"
        self.world.begun(self.me, None)
        yield from settle(self.me)
        while True:
            reason = yield from self._handle((yield Receive()))
            if reason is not None:
                break
        if self.dynamic:
            yield from self._stop_crowd()
        else:
            yield from self._stop_all(self.children)
        return reason

    def _child(self, index: int) -> ModelChild:
        plan = self._plan_of(index)
        return ModelChild(index, plan.restart, plan.significant)

    def _plan_of(self, index: int) -> WorkerBlueprint | SupervisorBlueprint:
        return blueprint(self.tree, f"{self.me.role}.{index}")

    def _handle(self, message: tuple[Any, ...]) -> Generator[WaitCondition, Any, str | None]:
        match message:
            case ("exit", source, reason) if source is self.me.parent:
                return str(reason)
            case ("exit", source, reason):
                child = next((each for each in self.children if source and each.process is source), None)
                return None if child is None else (yield from self._lost(child, reason))
            case ("retry", child, turn):
                if child in self.children and child.turn == turn:
                    return (yield from self._restart(child))
            case ("attempt", child, turn):
                if child.turn == turn:
                    yield from self._attempt(child)
            case ("stop", reason):
                return str(reason)
            case ("order", kind, index, process, call):
                call.settle((yield from self._obey(kind, index, process)))
            case ("start_child", index, call):
                call.settle((yield from self._add(index)))
            case ("junk",):
                pass
            case _:
                raise AssertionError(message)
        return None

    def _report(self, kind: str, child: ModelChild, reason: str) -> None:
        who = str(child.index)
        if self.dynamic:
            who = "1 of them" if kind == "shutdown_error" else who if child.process else "?"
        self.world.note(self.me, f"report {kind} {who}: {reason}")

    # --- starting and stopping children

    def _start(self, child: ModelChild) -> Generator[WaitCondition, Any, str | None]:
        """Start a child; returns the reason of a failure, or IGNORED."""
        role = f"{self.me.role}.{child.index}"
        if is_named(self.tree, role) and self.world.holder(role, self.me) is not None:
            return TAKEN
        process = spawn(self.world, self.tree, role, self.me)
        outcome: str | None = yield Begun(process)
        if outcome is None:
            child.runs_as(process)
            child.since = self.world.now
        elif outcome == IGNORED:
            child.runs_as(None)
        return outcome

    def _start_all(self, children: list[ModelChild]) -> Generator[WaitCondition, Any, tuple[ModelChild, str] | None]:
        for child in tuple(children):
            outcome = yield from self._start(child)
            if outcome == IGNORED and child.restart == "temporary":
                self.children.remove(child)
            elif outcome not in (None, IGNORED):
                self._report("start_error", child, str(outcome))
                return child, str(outcome)
        return None

    def _stop_all(self, children: list[ModelChild]) -> Doing:
        """Stop the children in reverse order; temporary ones are removed."""
        for child in reversed(tuple(children)):
            yield from self._stop(child)
            if child.restart == "temporary" and child in self.children:
                self.children.remove(child)

    def _stop(self, child: ModelChild) -> Doing:
        process = child.process
        child.runs_as(None)
        if process is None:
            return
        how = self._patience(child)
        was_gone = process.life == GONE
        if how == "brutal_kill":
            self.world.condemn(process, KILLED)
        else:
            self.world.signal(process, self.me, SHUTDOWN)
            if how != "infinity" and not (yield Gone((process,), how)):
                self.world.condemn(process, KILLED)
        yield Gone((process,))
        reason = self._true_reason(process) if was_gone else process.reason
        self.world.part(self.me, process)
        self._flush(process)
        if not is_accepted_exit(reason, child, brutal=how == "brutal_kill"):
            self._report("shutdown_error", child, reason)

    def _true_reason(self, process: ModelProcess) -> str:
        """Stop a child that is gone already: only its exit message has the reason, unless it unlinked."""
        found = any(message[:2] == ("exit", process) for message in self.me.mailbox)
        return process.reason if found else UNLINKED

    def _flush(self, process: ModelProcess) -> None:
        kept = [message for message in self.me.mailbox if message[:2] != ("exit", process)]
        self.me.mailbox.clear()
        self.me.mailbox.extend(kept)

    def _stop_crowd(self) -> Doing:
        """Stop all children of a dynamic supervisor at once, and report per reason."""
        crowd = [(child, child.process, self._patience(child)) for child in self.children if child.process]
        gone = {process for _, process, _ in crowd if process.life == GONE}
        for _, process, how in crowd:
            if how == "brutal_kill":
                self.world.condemn(process, KILLED)
            else:
                self.world.signal(process, self.me, SHUTDOWN)
        began = self.world.now
        processes = tuple(process for _, process, _ in crowd)
        for seconds in sorted({how for _, _, how in crowd if not isinstance(how, str)}):
            if (yield Gone(processes, began + seconds - self.world.now)):
                break
            for _, process, how in crowd:
                if how == seconds:
                    self.world.condemn(process, KILLED)
        yield Gone(processes)
        alike: Counter[tuple[str, int]] = Counter()
        for child, process, how in crowd:
            reason = self._true_reason(process) if process in gone else process.reason
            if not is_accepted_exit(reason, child, brutal=how == "brutal_kill"):
                alike[reason, 0 if self.plan.template else child.index] += 1
        for (reason, _), number in alike.items():
            self.world.note(self.me, f"report shutdown_error {number} of them: {reason}")

    def _patience(self, child: ModelChild) -> ShutdownTime:
        return shutdown_time(self.tree, f"{self.me.role}.{child.index}")

    # --- restarts

    def _lost(self, child: ModelChild, reason: str) -> Generator[WaitCondition, Any, str | None]:
        """Handle the exit of a child."""
        orderly = is_orderly(reason)
        if child.restart == "permanent" or not orderly:
            self._report("child_terminated", child, reason)
        if child.restart == "permanent" or (child.restart == "transient" and not orderly):
            return (yield from self._restart(child))
        self._forget(child)
        return self._auto_shutdown(child)

    def _forget(self, child: ModelChild) -> None:
        child.runs_as(None)
        if child.restart == "temporary" or self.dynamic:
            self.children.remove(child)

    def _auto_shutdown(self, child: ModelChild) -> str | None:
        if not child.significant or self.plan.auto_shutdown == "never":
            return None
        others = any(each.significant and (each.process or each.restarting) for each in self.children)
        return None if self.plan.auto_shutdown == "all_significant" and others else SHUTDOWN

    def _restart(self, child: ModelChild) -> Generator[WaitCondition, Any, str | None]:
        now = self.world.now
        self.restarts = [when for when in self.restarts if now - when <= self.plan.period]
        if len(self.restarts) >= self.plan.intensity:
            self._report("shutdown", child, "reached_max_restart_intensity")
            self._forget(child)
            return GAVE_UP
        self.restarts.append(now)
        delay = self._delay(child)
        if delay:
            yield from self._make_way(child)
            turn = child.turn
            self.world.at(
                self.world.now + delay,
                f"{child.index} of {self.me} waits",
                partial(self._wait_over, child, turn),
                lambda: self.me.alive() and child.turn == turn,
            )
        else:
            yield from self._attempt(child)
        return None

    def _delay(self, child: ModelChild) -> float:
        """The delay before the next attempt: longer each time, until a child has run for a while."""
        if not self.plan.backoff:
            return 0.0
        if child.process is not None and self.world.now - child.since >= QUIET:
            child.tries = 0
        child.tries += 1
        first, longest = backoff(self.tree, f"{self.me.role}.{child.index}")
        return min(longest, first * 2.0 ** (child.tries - 1))

    def _wait_over(self, child: ModelChild, turn: int) -> None:
        if child.turn == turn:
            self.world.send(self.me, ("attempt", child, turn))

    def _affected(self, child: ModelChild) -> list[ModelChild]:
        match self.plan.strategy:
            case "one_for_one" | "dynamic":
                return [child]
            case "rest_for_one":
                return self.children[self.children.index(child) :]
            case "one_for_all":
                return self.children.copy()

    def _make_way(self, child: ModelChild) -> Doing:
        """Restart a child; with its strategy, others are stopped and restarted too."""
        child.to_be_retried(child.process)
        yield from self._stop_all([each for each in self._affected(child) if each is not child])

    def _attempt(self, child: ModelChild) -> Doing:
        yield from self._make_way(child)
        group = self._affected(child)
        if len(group) > 1 or not self.dynamic:
            child.runs_as(None)
        for each in group:
            outcome = yield from self._start(each)
            if outcome == IGNORED and self.dynamic:
                self.children.remove(each)
            elif outcome not in (None, IGNORED):
                self._report("start_error", each, str(outcome))
                each.to_be_retried(None)
                self.me.mailbox.append(("retry", each, each.turn))
                return

    # --- requests of an operator

    def _obey(self, kind: str, index: int, process: ModelProcess | None) -> Generator[WaitCondition, Any, str]:
        if self.dynamic:
            return (yield from self._obey_dynamic(kind, process))
        child = next((each for each in self.children if each.index == index), None)
        if child is None:
            return "not found"
        if kind == "terminate_child":
            yield from self._stop(child)
            self._terminated(child)
            return "ok"
        if child.restarting:
            return "restarting"
        if child.process is not None:
            return "running"
        if kind == "delete_child":
            self.children.remove(child)
            return "ok"
        outcome = yield from self._start(child)
        return "ok" if outcome is None else f"failed: {outcome}"

    def _terminated(self, child: ModelChild) -> None:
        child.runs_as(None)
        if child.restart == "temporary" or self.dynamic:
            self.children.remove(child)

    def _obey_dynamic(self, kind: str, process: ModelProcess | None) -> Generator[WaitCondition, Any, str]:
        if kind != "terminate_child" or process is None:
            return "not for dynamic"
        for child in self.children:
            if child.process is process or (child.restarting and child.formerly is process):
                yield from self._stop(child)
                self._terminated(child)
                return "ok"
        return "not found" if process.life != GONE else "ok"

    def _add(self, index: int) -> Generator[WaitCondition, Any, str]:
        known = next((child for child in self.children if child.index == index), None)
        if known is not None and not self.dynamic:
            return "already started" if known.process is not None else "already present"
        child = self._child(index)
        outcome = yield from self._start(child)
        if outcome is None or (outcome == IGNORED and not self.dynamic and child.restart != "temporary"):
            self.children.append(child)
        return "ok" if outcome is None else f"failed: {outcome}"


def spawn(world: ModelWorld, tree: SupervisorBlueprint, role: str, parent: ModelProcess | None) -> ModelProcess:
    """Start a process in that role."""
    plan = blueprint(tree, role)
    named = is_named(tree, role)
    if isinstance(plan, WorkerBlueprint):
        code = worker(world, plan)
        process = world.create(role, parent, code, named=named, traps=plan.traps, stubborn=plan.stubborn)
        process.tasks = process.tasks or plan.kind == "task"
        return process

    def code_of_team(me: ModelProcess) -> Code:
        supervisor = ModelSupervisor(world, tree, me, plan)
        world.supervisors.append(supervisor)
        return supervisor.code()

    return world.create(role, parent, code_of_team, named=named, traps=True, stubborn=False)
