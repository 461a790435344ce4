"""The command: `python -m benchmarks [--only NAME]… [--quick] [--list]`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import instructions
from .catalogue import BENCHMARKS, CURVES
from .client import over_http as client_http
from .client import over_stdio as client_stdio
from .cluster import isolation
from .contest_rounds import Effort
from .curves import Curve, Drawn, draw
from .measure import Plan, measure, with_floors
from .result_files import FOLDER, write
from .result_table import HEAD, block, row
from .serving import contest, milestones, modern, stdio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .benchmark_types import Benchmark


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected benchmarks, print and save the results; 1 if a target was missed with `--strict`."""
    options = _parser().parse_args(arguments)
    benchmarks, curves = choose(options.only)
    serving, piped = named(contest.NAME, options.only), named(stdio.NAME, options.only)
    envelopes = named(modern.NAME, options.only)
    asked = named(client_http.NAME, options.only)
    started = named(client_stdio.NAME, options.only)
    apart = named(isolation.NAME, options.only)
    counting = named(instructions.NAME, options.only)
    if options.list:
        print("\n".join(listed(options.only)))
        return 0
    if refused := _refused(options.only):
        print(refused, file=sys.stderr)
        return 2
    plan = Plan.quick() if options.quick else Plan()
    if options.largest is not None:
        plan = replace(plan, largest=options.largest)
    if benchmarks:
        print(HEAD, flush=True)
    results = measure(with_floors(benchmarks), plan, lambda result: print(row(result), flush=True))
    drawn: list[Drawn] = []
    for each in curves:
        drawn.append(draw(each, plan))
        print(f"\n{block(drawn[-1])}", flush=True)
    missed = [result.benchmark.name for result in results if result.met is False]
    if any(result.met is not None for result in results):
        print(f"\n{'missed: ' + ', '.join(missed) if missed else 'all targets met'}")
    effort = Effort.quick() if options.quick else Effort()
    held = None
    if serving:
        held = contest.hold(effort)
        print(f"\n{contest.table(held)}", flush=True)
        reached = [*milestones.of_calls(held), *milestones.reach(rounds=held.effort.rounds)]
        held.milestones = milestones.as_data(reached)
        missed += [each.name for each in reached if not each.met]
        print(f"\n{milestones.table(reached)}", flush=True)
    stdio_results: stdio.Held | None = _reached(stdio, effort, missed) if piped else None
    sessionless: modern.Held | None = _reached(modern, effort, missed) if envelopes else None
    called: client_http.Held | None = _reached(client_http, effort, missed) if asked else None
    programs: client_stdio.Held | None = _reached(client_stdio, effort, missed) if started else None
    isolated: isolation.Held | None = _reached(isolation, effort, missed) if apart else None
    counted = None
    if counting:
        counted = instructions.hold(instructions.Size.quick() if options.quick else instructions.Size())
        missed += counted.missed
        print(f"\n{instructions.table(counted)}", flush=True)
    files = write(
        options.into,
        plan,
        results,
        drawn,
        held,
        stdio_results,
        sessionless=sessionless,
        called=called,
        programs=programs,
        isolated=isolated,
        counted=counted,
    )
    for path in files:
        print(path)
    return 1 if missed and options.strict else 0


def _reached(bench: Any, effort: Effort, missed: list[str]) -> Any:
    """Run a contest with targets, print it, and note the targets that it misses."""
    held = bench.hold(effort)
    missed += [each.name for each in held.milestones if not each.met]
    print(f"\n{bench.table(held)}\n\n{milestones.table(held.milestones)}", flush=True)
    return held


def choose(only: Sequence[str]) -> tuple[list[Benchmark], list[Curve]]:
    """The benchmarks whose names contain one of the words; without words, all."""
    return [each for each in BENCHMARKS if named(each.name, only)], [each for each in CURVES if named(each.name, only)]


def listed(only: Sequence[str]) -> list[str]:
    """The name of each benchmark, and what it measures."""
    benchmarks, curves = choose(only)
    contests = (contest, stdio, modern, client_http, client_stdio, isolation, instructions)
    return [
        *(f"{one.name}\n    {one.about}" for one in benchmarks),
        *(f"{one.name}\n    {one.about}" for one in curves),
        *(f"{one.NAME}\n    {' '.join(one.ABOUT.split())}" for one in contests if named(one.NAME, only)),
    ]


def _refused(only: Sequence[str]) -> str | None:
    """The reason why nothing is measured. Without words, contests that cannot run are left out silently."""
    if not listed(only):
        return f"no benchmark has a name like {' or '.join(only)}; --list prints all names"
    asked = bool(only) and named(instructions.NAME, only)
    return instructions.MISSING if asked and not instructions.installed() else None


def named(name: str, only: Sequence[str]) -> bool:
    """Whether a name contains one of the words, or there are none."""
    return not only or any(word.lower() in name.lower() for word in only)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measures the cost of greenroom, as ratios to floors."
    )
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="only benchmarks with NAME in their name"
    )
    parser.add_argument("--quick", action="store_true", help="few repeats and small sizes")
    parser.add_argument("--list", action="store_true", help="list all benchmarks, and what each measures")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument("--largest", type=_positive, metavar="N", help="no size and no count beyond N")
    parser.add_argument("--into", type=Path, default=FOLDER, metavar="FOLDER", help="where the files go")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        message = f"{number} is less than 1"
        raise argparse.ArgumentTypeError(message)
    return number


if __name__ == "__main__":
    sys.exit(main())
