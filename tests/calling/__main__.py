"""The command: `python -m tests.calling [--only NAME] [--write]`, which is `make servers`.

Each row is one server on one transport. When all of them are called, some are then called together, in one host, and others take each other's place
under a client. The page of results is held against what came out; `--write` writes it anew.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .changing import CHANGES, TRANSPORTS, changed
from .grid import STEPS, Outcome, play
from .page import PAGE, SIGNS, page
from .rows import ROWS, TOGETHER
from .together import CHECKS, LAST, together

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from .grid import Row

AT_ONCE = 3
T = TypeVar("T")


async def played(rows: Sequence[Row], folder: Path) -> list[Outcome]:
    """All rows, some at once, since most of their time is waiting."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, row: Row) -> Outcome:
        async with places:
            place = folder / str(number)
            place.mkdir()
            outcome = await play(row, place)
            print(outcome, flush=True)
            return outcome

    return await asyncio.gather(*(one(number, row) for number, row in enumerate(rows)))


async def beside(outcomes: Sequence[Outcome], folder: Path) -> dict[str, str]:
    """Some of them in one host."""
    chosen = {outcome.row.id: outcome.tools for outcome in outcomes if outcome.row.name in TOGETHER}
    wrong = await together([outcome.row for outcome in outcomes if outcome.row.id in chosen], chosen, folder)
    for name in (*CHECKS, LAST):
        print(
            f"{len(chosen)} in one host: {name:<24} {'WRONG ' + wrong[name] if name in wrong else 'right'}", flush=True
        )
    return wrong


async def after_changes(folder: Path) -> dict[str, str]:
    """The errors by change and transport; none for a change that the client coped with."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, name: str, transport: str) -> tuple[str, str]:
        async with places:
            place = folder / f"changing{number}"
            place.mkdir()
            wrong = await changed(name, transport, place)
            print(f"{name}, {transport:<16} {'WRONG ' + wrong if wrong else 'right'}", flush=True)
            return f"{name}, {transport}", wrong

    every = [(name, transport) for name in CHANGES for transport in TRANSPORTS]
    return dict(await asyncio.gather(*(one(number, *each) for number, each in enumerate(every))))


async def until_told(doing: Awaitable[T]) -> T:
    """SIGTERM cancels what this program does, which ends its servers, too."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await doing


def table(outcomes: Sequence[Outcome]) -> str:
    """The grid for a terminal: a column for each step."""
    lines = [f"{'':<44}{' '.join(step[:5].ljust(5) for step in STEPS)}"]
    for outcome in outcomes:
        marks = " ".join(SIGNS[outcome.marks[step]].ljust(5) for step in STEPS)
        lines.append(f"{outcome.row.name:<44}{marks}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Call them all, and print how each fared; 1 when one was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.calling", description="Servers that others wrote, and ours.")
    parser.add_argument("--only", metavar="NAME", default="", help="those with NAME in their name or transport")
    parser.add_argument("--write", action="store_true", help="write the page of results anew")
    options = parser.parse_args(arguments)
    rows = [row for row in ROWS if options.only.lower() in row.name.lower()]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="calling-") as place:
        folder = Path(place).resolve()
        outcomes = asyncio.run(until_told(played(rows, folder)))
        wrong = [f"{outcome.row.name}: {step}" for outcome in outcomes for step in outcome.wrong]
        if not options.only:
            failed = asyncio.run(until_told(beside(outcomes, folder)))
            wrong += [f"in one host: {name}" for name in failed]
            changes = asyncio.run(until_told(after_changes(folder)))
            wrong += [name for name, why in changes.items() if why]
            wrong += _compared(page(outcomes, failed, len(TOGETHER)), write=options.write and not wrong)
    print(table(outcomes))
    print(f"{len(outcomes)} rows, {time.monotonic() - began:.0f} s; wrong: {', '.join(wrong) or 'nothing'}")
    return 1 if wrong or not outcomes else 0


def _compared(text: str, *, write: bool) -> list[str]:
    if write:
        PAGE.write_text(text, encoding="utf-8")
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return []
    return [f"docs/reference/{PAGE.name} is not what came out: python -m tests.calling --write"]


if __name__ == "__main__":
    sys.exit(main())
