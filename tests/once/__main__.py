"""The command: `python -m tests.once [--calls N] [--seed N] [--only LEG…]`, which is `make once`.

Calls tools that must not be executed twice, with faults on the way: each call must have one outcome, which says truly whether the call was executed.
The same seed plans the same faults. Prints a table, and returns 1 if a call violates this.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from .ledger import OUTCOMES
from .routes import LEGS, Leg, Seen

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOWN = 20


async def once(folder: Path, calls: int, seed: int, names: Sequence[str]) -> tuple[list[Leg], list[str]]:
    """Run all these legs at once, with `calls` in total. Returns the legs and the violations."""
    seen = Seen()
    legs = [Leg(name, folder, seed, seen) for name in names]
    share, rest = divmod(calls, len(legs))
    async with asyncio.TaskGroup() as going:  # a leg that fails ends all
        for number, leg in enumerate(legs):
            going.create_task(LEGS[leg.name](leg, share + (number < rest)))
    wrong = [f"process {pid} was left behind" for pid in await seen.left()]
    for leg in legs:
        for line in leg.books.wrong():
            faults = [what for each in leg.balancers for what in each.what.get(line.partition(":")[0], ())]
            wrong.append(f"{line}  [{', '.join(faults) or 'nothing went wrong with it on the way'}]")
    return legs, wrong


def table(legs: Sequence[Leg]) -> str:
    """The table of each leg's outcomes, faults and shots."""
    rows: list[tuple[str, ...]] = [("leg", "calls", *OUTCOMES, "done", "done twice", "faults", "failed over", "shots")]
    for leg in legs:
        counts, done = leg.books.counts(), leg.books.done
        rows.append(
            (
                leg.name,
                *(f"{each:,}" for each in (sum(counts.values()), *(counts[each] for each in OUTCOMES), len(done))),
                f"{sum(times > 1 for times in done.values()):,}",
                f"{sum(sum(each.faults.values()) for each in leg.balancers):,}",
                f"{sum(each.failed_over for each in leg.balancers):,}",
                f"{sum(times for name, times in leg.shots.items() if not name.endswith('missed')):,}",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    for leg in legs:
        lines += [f"{leg.name}: {name}, {times}" for name, times in sorted(leg.shots.items())]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the legs and print the table. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.once", description="Each call once, and one outcome.")
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--only", nargs="+", choices=sorted(LEGS), default=list(LEGS))
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="once-") as place:
        legs, wrong = asyncio.run(once(Path(place), options.calls, options.seed, options.only))
        print(table(legs))
    for line in wrong[:SHOWN]:
        print(f"WRONG  {line}")
    calls = sum(sum(leg.books.counts().values()) for leg in legs)
    print(f"{calls:,} calls in {time.monotonic() - began:.0f} s, {len(wrong)} wrong; again: --seed {options.seed}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
