"""Scenario replay: runs a scenario with a fault plan and a delivery order, from Python or from the command line; and shrinks failing plans.

A scenario is an async function without arguments, or with one called `plan` if it injects the faults itself. It runs on virtual time. The same scenario,
plan and seed print the same text, byte for byte, in any interpreter.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .fault_actions import kind_of
from .fault_injection import inject
from .fault_plan import FaultPlan
from .histories import History, HistoryViolation, check, without_addresses
from .history_recorder import Recorder
from .isolated_run import IsolatedRun

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence

    from .fault_plan import Fault

Scenario: TypeAlias = "Callable[..., Any]"


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay."""

    history: History
    error: BaseException | None
    findings: tuple[HistoryViolation, ...]

    @property
    def failed(self) -> bool:
        """Whether the scenario raised, or its history violates an invariant."""
        return self.error is not None or bool(self.findings)

    def fails_like(self, other: ReplayResult) -> bool:
        """Whether both failed with the same type of exception and violations of the same rules."""
        mine, theirs = ((type(each.error), {finding.rule for finding in each.findings}) for each in (self, other))
        return self.failed and mine == theirs

    def text(self) -> str:
        """The history and the failures; the same for each replay of the run."""
        lines = [self.history.text().rstrip()] if self.history.events else []
        lines += [f"wrong: {finding}" for finding in self.findings]
        if self.error is not None:
            words = without_addresses(str(self.error).partition("\n")[0])
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
) -> ReplayResult:
    """Run a scenario in a node of its own, on virtual time, with a plan. An exception becomes part of the result."""
    faults = FaultPlan() if plan is None else plan
    stage = IsolatedRun(seed=seed, log=False)
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
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - part of the result
            error = raised
    return ReplayResult(recorder.history, error, tuple(check(recorder.history, unordered=unordered)))


def load_scenario(where: str) -> Scenario:
    """The function that `file.py:function` names. Raises `LookupError`."""
    path, _, name = where.rpartition(":")
    file = Path(path)
    if not path or not file.is_file():
        raise LookupError(f"{where!r} is not a scenario: give file.py:function")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise LookupError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses and pickle look the module up there
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    scenario: Scenario | None = getattr(module, name, None)
    if scenario is None:
        raise LookupError(f"{path} has no function called {name!r}")
    return scenario


