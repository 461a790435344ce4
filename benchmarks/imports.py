"""What it costs to import greenroom in a fresh interpreter, and to have its command line say what it can do."""

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
    """The same for the whole room, with asyncio and all else that it needs."""
    run.record(import_time("greenroom.supervision"))


@benchmark("greenroom --help", count=5, unit="ms", clock="wall", target=200, repeats=5)
def command_line(run: Run) -> None:
    """From the start of the program to its end: what the command line can do, and no more than that."""
    program = [str(Path(sys.executable).with_name("greenroom")), "--help"]
    for _ in range(run.count):
        began = time.perf_counter()
        subprocess.run(program, check=True, capture_output=True)  # noqa: S603 - our own program
        run.record(time.perf_counter() - began)


def import_time(module: str) -> float:
    """Seconds, of the module and those that nothing had imported before."""
    program = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    done = subprocess.run(program, check=True, capture_output=True, text=True)  # noqa: S603 - our own interpreter
    top = [line.removeprefix("import time:").split("|") for line in done.stderr.splitlines() if "import time:" in line]
    # Of a dotted name the parent is listed apart, before it; what stands at the margin was imported by the program itself.
    ours = [int(cumulative) for _, cumulative, name in top if name[1:] in parents(module)]
    return sum(ours) / 1e6


def parents(module: str) -> list[str]:
    """The module's name, and those of the packages it is in."""
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
