"""`python -m benchmarks.serving.blast_radius`: the damage of faulty tools, in our server and in peers' with default settings, as a table.

Each trial has its own server, since few servers survive one. `--write` puts the table into the page of figures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import faults, noisy_neighbours
from .contenders import Contender, ours, theirs
from .processes import ROOT, NotServing, Served, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PAGE = ROOT / "docs" / "explanation" / "blast-radius.md"
BEGIN, END = "<!-- figures: make blast -->", "<!-- end of figures -->"
OURS = Contender("greenroom", "as it ships", ours("faulty_server"))
STAGES = (
    OURS,
    Contender("mcp 2.3.0", "as it ships", theirs("mcp-2", "faulty_mcp")),
    Contender("FastMCP 4.1.2", "as it ships", theirs("fastmcp", "faulty_fastmcp")),
)


@dataclass(frozen=True)
class Trial:
    """One row of the table."""

    name: str
    of_server: Callable[[Served], object] | None = None
    of_command: Callable[[Sequence[str]], object] | None = None
    """The trial for stdio servers."""
    ours_alone: bool = False
    """Only our server has this."""


def _fault(fault: faults.Fault) -> Trial:
    return Trial(f"A tool: {fault.name}", lambda served: faults.try_out(served, fault))


TRIALS = (
    *(_fault(fault) for fault in faults.FAULTS),
    Trial("40 slow `def` calls: a quick `def` call of another tool takes", noisy_neighbours.quick_amid_slow),
    Trial(
        "an `async def` tool is in `time.sleep(5)`: connect and call take",
        lambda served: noisy_neighbours.while_blocked(served, "block"),
    ),
    Trial(
        'the same with `isolation="thread"`',
        lambda served: noisy_neighbours.while_blocked(served, "block_apart"),
        ours_alone=True,
    ),
    Trial("200 MiB on standard input without a newline", of_command=noisy_neighbours.flood),
    Trial("SIGTERM with 1,000 open streams and a `def` tool that never returns", noisy_neighbours.closing),
)


def try_out(trial: Trial, stage: Contender, log: Path) -> str:
    """Run one trial of one server. Returns the cell's text."""
    if trial.ours_alone and stage is not OURS:
        return "not supported"
    try:
        if trial.of_command is not None:
            return str(trial.of_command(["0" if word == "PORT" else word for word in stage.command]))
        assert trial.of_server is not None
        with serving(stage.command, log) as served:
            return str(trial.of_server(served))
    except NotServing as error:
        return f"did not start: {error}"
    except Exception as error:  # noqa: BLE001 - an error is one cell of the table
        return f"the trial failed: {type(error).__name__}"


def table(trials: Sequence[Trial], stages: Sequence[Contender], on_progress: Callable[[str], None]) -> str:
    """The table of all trials and servers, in Markdown."""
    lines = [f"| | {' | '.join(stage.name for stage in stages)} |", "|---" * (len(stages) + 1) + "|"]
    with tempfile.TemporaryDirectory() as folder:
        for trial in trials:
            cells: list[str] = []
            for stage in stages:
                cells.append(try_out(trial, stage, Path(folder) / "log"))
                on_progress(f"{trial.name}, {stage.name}: {cells[-1]}")
            lines.append(f"| {trial.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def put(text: str, page: Path, begin: str = BEGIN, end: str = END) -> None:
    """Write text between the page's markers."""
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected trials, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving.blast_radius", description="Measures the damage of faulty tools."
    )
    parser.add_argument("--only", metavar="WORD", action="append", default=[], help="trials with WORD in their name")
    parser.add_argument("--of", metavar="NAME", action="append", default=[], help="servers with NAME in their name")
    parser.add_argument("--write", action="store_true", help="into the page of figures")
    options = parser.parse_args(arguments)
    trials = [each for each in TRIALS if not options.only or any(word in each.name for word in options.only)]
    stages = [each for each in STAGES if not options.of or any(name in each.name for name in options.of)]
    text = table(trials, stages, lambda line: print(line, file=sys.stderr, flush=True))
    print(text)
    if options.write:
        put(text, PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
