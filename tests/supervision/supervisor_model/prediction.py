"""Predicts the whole run of a plan: drives the model's world through the faults and calls to the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from greenroom.supervision.testing import Fault

from .example_plan import (
    GROUPS,
    OPERATOR_REQUESTS,
    OWN_FAULTS,
    ROOT,
    SIGNALS,
    START,
    STOPS,
    Call,
    Plan,
    SupervisorBlueprint,
    WorkerBlueprint,
    blueprint,
    exact,
    fault_kind_of,
    is_dynamic,
    next_role,
    role_of,
    supervisor_of,
)
from .model_processes import KILLED, NORMAL, SHUTDOWN, ModelProcess
from .model_supervisors import spawn
from .model_workers import SIGNALLED
from .model_world import ModelWorld, never

CLEAN_UP: float = 8.0
"""Seconds between the stop and the first kill of a leftover process, and between two kills."""

Snapshot: TypeAlias = dict[str, list[str]]
"""What `which_children` and `count_children` return, for each supervisor that can answer."""


@dataclass(slots=True)
class Prediction:
    """All that can be observed of a run.

    `history` has the lines of each supervisor about its children: the order between two supervisors is not defined. `outcomes` has the time and result of each call.
    `checks` has what the supervisors show just before a fault (and before and after the stop), or None while something is in progress. `leftovers` are the processes
    that outlive the tree, and when they are killed. `starts` counts processes. A plan with `races` cannot be predicted.

    """

    history: dict[str, list[str]]
    outcomes: dict[str, tuple[float, str]]
    checks: list[Snapshot | None] = field(default_factory=list[Snapshot | None])
    leftovers: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    races: list[str] = field(default_factory=list[str])
    starts: int = 0
    rest: float = 0.0
    end: float = 0.0


def predict(plan: Plan) -> Prediction:
    """Run the plan in the model's world."""
    world = ModelWorld()
    seen = Prediction(world.history, world.outcomes, races=world.races)
    outside = ModelProcess("outside", 1, None, traps=True)
    root = spawn(world, plan.tree, ROOT, outside)
    for when, look, number, step in plan.looks():
        world.run(when)
        if look:
            seen.checks.append(_look(world, plan.tree))
        elif isinstance(step, Fault):
            world.step(f"fault {number}", partial(_do, world, plan, number, step))
        else:
            world.step(f"call {number}", partial(_call, world, number, step))
    world.run(plan.stop_at)
    seen.checks.append(_look(world, plan.tree))
    world.step("stop", lambda: world.signal(root, outside, SHUTDOWN))
    world.run()
    seen.checks.append(_look(world, plan.tree))
    seen.rest = max(world.now, plan.stop_at)
    while left := [process for process in world.processes if process.alive()]:
        when = world.now + CLEAN_UP
        seen.leftovers.append((when, str(left[0])))
        world.run(when)
        world.step("clean-up", partial(world.condemn, left[0], KILLED))
        world.run()
    seen.end = world.now
    seen.starts = world.births.total()
    return seen


def _look(world: ModelWorld, tree: SupervisorBlueprint) -> Snapshot | None:
    if not world.at_rest:
        return None
    shown = {
        str(each.me): [*each.listed(), each.counts()]
        for each in sorted(world.supervisors, key=lambda each: str(each.me))
        if each.me.idle()
    }
    return {**shown, GROUPS: _members(world, tree)}


def _members(world: ModelWorld, tree: SupervisorBlueprint) -> list[str]:
    """The living workers by the roles of their supervisors."""
    groups: dict[str, list[str]] = {}
    for each in world.processes:
        if isinstance(blueprint(tree, each.role), WorkerBlueprint) and each.alive() and each.started is None:
            groups.setdefault(supervisor_of(each.role)[0], []).append(str(each))
    return sorted(f"{group}: {', '.join(sorted(found))}" for group, found in groups.items())


def _do(world: ModelWorld, plan: Plan, number: int, fault: Fault) -> None:
    process = world.cast.get(role_of(fault))
    kind = fault_kind_of(fault)
    living = [each for each in world.processes if each.role == fault.target and each.alive()]
    if not living:
        return
    if fault.reason is None:
        process = living[-1]
    if kind in OPERATOR_REQUESTS or kind == START:
        above, index = supervisor_of(role_of(fault))
        supervisor = living[-1]
        if kind == START:
            world.call(f"order {number}", supervisor, lambda call: ("start_child", index, call))
        elif is_dynamic(plan.tree, above) and process is None:
            return
        else:
            world.call(f"order {number}", supervisor, lambda call: ("order", kind, index, process, call))
    elif process is None:
        return
    elif kind == "kill":
        world.condemn(process, KILLED)
    elif kind in SIGNALS:
        world.signal(process, None, SIGNALLED[kind])
    elif kind in STOPS:
        reason = NORMAL if kind == "stop_normal" else SHUTDOWN
        world.call(f"stop {number}", process, lambda call: ("stop", reason), wanted=reason)
    elif kind == "task_exit":
        world.send(process, ("trouble", kind, exact(0.5, role_of(fault), kind, number)))
    elif kind == "link":
        other = world.cast.get(next_role(role_of(fault)))
        if other is not None:
            world.send(process, ("trouble", kind, other))
    elif kind in OWN_FAULTS:
        world.send(process, ("trouble", kind))
    else:
        world.send(process, (kind,))


def _call(world: ModelWorld, number: int, call: Call) -> None:
    process = world.cast.get(call.target)
    if process is None:
        return
    label = f"call {number}"
    seconds = exact(call.seconds, label)
    waiting = world.call(label, process, lambda answer: ("call", call.kind, seconds, answer))
    if call.deadline is not None and waiting.outcome is None:
        when = world.now + exact(call.deadline, label, "deadline")
        world.at(when, f"deadline of {label}", lambda: waiting.settle("timed out"), never)
