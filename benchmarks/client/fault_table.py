"""`python -m benchmarks.client.fault_table`: clients whose server dies or misbehaves, ours and others, as a table.

Each cell is a separate program, since some clients do not survive a trial. `--write` puts the table into the page of figures.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contest_rounds import Program
from benchmarks.serving.blast_radius import put
from benchmarks.serving.contenders import PEERS
from benchmarks.serving.processes import ROOT, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PAGE = ROOT / "docs" / "explanation" / "under-fire.md"
MARKS = "<!-- figures: make fire -->", "<!-- end of figures -->"
HERE = Path(__file__).parent
ROUNDS = 9
LONGEST = 180.0
"""The time limit of one cell in seconds."""


def _peer(environment: str, script: str) -> tuple[str, ...]:
    return str(PEERS / environment / "bin" / "python"), str(HERE / "peers" / f"{script}.py")


OURS = Program("greenroom", (sys.executable, "-m", "benchmarks.client.faults_greenroom"))
DRIVERS = (
    OURS,
    Program("greenroom, in a session", (sys.executable, "-m", "benchmarks.client.faults_session")),
    Program("mcp 2.3.0", _peer("mcp-2", "faults_mcp")),
    Program("FastMCP 4.1.2", _peer("fastmcp", "faults_fastmcp")),
)
SERVER = [sys.executable, str(HERE / "killed_server.py")]


@dataclass(frozen=True)
class Trial:
    """One row of the table: the drivers' arguments, and the text of their results."""

    name: str
    scenario: str
    cell: Callable[[dict[str, Any]], str]
    asked: dict[str, Any] = field(default_factory=dict[str, Any])


def _seconds(value: float | None) -> str:
    if value is None:
        return "never"
    return f"{1e3 * max(value, 0.0):.1f} ms" if value < 1 else f"{value:.1f} s"


def _callers(found: dict[str, Any]) -> str:
    if found["hanging"]:
        return f"callers: {found['hanging']} hang, 10 s and more"
    slowest = f" ({_seconds(found['slowest'])} at most)" if "slowest" in found else ""
    return f"callers: `{'`, `'.join(found['errors'])}` after {_seconds(found['notified_after'])}{slowest}"


def shot(found: dict[str, Any]) -> str:
    """The result of deaths in the middle of calls."""
    if found["back"] is not None:
        back = (
            f"next call: answered after {_seconds(found['back'])} (the server's own start: {_seconds(found['start'])})"
        )
    else:
        back = f"dead for good: `{found['again']}`"
    others = found["neighbours"]
    noticed = f"{others['failed']} of {others['calls']:,} lost" if others["failed"] else "nothing"
    return f"{_callers(found)}; {back}; neighbours notice: {noticed}"


def restarted(found: dict[str, Any]) -> str:
    """The result of a restarted HTTP server."""
    if found["back"] is None:
        back = f"dead for good: `{found['again']}`"
    else:
        back = f"works {_seconds(found['back'])} after it listens again"
    return f"{_callers(found)}; {back}"


def stopped(found: dict[str, Any]) -> str:
    """The result of a stopped server."""
    back = "replaced by a new one" if found["back"] else "never works again"
    return f"caller: {_end(found)} after {_seconds(found['took'])}; {back}"


def misled(found: dict[str, Any]) -> str:
    """The result of a misbehaving server."""
    later = "goes on" if found["lists"] else "never works again"
    return f"caller: {_end(found)} after {_seconds(found['took'])}; {later}"


def _end(found: dict[str, Any]) -> str:
    if found["error"] == "nothing":
        return "nothing"
    if found["error"] is not None:
        return f"`{found['error']}`"
    return "answered" if found.get("right", True) else "a wrong answer"


def _rogue(name: str, manner: str, *options: str) -> Trial:
    words = [sys.executable, "-m", "greenroom.testing", "rogue", manner, *options]
    return Trial(name, "misled", misled, {"words": words})


TRIALS = (
    *(
        Trial(
            f"`{number.name}`, with 8 calls under way",
            "shot",
            shot,
            {"words": SERVER, "number": int(number), "rounds": ROUNDS},
        )
        for number in (signal.SIGKILL, signal.SIGSEGV)
    ),
    Trial("`SIGSTOP`, for good", "stopped", stopped, {"words": SERVER}),
    Trial(
        "an HTTP server: `SIGKILL` with 8 calls under way, and started again", "restarted", restarted, {"words": SERVER}
    ),
    _rogue("garbage before each answer, not all of it UTF-8", "garbage"),
    _rogue("20,000 notifications before each answer", "flood", "--amount", "20000"),
    _rogue("notifications without end", "flood-for-ever"),
    _rogue("each answer twice", "twice"),
    _rogue("an answer after the deadline", "late", "--seconds", "3"),
    _rogue("answers with another id, and with the right id as a string", "other-id"),
    _rogue("a result that is no object", "wrong-shape"),
    _rogue("half a line, and gone", "half-line"),
    _rogue("a line without an end", "endless-line"),
    _rogue("`sys.exit(3)` at each call", "exits"),
)


def try_out(trial: Trial, driver: Program, longest: float = LONGEST) -> str:
    """Run one trial of one client. Returns the cell's text."""
    asked = {"scenario": trial.scenario, **trial.asked}
    if trial.scenario == "restarted":
        asked["port"] = free_port()
    with subprocess.Popen(  # noqa: S603 - the drivers
        [*driver.command, json.dumps(asked)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            said, complaints = program.communicate(timeout=longest)
        except subprocess.TimeoutExpired:
            program.kill()
            return f"the whole program hangs, {longest:.0f} s and more"
    if program.returncode or not said:
        last = complaints.strip().splitlines()[-1:]
        return f"the program ends: `{''.join(last)[:100]}`"
    return trial.cell(json.loads(said.splitlines()[-1]))


def table(trials: Sequence[Trial], drivers: Sequence[Program], on_progress: Callable[[str], None]) -> str:
    """The table of all trials and clients, in Markdown."""
    lines = [f"| | {' | '.join(driver.name for driver in drivers)} |", "|---" * (len(drivers) + 1) + "|"]
    for trial in trials:
        cells: list[str] = []
        for driver in drivers:
            cells.append(try_out(trial, driver).replace("|", "\\|") if driver.here else "its environment is not there")
            on_progress(f"{trial.name}, {driver.name}: {cells[-1]}")
        lines.append(f"| {trial.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected trials, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client.fault_table", description="Clients under fire.")
    parser.add_argument("--only", metavar="WORD", action="append", default=[], help="trials with WORD in their name")
    parser.add_argument("--of", metavar="NAME", action="append", default=[], help="clients with NAME in their name")
    parser.add_argument("--write", action="store_true", help="into the page of figures")
    options = parser.parse_args(arguments)
    trials = [each for each in TRIALS if not options.only or any(word in each.name for word in options.only)]
    drivers = [each for each in DRIVERS if not options.of or any(name in each.name for name in options.of)]
    text = table(trials, drivers, lambda line: print(line, file=sys.stderr, flush=True))
    print(text)
    if options.write:
        put(text, PAGE, *MARKS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