def command_line(arguments: Sequence[str] | None = None) -> int:
    """The command line: ``replay`` prints the history of a scenario, ``shrink`` the smallest plan that makes it fail."""
    parser = argparse.ArgumentParser(
        prog="python -m greenroom.testing", description="Replay a run, or shrink its plan of faults."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for command, words in (
        ("replay", "print the history; the exit status is 1 if the scenario fails"),
        ("shrink", "print the smallest plan found that makes it fail"),
    ):
        each = commands.add_parser(command, help=words, description=words)
        each.add_argument("scenario", help="an async function: file.py:function")
        each.add_argument("plan", nargs="?", help="a file that holds the plan as JSON; none: no faults")
        each.add_argument("--seed", type=int, help="the seed of the delivery order")
        each.add_argument("--messages", action="store_true", help="show casts, tells and plain messages too")
        each.add_argument(
            "--unordered", action="append", default=[], metavar="LABEL", help="a process that may answer out of order"
        )
        if command == "shrink":
            each.add_argument("--tries", type=int, default=MOST_TRIES, help="the maximal number of runs")
    options = parser.parse_args(arguments)
    try:
        scenario = load_scenario(options.scenario)
        plan = FaultPlan() if options.plan is None else FaultPlan.load(Path(options.plan).read_bytes())
    except (LookupError, OSError, ValueError) as error:
        parser.error(str(error))

    def again(faults: FaultPlan) -> ReplayResult:
        return play(scenario, faults, seed=options.seed, messages=options.messages, unordered=options.unordered)

    if options.command == "shrink":
        first = again(plan)
        try:
            smallest = shrink(plan, lambda faults: again(faults).fails_like(first), tries=options.tries)
        except ValueError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        sys.stdout.write(f"{smallest.dump(indent=2)}\n")
        return 0
    played = again(plan)
    sys.stdout.write(played.text())
    return int(played.failed)


# --- Shrinking: finds a smaller plan that still fails, with fewer faults, then rounder times and fewer fields, then simpler kinds.
# Deterministic and bounded by a number of tries. The search is a generator that yields plans and is told whether they failed, so that sync and async
# callers share it.

MOST_TRIES: Final = 200


def shrink(plan: FaultPlan, fails: Callable[[FaultPlan], bool], *, tries: int = MOST_TRIES) -> FaultPlan:
    """The smallest plan found that still `fails`. Raises `ValueError` if the given plan does not."""
    best = _ShrinkState(plan, tries)
    for candidate in _candidate_plans(best):
        best.failed = fails(candidate)
    return best.smallest()


async def shrink_async(
    plan: FaultPlan, fails: Callable[[FaultPlan], bool | Awaitable[bool]], *, tries: int = MOST_TRIES
) -> FaultPlan:
    """`shrink` with a `fails` that may be async."""
    best = _ShrinkState(plan, tries)
    for candidate in _candidate_plans(best):
        result = fails(candidate)
        best.failed = await result if inspect.isawaitable(result) else result
    return best.smallest()


class _ShrinkState:
    """The smallest failing plan so far, and the plans that were tried."""

    def __init__(self, plan: FaultPlan, tries: int) -> None:
        self.plan = plan
        self.failed = False
        """Whether the plan tried last failed."""
        self.fails = False
        """Whether the original plan failed."""
        self._tries = tries
        self._seen: set[FaultPlan] = {plan}

    def try_candidate(self, candidate: FaultPlan) -> Generator[FaultPlan, None, FaultPlan]:
        """Try a candidate, and keep it if it fails. Returns the smallest plan."""
        if candidate not in self._seen and self._tries > 0:
            self._seen.add(candidate)
            self._tries -= 1
            yield candidate
            if self.failed:
                self.plan = candidate
        return self.plan

    def smallest(self) -> FaultPlan:
        """The smallest plan. Raises `ValueError` if the original did not fail."""
        if not self.fails:
            raise ValueError(f"this plan does not fail, so there is nothing to shrink:\n{self.plan}")
        return self.plan


def _candidate_plans(best: _ShrinkState) -> Iterator[FaultPlan]:
    """The plans to try; the caller sets `failed` after each."""
    yield best.plan
    best.fails = best.failed
    before = None
    while best.fails and before != best.plan:
        before = best.plan
        yield from _without_faults(best)
        yield from _with_simpler_faults(best, _rounder_variants)
        yield from _with_simpler_faults(best, _plainer_variants)


def _without_faults(best: _ShrinkState) -> Iterator[FaultPlan]:
    """Delta debugging: leave out halves, then quarters, down to single faults."""
    size = len(best.plan)
    while size:
        at = 0
        while at < len(best.plan):
            faults = best.plan.faults
            smaller = FaultPlan(faults[:at] + faults[at + size :])
            if (yield from best.try_candidate(smaller)) != smaller:
                at += size
        size //= 2


def _with_simpler_faults(best: _ShrinkState, variants: Callable[[Fault], Iterator[Fault]]) -> Iterator[FaultPlan]:
    """For each fault, replace it by its first variant that still fails, until none does."""
    at = 0
    while at < len(best.plan):
        faults = best.plan.faults
        for variant in variants(faults[at]):
            candidate = FaultPlan((*faults[:at], variant, *faults[at + 1 :]))
            if (yield from best.try_candidate(candidate)) == candidate:
                break
        else:
            at += 1


def _rounder_variants(fault: Fault) -> Iterator[Fault]:
    """Variants without unneeded fields and with rounder times, each shorter to write."""
    for field in ("reason", "count", "seconds"):
        if getattr(fault, field) is not None:
            yield fault.but(**{field: None})
    if fault.which != 0:
        yield fault.but(which=0)
    for field in ("at", "seconds"):
        value: float | None = getattr(fault, field)
        if value:
            for digits in (0, 1, 2, 3):
                rounded = round(value, digits)
                if len(f"{rounded:g}") < len(repr(value).removesuffix(".0")):
                    yield fault.but(**{field: rounded})
    if fault.at:
        yield fault.but(at=0.0)


def _plainer_variants(fault: Fault) -> Iterator[Fault]:
    for kind in kind_of(fault.what).simpler:
        yield fault.but(what=kind)


# --- The plan of a failed test in a file, and the command that replays it.


def replay_instructions(
    plan: FaultPlan, test: str, place: Path | None, seed: int | None, shrunk_from: int | None
) -> str:
    """The text for a failed test: the plan, and the command that replays it. `place` is the plan's file, or the folder for a new one."""
    lines = str(plan).splitlines()
    if shrunk_from is not None:
        lines.append(f"(the smallest found, of {shrunk_from} faults)")
    if place is None:
        lines.append(f"as JSON, for --greenroom-plan: {plan.dump()}")
    else:
        file = place
        if not place.is_file():
            place.mkdir(parents=True, exist_ok=True)
            file = place / f"{re.sub(r'[^a-zA-Z0-9]+', '-', test).strip('-')}.json"
            file.write_text(f"{plan.dump(indent=2)}\n", encoding="utf-8")
            here = Path.cwd()
            file = file.relative_to(here) if file.is_relative_to(here) else file
        words = ["pytest", test, f"--greenroom-plan={file}", *([f"--greenroom-seed={seed}"] if seed else [])]
        lines.append(f"again: {shlex.join(words)}")
    return "\n".join(lines)
