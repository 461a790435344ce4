"""Plays a scenario under a plan of faults, in a given order of delivery, and tells what happened; from the command line, too.

A scenario is an async function without arguments, or with one called `plan` if it wants to `inject` that itself. It
runs on virtual time. The same scenario, plan and seed print the same, byte for byte, in any interpreter.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from .checking import Finding, check
from .histories import History, stable
from .injection import inject
from .plans import FaultPlan
from .recorder import Recorder
from .shrinking import TRIES, shrink
from .stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Scenario: TypeAlias = "Callable[..., Any]"


@dataclass(frozen=True, slots=True)
class Played:
    """How a scenario went."""

    history: History
    error: BaseException | None
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> bool:
        """Whether it raised, or its history is not in order."""
        return self.error is not None or bool(self.findings)

    def failed_like(self, other: Played) -> bool:
        """Whether both failed in the same way: by the same type of error, and against the same rules."""
        mine, theirs = ((type(each.error), {finding.rule for finding in each.findings}) for each in (self, other))
        return self.failed and mine == theirs

    def text(self) -> str:
        """The history, and what is wrong: the same for the same run."""
        lines = [self.history.text().rstrip()] if self.history.events else []
        lines += [f"wrong: {finding}" for finding in self.findings]
        if self.error is not None:
            words = stable(str(self.error).partition("\n")[0])
            lines.append(
                f"failed: {type(self.error).__name__}: {words}" if words else f"failed: {type(self.error).__name__}"
            )
        return "".join(f"{line}\n" for line in lines)


def play(
    scenario: Scenario,
    plan: FaultPlan | None = None,
    *,
    seed: int | None = None,
    messages: bool = False,
    unordered: Iterable[str] = (),
) -> Played:
    """Run a scenario in a node of its own, on virtual time, under a plan; what it raises is part of how it went."""
    faults = FaultPlan() if plan is None else plan
    stage = Stage(seed=seed, log=False)
    error: BaseException | None = None

    async def main() -> None:
        if "plan" in inspect.signature(scenario).parameters:
            await scenario(plan=faults)
            return
        if faults:
            await inject(faults)
        await scenario()

    with Recorder(stage.node, messages=messages) as recorder:
        try:
            stage.run(main)
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - that is how it went
            error = raised
    return Played(recorder.history, error, tuple(check(recorder.history, unordered=unordered)))


def load_scenario(where: str) -> Scenario:
    """The function that `file.py:function` names."""
    path, _, name = where.rpartition(":")
    file = Path(path)
    if not path or not file.is_file():
        raise LookupError(f"{where!r} names no scenario: give file.py:function")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise LookupError(f"{path} is no file of Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # as dataclasses and pickle want it
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    scenario: Scenario | None = getattr(module, name, None)
    if scenario is None:
        raise LookupError(f"{path} has no function called {name!r}")
    return scenario


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: ``replay`` prints the history of a scenario, ``shrink`` the smallest plan that makes it fail."""
    parser = argparse.ArgumentParser(
        prog="python -m greenroom.testing", description="Replay a run, or shrink its plan of faults."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for command, words in (
        ("replay", "print what happens; the exit status is 1 if it fails"),
        ("shrink", "print the smallest plan found that makes it fail"),
    ):
        each = commands.add_parser(command, help=words, description=words)
        each.add_argument("scenario", help="an async function: file.py:function")
        each.add_argument("plan", nargs="?", help="a file that holds the plan as JSON; none: no faults")
        each.add_argument("--seed", type=int, help="of the order of delivery")
        each.add_argument("--messages", action="store_true", help="show what is sent without waiting, too")
        each.add_argument(
            "--unordered", action="append", default=[], metavar="LABEL", help="who may answer out of order"
        )
        if command == "shrink":
            each.add_argument("--tries", type=int, default=TRIES, help="how many runs at most")
    given = parser.parse_args(arguments)
    try:
        scenario = load_scenario(given.scenario)
        plan = FaultPlan() if given.plan is None else FaultPlan.load(Path(given.plan).read_bytes())
    except (LookupError, OSError, ValueError) as error:
        parser.error(str(error))

    def again(faults: FaultPlan) -> Played:
        return play(scenario, faults, seed=given.seed, messages=given.messages, unordered=given.unordered)

    if given.command == "shrink":
        first = again(plan)
        try:
            smallest = shrink(plan, lambda faults: again(faults).failed_like(first), tries=given.tries)
        except ValueError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        sys.stdout.write(f"{smallest.dump(indent=2)}\n")
        return 0
    played = again(plan)
    sys.stdout.write(played.text())
    return int(played.failed)
