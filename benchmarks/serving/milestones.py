"""Further targets of a server: whole listings, new sessions per second, memory per session, and notifications to many.

Each is measured for our server and a peer in turn, round by round; ratios are medians of the rounds' ratios.
"""

from __future__ import annotations

import contextlib
import select
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .contenders import ours, theirs
from .contest import ratio
from .processes import NotServing, Served, cores, on_core, serving
from .sessions import Caller, encoded
from .wire import Line

if TYPE_CHECKING:
    from collections.abc import Callable

    from .contest import Contest

ROUNDS = 5
LISTENERS = 1000
SESSIONS = 2000
FAN_OUT_OF_MCP = 0.082
"""The seconds of `mcp` for a thousand streams, as measured with our own broadcast code: `mcp` has none."""


@dataclass
class Milestone:
    """One target: a lower or an upper bound, and the results of the rounds."""

    name: str
    unit: str
    target: float
    values: list[float] = field(default_factory=list[float])
    about: str = ""
    least: bool = True

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.values)

    @property
    def met(self) -> bool:
        """Whether the median meets the target."""
        return self.median >= self.target if self.least else self.median <= self.target


def of_calls(contest: Contest) -> list[Milestone]:
    """The targets of the contest: by rate, round by round."""
    found: list[Milestone] = []
    entries = {entry.contender.name: entry for entry in contest.entries if entry.tool == "echo"}
    mine = entries.get("greenroom")
    wanted = (("mcp 2.3.0", 4.0), ("mcp 2.3.0, fastest", 1.4), ("raw ASGI", 0.85))
    for name, target in wanted:
        other = entries.get(name)
        if mine is not None and other is not None:
            by_time = ratio(other.processor, mine.processor)
            found.append(
                Milestone(
                    f"calls, beside {name}",
                    "x",
                    target,
                    [one / two for one, two in zip(mine.rate, other.rate, strict=True)],
                    f"{by_time:.2f}x by processor time",
                )
            )
    return found


def reach(on_progress: Callable[[str], None] = lambda _line: None, rounds: int = ROUNDS) -> list[Milestone]:
    """Measure the further targets."""
    commands = {
        "ours": ours("echo"),
        "ours, many": ours("many"),
        "mcp": theirs("mcp-2", "echo_mcp", "shipped"),
        "mcp, many": theirs("mcp-2", "many_mcp"),
    }
    server_core, our_core = cores()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        up: dict[str, Served] = {}
        for name, command in commands.items():
            with contextlib.suppress(NotServing, OSError):
                up[name] = stack.enter_context(serving(command, folder / name.replace(", ", "-"), core=server_core))
        stack.enter_context(on_core(our_core))
        weights = [weight(up["ours"]) / 1024]  # first, while there is no freed memory to reuse
        lists: dict[str, list[float]] = {"ours, many": [], "mcp, many": []}
        opened: dict[str, list[float]] = {"ours": [], "mcp": []}
        fans: list[float] = []
        for number in range(rounds):
            on_progress(f"round {number + 1} of {rounds}")
            for name, values in lists.items():
                if name in up:
                    values.append(listings(up[name].port))
            for name, values in opened.items():
                if name in up:
                    values.append(openings(up[name].port))
            fans.append(fan_out(up["ours, many"].port))
    return _milestones(lists, opened, weights, fans)


def _milestones(
    lists: dict[str, list[float]], opened: dict[str, list[float]], weights: list[float], fans: list[float]
) -> list[Milestone]:
    found: list[Milestone] = []
    for name, (mine, peers), target in (
        ("listings of 500 tools, beside mcp 2.3.0", lists.values(), 50.0),
        ("sessions opened, beside mcp 2.3.0", opened.values(), 2.0),
    ):
        if peers:
            ratios = [one / two for one, two in zip(mine, peers, strict=True)]
            said = f"{statistics.median(mine):,.0f}/s beside {statistics.median(peers):,.0f}/s"
            found.append(Milestone(name, "x", target, ratios, said))
    found.append(Milestone("an open session", "KiB", 8.0, weights, f"of {SESSIONS}", least=False))
    milliseconds = [1e3 * each for each in fans]
    found.append(Milestone(f"one word to {LISTENERS:,} streams", "ms", 500 * FAN_OUT_OF_MCP, milliseconds, least=False))
    return found


