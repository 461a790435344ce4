"""Clients over HTTP, measured in turn in several rounds: a server with fixed answers, 1 and 16 calls in flight, JSON and streams.

The server has one core and the measured client the other. Ratios are medians of the rounds' ratios, so that disturbances of the machine affect both
sides of a ratio.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contest_rounds import Effort, Program, left_out, span
from benchmarks.serving.contenders import PEERS
from benchmarks.serving.contest import ratio
from benchmarks.serving.milestones import Milestone
from benchmarks.serving.processes import ROOT, cores, on_core, serving

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "client-http"
ABOUT = """tools/call over Streamable HTTP to a server that always answers the same, one call in flight and sixteen, answers as JSON and
as streams of events: our client in both eras, our connection without its typed interface, mcp's client in both eras and FastMCP's. The server has one
core and the client the other."""
CROWDS = (1, 16)
KINDS = ("json", "stream")
PATIENCE = 60.0
AHEAD = {"mcp 2.3.0": 8.0, "mcp 2.3.0, session": 8.0, "FastMCP 4.1.2": 1.0}
"""The target ratio to each other client, as a lower bound."""
ENVELOPED = 1.2
"""The processor time of a call that stands alone, beside one in a session, as an upper bound."""
HERE = Path(__file__).parent


def _peer(environment: str, script: str) -> tuple[str, ...]:
    return str(PEERS / environment / "bin" / "python"), str(HERE / "peers" / f"{script}.py")


OURS = Program("greenroom", (sys.executable, "-m", "benchmarks.client.drive_greenroom"))
SESSION = Program("greenroom, session", (sys.executable, "-m", "benchmarks.client.drive_session"))
LINE = Program("greenroom, untyped", (sys.executable, "-m", "benchmarks.client.drive_untyped"))
MCP = Program("mcp 2.3.0", _peer("mcp-2", "drive_mcp_modern"))
MCP_SESSION = Program("mcp 2.3.0, session", _peer("mcp-2", "drive_mcp"))
FASTMCP = Program("FastMCP 4.1.2", _peer("fastmcp", "drive_fastmcp"))
DRIVERS = (OURS, SESSION, LINE, MCP, MCP_SESSION, FASTMCP)
SERVER = (sys.executable, "-m", "benchmarks.client.fixed_answers", "PORT")


@dataclass
class Entry:
    """One client with one kind of answers and one number in flight: a value per round."""

    driver: Program
    kind: str
    crowd: int
    rate: list[float] = field(default_factory=list[float])
    processor: list[float] = field(default_factory=list[float])
    """CPU seconds per call."""


@dataclass
class Held:
    """All entries, and the clients that were left out, with the reason."""

    effort: Effort
    entries: list[Entry] = field(default_factory=list[Entry])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    milestones: list[Milestone] = field(default_factory=list[Milestone])

    def entry(self, driver: Program, kind: str, crowd: int) -> Entry | None:
        """The entry of a client, if it took part."""
        return next((one for one in self.entries if (one.driver, one.kind, one.crowd) == (driver, kind, crowd)), None)


def hold(effort: Effort, drivers: Sequence[Program] = DRIVERS) -> Held:
    """Run all rounds."""
    held = Held(effort)
    server_core, our_core = cores()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        served = stack.enter_context(serving(SERVER, folder / "server.log", core=server_core))
        stack.enter_context(on_core(our_core))
        taking_part = [each for each in drivers if each.here]
        held.missing.update({each.name: "its environment is not there" for each in drivers if not each.here})
        for _ in range(effort.rounds):
            for driver in tuple(taking_part):
                for kind in KINDS:
                    try:
                        output = _driven(driver, f"http://127.0.0.1:{served.port}/{kind}", effort.seconds)
                    except (subprocess.SubprocessError, ValueError) as error:
                        held.missing[driver.name] = f"it failed: {error}"
                        taking_part.remove(driver)
                        break
                    _note(held, driver, kind, output)
    held.milestones = reached(held)
    return held


def _driven(driver: Program, url: str, seconds: float) -> dict[str, Any]:
    """The output of one driver, which runs on this process's core."""
    crowds = ",".join(map(str, CROWDS))
    done = subprocess.run(  # noqa: S603 - the drivers above
        [*driver.command, url, crowds, str(seconds)],
        capture_output=True,
        check=True,
        cwd=ROOT,
        text=True,
        timeout=PATIENCE + 4 * len(CROWDS) * seconds,
    )
    output: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return output


def _note(held: Held, driver: Program, kind: str, output: dict[str, Any]) -> None:
    for crowd in CROWDS:
        entry = held.entry(driver, kind, crowd)
        if entry is None:
            entry = Entry(driver, kind, crowd)
            held.entries.append(entry)
        entry.rate.append(output[str(crowd)]["rate"])
        entry.processor.append(output[str(crowd)]["processor"])


def reached(held: Held) -> list[Milestone]:
    """The ratios of our client to each other one."""
    found: list[Milestone] = []
    for kind in KINDS:
        for crowd in CROWDS:
            ours, session = held.entry(OURS, kind, crowd), held.entry(SESSION, kind, crowd)
            if ours is not None and session is not None and len(ours.rate) == len(session.rate):
                values = [mine / other for mine, other in zip(ours.processor, session.processor, strict=True)]
                name = f"processor time of calls over {kind}, {crowd} in flight, beside those in a session"
                found.append(Milestone(name, "x", ENVELOPED, values, least=False))
    for driver, mine_as in ((MCP, OURS), (MCP_SESSION, SESSION), (FASTMCP, OURS)):
        for kind in KINDS:
            for crowd in CROWDS:
                ours, other = held.entry(mine_as, kind, crowd), held.entry(driver, kind, crowd)
                if ours is not None and other is not None and len(ours.rate) == len(other.rate):
                    values = [mine / theirs for mine, theirs in zip(ours.rate, other.rate, strict=True)]
                    found.append(
                        Milestone(
                            f"calls over {kind}, {crowd} in flight, beside {driver.name}",
                            "x",
                            AHEAD[driver.name],
                            values,
                        )
                    )
    return found


def table(held: Held) -> str:
    """The results as text. Ratios are ours to the other's, medians of the rounds' ratios."""
    effort = held.effort
    lines = [
        f"client-http: tools/call, medians of {effort.rounds} rounds of {effort.seconds:g} s (fastest and slowest round)",
        f"{'':22}{'answers':>8}{'in flight':>11}{'calls/s':>26}{'CPU us':>8}{'ours is':>9}",
    ]
    for entry in sorted(held.entries, key=lambda one: (one.kind, one.crowd)):
        ours = held.entry(OURS, entry.kind, entry.crowd)
        beside = ""
        if ours is not None and ours is not entry and len(ours.rate) == len(entry.rate):
            beside = f"{ratio(ours.rate, entry.rate):.2f}x"
        lines.append(
            f"{entry.driver.name:22}{entry.kind:>8}{entry.crowd:11}{span(entry.rate):>26}{1e6 * statistics.median(entry.processor):8.0f}{beside:>9}"
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
                "answers": entry.kind,
                "in flight": entry.crowd,
                "rate": entry.rate,
                "processor": entry.processor,
            }
            for entry in held.entries
        ],
    }
