"""Predicts the whole run of a plan: drives the model's world through the faults and calls to the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from greenroom.supervision.testing import Fault

from .example_plan import (
    GROUPS,
    ORDERS,
    ROOT,
    SIGNALS,
    START,
    STOPS,
    TROUBLES,
    Call,
    Plan,
    Team,
    Worker,
    blueprint,
    boss,
    exact,
    is_dynamic,
    kind_of,
    neighbour,
    target_of,
)
from .model_processes import KILLED, NORMAL, SHUTDOWN, Process
from .model_supervisors import spawn
from .model_workers import SIGNALLED
from .model_world import World, never

CLEAN_UP: float = 8.0
"""Seconds between the rest after the stop and the first kill of what is left, and between two of them."""

Snapshot: TypeAlias = dict[str, list[str]]
"""What `which_children` and `count_children` say, for each supervisor that can answer."""


@dataclass(slots=True)
class Prediction:
    """All that can be seen of a run.

    `history` has the lines of each supervisor, about its children: two supervisors need not agree on an order between
    theirs. `outcomes` has when and how each call ended. `checks` has what the supervisors show just before a fault (and
    last, before and after the stop), None where something is still under way. `leftovers` are the processes that
    outlive their tree, and when they are killed. `starts` counts processes. A plan with `races` cannot be predicted.
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
    """Play the plan in the model's world."""
    world = World()
    seen = Prediction(world.history, world.outcomes, races=world.races)
    outside = Process("outside", 1, None, traps=True)
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


def _look(world: World, tree: Team) -> Snapshot | None:
    if not world.at_rest:
        return None
    shown = {
        str(each.me): [*each.listed(), each.counts()]
        for each in sorted(world.supervisors, key=lambda each: str(each.me))
        if each.me.idle()
    }
    return {**shown, GROUPS: _members(world, tree)}


def _members(world: World, tree: Team) -> list[str]:
    """The living workers, by the roles of their supervisors."""
    groups: dict[str, list[str]] = {}
    for each in world.processes:
        if isinstance(blueprint(tree, each.role), Worker) and each.alive() and each.started is None:
            groups.setdefault(boss(each.role)[0], []).append(str(each))
    return sorted(f"{group}: {', '.join(sorted(found))}" for group, found in groups.items())


def _do(world: World, plan: Plan, number: int, fault: Fault) -> None:
    process = world.cast.get(target_of(fault))
    kind = kind_of(fault)
    living = [each for each in world.processes if each.role == fault.target and each.alive()]
    if not living:
        return
    if fault.reason is None:
        process = living[-1]
    if kind in ORDERS or kind == START:
        above, index = boss(target_of(fault))
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
        world.send(process, ("trouble", kind, exact(0.5, target_of(fault), kind, number)))
    elif kind == "link":
        other = world.cast.get(neighbour(target_of(fault)))
        if other is not None:
            world.send(process, ("trouble", kind, other))
    elif kind in TROUBLES:
        world.send(process, ("trouble", kind))
    else:
        world.send(process, (kind,))


def _call(world: World, number: int, call: Call) -> None:
    process = world.cast.get(call.target)
    if process is None:
        return
    label = f"call {number}"
    seconds = exact(call.seconds, label)
    waiting = world.call(label, process, lambda answer: ("call", call.kind, seconds, answer))
    if call.deadline is not None and waiting.outcome is None:
        when = world.now + exact(call.deadline, label, "deadline")
        world.at(when, f"deadline of {label}", lambda: waiting.settle("timed out"), never)