def listings(port: int, seconds: float = 1.0) -> float:
    """Whole listings per second, one after another on one connection."""
    caller = Caller(port)
    body = encoded({"jsonrpc": "2.0", "id": 100_000_000, "method": "tools/list", "params": {}})
    try:
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            answer = caller.line.exchange("POST", body)
            assert b'"tool_499"' in answer.body, answer.body[:200]
            count += 1
        return count / (time.perf_counter() - began)
    finally:
        caller.end()


def openings(port: int, seconds: float = 1.0) -> float:
    """New sessions per second with both messages of the handshake, on connections that stay open."""
    callers: list[Caller] = []
    line = Line(port)
    try:
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            callers.append(Caller.__new__(Caller))
            callers[-1].take(line)
            count += 1
        return count / (time.perf_counter() - began)
    finally:
        for caller in callers:
            line.fixed["Mcp-Session-Id"] = str(caller.session)
            line.exchange("DELETE")
        line.close()


def weight(served: Served) -> float:
    """The memory of an open session in bytes, without its connection."""
    line = Line(served.port)
    for _ in range(200):  # one-time allocations of the first sessions
        Caller.__new__(Caller).take(line)
    before = served.resident()
    for _ in range(SESSIONS):
        Caller.__new__(Caller).take(line)
    after = served.resident()
    line.close()
    return (after - before) / SESSIONS


def fan_out(port: int, listeners: int = LISTENERS) -> float:
    """The seconds from a change until the last of so many streams is notified."""
    asker = Caller(port)
    streams: dict[int, Any] = {}
    poll = select.epoll()
    callers = [Caller(port) for _ in range(listeners)]
    try:
        for caller in callers:
            line = caller.line
            line.socket.sendall(line.head("GET", 0).replace(b"application/json, ", b""))
        for caller in callers:
            heard = b""
            while b"id: " not in heard:
                heard += caller.line.socket.recv(65_536)
            streams[caller.line.fileno()] = caller
            poll.register(caller.line.fileno(), select.EPOLLIN)
        waiting = set(streams)
        began = time.perf_counter()
        asker.prepare("more", {})
        asker.begin()
        while waiting:
            for number, _ in poll.poll(10.0):
                if b"list_changed" in streams[number].line.socket.recv(65_536):
                    waiting.discard(number)
        took = time.perf_counter() - began
        asker.line.read_response()
        return took
    finally:
        poll.close()
        for caller in callers:  # none of these may be left for the next measurement
            asker.line.fixed["Mcp-Session-Id"] = str(caller.session)
            asker.line.exchange("DELETE")
            caller.line.close()
        asker.line.close()


def table(milestones: list[Milestone]) -> str:
    """The results as text."""
    lines = [f"{'':44}{'median':>9}{'':4}{'target':>10}{'spread':>16}"]
    for each in milestones:
        bound = f"{'>=' if each.least else '<='} {each.target:g}"
        spread = f"{min(each.values):.2f} to {max(each.values):.2f}"
        said = "met" if each.met else "MISSED"
        lines.append(f"{each.name:44}{each.median:9.2f} {each.unit:3}{bound:>10}{spread:>18}  {said}  {each.about}")
    return "\n".join(lines)


def as_data(milestones: list[Milestone]) -> list[dict[str, Any]]:
    """All results as JSON types."""
    return [
        {"name": each.name, "unit": each.unit, "target": each.target, "values": each.values, "met": each.met}
        for each in milestones
    ]
