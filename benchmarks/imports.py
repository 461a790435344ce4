"""The cost of importing greenroom in a fresh interpreter, and of its command line's help."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from .benchmark_types import Run, benchmark


@benchmark("import greenroom", unit="ms", target=150, repeats=5)
def front_door(run: Run) -> None:
    """The cumulative time that `python -X importtime` reports for `import greenroom`."""
    run.record(import_time("greenroom"))


@benchmark("import greenroom.supervision", unit="ms", repeats=5)
def supervision(run: Run) -> None:
    """The same for the package `greenroom.supervision`, with asyncio and its other imports."""
    run.record(import_time("greenroom.supervision"))


@benchmark("greenroom --help", count=5, unit="ms", clock="wall", target=200, repeats=5)
def command_line(run: Run) -> None:
    """The whole run of `greenroom --help`."""
    program = [str(Path(sys.executable).with_name("greenroom")), "--help"]
    for _ in range(run.count):
        began = time.perf_counter()
        subprocess.run(program, check=True, capture_output=True)  # noqa: S603 - our own program
        run.record(time.perf_counter() - began)


def import_time(module: str) -> float:
    """The seconds of importing a module and the modules that it is the first to import."""
    program = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    done = subprocess.run(program, check=True, capture_output=True, text=True)  # noqa: S603 - our own interpreter
    top = [line.removeprefix("import time:").split("|") for line in done.stderr.splitlines() if "import time:" in line]
    # The parent of a dotted name is listed apart, before it; unindented lines were imported by the program itself.
    ours = [int(cumulative) for _, cumulative, name in top if name[1:] in parents(module)]
    return sum(ours) / 1e6


def parents(module: str) -> list[str]:
    """A module's name and the names of its packages."""
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
