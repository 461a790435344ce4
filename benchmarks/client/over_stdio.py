"""Clients over stdio, measured in turn in several rounds: a server with fixed answers, 1 and 16 calls in flight.

Each client starts the server itself, on the other core. Also: a hundred servers started by one client program, the time until all are initialized,
and the memory of each.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contest_rounds import Effort, Program, left_out, span
from benchmarks.serving.contest import ratio
from benchmarks.serving.milestones import Milestone
from benchmarks.serving.processes import ROOT, cores, on_core

from .over_http import CROWDS, FASTMCP, LINE, MCP_SESSION, OURS, PATIENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "client-stdio"
DRIVERS = (OURS, LINE, MCP_SESSION, FASTMCP)
AHEAD = 1.0
"""The target ratio to each other client, as a lower bound."""
ABOUT = """tools/call to a child process that always answers the same, one call in flight and sixteen: our client, our connection without
its typed interface, mcp's client and FastMCP's; and a hundred clients in one program: how long until all are ready, and memory for each."""
SERVER = Path(__file__).with_name("fixed_answers_stdio.py")
MANY = 100


@dataclass
class Entry:
    """One client: a value per round."""

    driver: Program
    rate: dict[int, list[float]] = field(default_factory=lambda: {crowd: [] for crowd in CROWDS})
    processor: dict[int, list[float]] = field(default_factory=lambda: {crowd: [] for crowd in CROWDS})
    """CPU seconds per call of the client alone."""
    ready: list[float] = field(default_factory=list[float])
    """The seconds until all clients are ready."""
    memory: list[float] = field(default_factory=list[float])
    """The memory of each client in bytes."""


@dataclass
class Held:
    """All entries, and the clients that were left out, with the reason."""

    effort: Effort
    entries: list[Entry] = field(default_factory=list[Entry])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    milestones: list[Milestone] = field(default_factory=list[Milestone])

    def entry(self, driver: Program) -> Entry | None:
        """The entry of a client, if it took part."""
        return next((one for one in self.entries if one.driver is driver), None)


def hold(effort: Effort, drivers: Sequence[Program] = DRIVERS, many: int = MANY) -> Held:
    """Run all rounds."""
    held = Held(effort)
    server_core, our_core = cores()
    pin = ["taskset", "--cpu-list", str(server_core)] if server_core is not None and shutil.which("taskset") else []
    words = json.dumps([*pin, sys.executable, "-S", str(SERVER)])
    held.missing.update({each.name: "its environment is not there" for each in drivers if not each.here})
    held.entries = [Entry(each) for each in drivers if each.here]
    with contextlib.ExitStack() as stack:
        stack.enter_context(on_core(our_core))
        for _ in range(effort.rounds):
            for entry in tuple(held.entries):
                try:
                    _measure(entry, words, effort.seconds, many)
                except (subprocess.SubprocessError, ValueError) as error:
                    held.missing[entry.driver.name] = f"it failed: {error}"
                    held.entries.remove(entry)
    held.milestones = reached(held)
    return held


def _measure(entry: Entry, words: str, seconds: float, many: int) -> None:
    done = subprocess.run(  # noqa: S603 - the drivers
        [*entry.driver.command, words, ",".join(map(str, CROWDS)), str(seconds), str(many)],
        capture_output=True,
        check=True,
        cwd=ROOT,
        text=True,
        timeout=PATIENCE + 4 * len(CROWDS) * seconds,
    )
    output: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    for crowd in CROWDS:
        entry.rate[crowd].append(output[str(crowd)]["rate"])
        entry.processor[crowd].append(output[str(crowd)]["processor"])
    entry.ready.append(output["many"]["ready"])
    entry.memory.append(output["many"]["memory"])


def reached(held: Held) -> list[Milestone]:
    """The ratios of our client to each other one."""
    found: list[Milestone] = []
    ours = held.entry(OURS)
    for driver in (MCP_SESSION, FASTMCP):
        other = held.entry(driver)
        if ours is not None and other is not None:
            found += [
                Milestone(
                    f"calls to a program, {crowd} in flight, beside {driver.name}",
                    "x",
                    AHEAD,
                    [mine / theirs for mine, theirs in zip(ours.rate[crowd], other.rate[crowd], strict=True)],
                )
                for crowd in CROWDS
            ]
    return found


def table(held: Held) -> str:
    """The results as text. Ratios are ours to the other's, medians of the rounds' ratios."""
    effort, ours = held.effort, held.entry(OURS)
    lines = [
        f"client-stdio: tools/call, medians of {effort.rounds} rounds of {effort.seconds:g} s (fastest and slowest round)",
        f"{'':22}{'in flight':>11}{'calls/s':>26}{'CPU us':>8}{'ours is':>9}{f'{MANY} ready ms':>15}{'KiB each':>10}",
    ]
    for crowd in CROWDS:
        for entry in held.entries:
            rate = entry.rate[crowd]
            beside = f"{ratio(ours.rate[crowd], rate):.2f}x" if ours is not None and ours is not entry else ""
            lines.append(
                f"{entry.driver.name:22}{crowd:11}{span(rate):>26}{1e6 * statistics.median(entry.processor[crowd]):8.0f}{beside:>9}"
                f"{1e3 * statistics.median(entry.ready):15,.0f}{statistics.median(entry.memory) / 1024:10,.0f}"
            )
    return "\n".join([*lines, *left_out(held.missing)])


def as_data(held: Held) -> dict[str, Any]:
    """All results as JSON types."""
    return {
        "rounds": held.effort.rounds,
        "seconds": held.effort.seconds,
        "missing": held.missing,
        "entries": [
            {
                "name": entry.driver.name,
                "rate": entry.rate,
                "processor": entry.processor,
                "ready": entry.ready,
                "memory": entry.memory,
            }
            for entry in held.entries
        ],
    }
