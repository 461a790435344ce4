"""The contest: all servers run at once and are measured in turn, in several rounds, so that disturbances affect all of them."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .contenders import CONTENDERS, FLOOR, OURS, UVLOOP, Contender
from .load import Load, callers, drive
from .processes import NotServing, Served, cores, on_core, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.contest_rounds import Effort

NAME = "serving"
ABOUT = """tools/call of an echo over Streamable HTTP with a live session where there are sessions: ours, raw ASGI under Hypercorn as
the floor, and peers. The server has one core and the load generator the other."""
CROWD = 32
TEXT = "Curtain up: two hours of traffic on the stage."


@dataclass
class Entry:
    """One tool of one server: a value per round."""

    contender: Contender
    tool: str
    rate: list[float] = field(default_factory=list[float])
    """Calls per second with `CROWD` in flight."""
    processor: list[float] = field(default_factory=list[float])
    """CPU seconds per call under that load."""
    median: list[float] = field(default_factory=list[float])
    slowest: list[float] = field(default_factory=list[float])
    """The 99th percentile of the latency under that load."""
    alone: list[float] = field(default_factory=list[float])
    """The median latency of calls made one after another on one connection."""
    busy: list[float] = field(default_factory=list[float])
    """The load of the generator itself."""

    @property
    def name(self) -> str:
        """The name in the table."""
        return f"{self.contender.name}, def" if self.tool.endswith("_def") else self.contender.name


@dataclass
class Contest:
    """All entries, and the servers that were left out, with the reason."""

    effort: Effort
    entries: list[Entry] = field(default_factory=list[Entry])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    milestones: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The targets and their results: see `milestones`."""

    def entry(self, contender: Contender, tool: str = "echo") -> Entry | None:
        """The entry of a server's tool, if it took part."""
        return next((one for one in self.entries if one.contender is contender and one.tool == tool), None)


def hold(
    effort: Effort,
    contenders: Sequence[Contender] = (*CONTENDERS, *UVLOOP),
    on_progress: Callable[[str], None] = lambda _line: None,
) -> Contest:
    """Start all servers, run the rounds, and stop the servers."""
    contest = Contest(effort)
    server_core, our_core = cores()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        up: dict[str, Served] = {}
        for number, contender in enumerate(contenders):
            if not contender.here:
                contest.missing[contender.name] = f"its environment is not there: {contender.command[0]}"
                continue
            try:
                served = stack.enter_context(serving(contender.command, folder / f"{number}.log", core=server_core))
            except NotServing as error:
                contest.missing[contender.name] = f"it did not start: {error}"
                continue
            up[contender.name] = served
            contest.entries += [Entry(contender, tool) for tool in contender.tools]
        stack.enter_context(on_core(our_core))
        for entry in contest.entries:  # first calls have one-time costs
            _load(up[entry.contender.name], entry, CROWD, effort.seconds / 3)
        for number in range(effort.rounds):
            on_progress(f"round {number + 1} of {effort.rounds}")
            for entry in contest.entries:
                _measure(up[entry.contender.name], entry, effort.seconds)
    return contest


def _load(served: Served, entry: Entry, crowd: int, seconds: float) -> Load:
    with callers(served.port, crowd) as made:
        return drive(made, entry.tool, {"text": TEXT}, seconds)


def _measure(served: Served, entry: Entry, seconds: float) -> None:
    with callers(served.port, CROWD) as made:
        before = served.processor_time()
        crowd = drive(made, entry.tool, {"text": TEXT}, seconds)
        spent = served.processor_time() - before
    one = _load(served, entry, 1, seconds / 3)
    entry.rate.append(crowd.rate)
    entry.processor.append(spent / len(crowd.latencies))
    entry.median.append(crowd.median)
    entry.slowest.append(crowd.quantile(0.99))
    entry.alone.append(one.median)
    entry.busy.append(crowd.busy)


def table(contest: Contest) -> str:
    """The results as text. Ratios are medians of the rounds' ratios."""
    effort, floor, ours = contest.effort, contest.entry(FLOOR), contest.entry(OURS)
    lines = [
        f"serving: tools/call, {CROWD} connections, medians of {effort.rounds} rounds of {effort.seconds:g} s",
        f"{'':28}{'calls/s':>9}{'x floor':>9}{'ours is':>9}{'CPU us':>9}{'ours is':>9}{'p50 ms':>9}{'p99 ms':>9}{'alone ms':>10}{'generator':>11}",
    ]
    for entry in contest.entries:
        beside_floor = ratio(entry.rate, floor.rate) if floor else None
        mine = contest.entry(OURS, entry.tool) or ours
        beside_ours = ratio(mine.rate, entry.rate) if mine and mine is not entry else None
        cheaper = ratio(entry.processor, mine.processor) if mine and mine is not entry else None
        lines.append(
            f"{entry.name:28}{statistics.median(entry.rate):9,.0f}{_times(beside_floor)}{_times(beside_ours)}"
            f"{statistics.median(entry.processor) * 1e6:9,.0f}{_times(cheaper)}{statistics.median(entry.median) * 1e3:9.2f}"
            f"{statistics.median(entry.slowest) * 1e3:9.2f}{statistics.median(entry.alone) * 1e3:10.2f}"
            f"{statistics.median(entry.busy):11.0%}"
        )
    return "\n".join([*lines, *(f"{name}: {why}" for name, why in contest.missing.items())])


def _times(value: float | None) -> str:
    return f"{value:8.2f}x" if value is not None else " " * 9


def ratio(ones: Sequence[float], others: Sequence[float]) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(one / other for one, other in zip(ones, others, strict=True))


def as_data(contest: Contest) -> dict[str, Any]:
    """All results as JSON types."""
    return {
        "rounds": contest.effort.rounds,
        "seconds": contest.effort.seconds,
        "connections": CROWD,
        "missing": contest.missing,
        "milestones": contest.milestones,
        "entries": [
            {
                "name": entry.contender.name,
                "about": entry.contender.about,
                "tool": entry.tool,
                "rate": entry.rate,
                "processor": entry.processor,
                "median": entry.median,
                "p99": entry.slowest,
                "alone": entry.alone,
                "generator": entry.busy,
            }
            for entry in contest.entries
        ],
    }
