"""`python -m benchmarks.serving.workers`: one process against several on one port, with a load generator in C.

Each connection has one session, which stays with one worker; in a further row, sessions are used through another worker than their own, so that each
call
crosses from one process to the other and back. On a machine with two cores, of which the generator takes a share, the relevant figure is the CPU time
of a
call in all processes together: it is measured beside the rate, and so is the generator's share of a core. `--write` puts the table into the how-to.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenroom.supervision.cluster import os_processes

from .blast_radius import put
from .processes import ROOT, TICKS, Served, serving

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

PAGE = ROOT / "docs" / "how-to" / "scale-out.md"
BEGIN, END = "<!-- figures: python -m benchmarks.serving.workers --write -->", "<!-- end of figures -->"
HERE = Path(__file__).parent
PROGRAM = HERE / "programs" / "worker_server.py"


@dataclass(frozen=True)
class Kind:
    """One row: how it is served, and how it is called."""

    name: str
    workers: int | None
    mode: str
    tool: str
    arguments: str


ECHO = ("echo", '{"text":"hello"}')
WORK = ("work", '{"count":10000}')
KINDS = (
    Kind("a tool that gives back a word: in the program itself", None, "own", *ECHO),
    Kind("… `workers=1`", 1, "own", *ECHO),
    Kind("… `workers=2`", 2, "own", *ECHO),
    Kind("… `workers=2`, each session by way of the other worker", 2, "crossed", *ECHO),
    Kind("a tool that computes for half a millisecond: in the program itself", None, "own", *WORK),
    Kind("… `workers=2`", 2, "own", *WORK),
)


@dataclass(frozen=True)
class Round:
    """The result of one run of the generator, and its cost."""

    rate: float
    p50: float
    p99: float
    busy: float
    cost: float
    """The CPU seconds per call of all the server's processes."""


class NoCompiler(Exception):
    """There is no C compiler, and a generator in Python would be the limit."""


@contextmanager
def generator() -> Generator[Path]:
    """Compile the load generator. Raises `NoCompiler`."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NoCompiler
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "load"
        subprocess.run([compiler, "-O2", "-o", str(made), str(HERE / "load.c")], check=True)  # noqa: S603 - our own file
        yield made


def measure(kind: Kind, load: Path, connections: int, seconds: float, log: Path) -> Round:
    """Start a server, warm it up, and call it for this long."""
    command = [sys.executable, str(PROGRAM), "PORT", *([] if kind.workers is None else [str(kind.workers)])]
    with serving(command, log) as served:
        words = [str(load), str(served.port), str(connections)]
        rest = [kind.mode, kind.tool, kind.arguments]
        _run([*words, "0.5", *rest])
        before = _worked(served)
        output = _run([*words, str(seconds), *rest])
        cost = (_worked(served) - before) / output["calls"]
    return Round(output["rate"], output["p50"], output["p99"], output["busy"], cost)


def _run(command: Sequence[str]) -> dict[str, Any]:
    said = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own program
    output: dict[str, Any] = json.loads(said.stdout)
    if output["wrong"]:
        message = f"{output['wrong']} answers were wrong"
        raise RuntimeError(message)
    return output


def _worked(served: Served) -> float:
    """The CPU seconds of all the server's processes."""
    total = 0
    for pid in (served.pid, *os_processes.descendants(served.pid)):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def table(found: dict[Kind, list[Round]], connections: int) -> str:
    """The table in Markdown: the medians of the rounds."""
    lines = [
        "| | calls/s | a call costs, all processes | p50 | p99 | the generator's share of a core |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for kind, rounds in found.items():
        cells = [
            f"{_median(rounds, 'rate'):,.0f}",
            f"{_median(rounds, 'cost') * 1e3:.2f} ms",
            f"{_median(rounds, 'p50') * 1e3:.1f} ms",
            f"{_median(rounds, 'p99') * 1e3:.0f} ms",
            f"{_median(rounds, 'busy'):.0%}",
        ]
        lines.append(f"| {kind.name} | {' | '.join(cells)} |")
    rounds_held = len(next(iter(found.values())))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    lines.append("")
    lines.append(
        f"{connections} connections with a session each, {cores} cores that the generator shares, Python "
        f"{sys.version.split()[0]}, the median of {rounds_held} rounds of all rows in turn."
    )
    return "\n".join(lines)


def _median(rounds: Sequence[Round], what: str) -> float:
    return float(statistics.median(getattr(each, what) for each in rounds))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write it into the page on request."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving.workers", description="Measures one server process against several."
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--write", action="store_true", help="into the how-to")
    options = parser.parse_args(arguments)
    found: dict[Kind, list[Round]] = {kind: [] for kind in KINDS}
    try:
        with generator() as load, tempfile.TemporaryDirectory() as folder:
            for _ in range(options.rounds):
                for kind in KINDS:
                    found[kind].append(measure(kind, load, options.connections, options.seconds, Path(folder) / "log"))
                    print(f"{kind.name}: {found[kind][-1]}", file=sys.stderr, flush=True)
    except NoCompiler:
        print("there is no C compiler (cc, gcc or clang), and the load generator is in C", file=sys.stderr)
        return 2
    text = table(found, options.connections)
    print(text)
    if options.write:
        put(text, PAGE, BEGIN, END)
    return 0


if __name__ == "__main__":
    sys.exit(main())
