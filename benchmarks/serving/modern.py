"""Requests without a session (revision 2026-07-28) beside the same in a session, and beside `mcp`, measured in turn in several rounds.

The servers have one core and the load generator the other. Ratios are medians of the rounds' ratios; processor time comes before rates, since it depends less on the
machine's load. `benchmarks.modern_exchanges` has the same by layers, and the memory of calls that are parked.
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

from benchmarks.contest_rounds import left_out

from .contenders import ours, theirs
from .contest import CROWD, TEXT, ratio
from .load import callers, drive
from .milestones import LISTENERS, Milestone, fan_out
from .processes import NotServing, cores, on_core, serving
from .sessions import Caller, SessionlessCaller, enveloped
from .wire import Line

if TYPE_CHECKING:
    from benchmarks.contest_rounds import Effort

    from .processes import Served

NAME = "modern"
ABOUT = """Requests of revision 2026-07-28 over Streamable HTTP, on kept connections: tools/call beside the same in a session and beside mcp's answer as JSON,
server/discover and tools/list, and a change that a thousand listens and a thousand sessions are told of."""
MORE_PROCESSOR = 1.25
"""How much more processor time a call may take than one in a session."""
BESIDE_MCP = 2.0
NO_SLOWER = 1.1
"""What counts as no slower, with the noise of a thousand sockets."""
SESSION, SESSIONLESS, MCP, DISCOVER, LIST = (
    "tools/call in a session",
    "tools/call without",
    "tools/call without, mcp 2.3.0",
    "server/discover",
    "tools/list of 500, without",
)
LISTS = {DISCOVER: "server/discover", LIST: "tools/list"}


@dataclass
class Entry:
    """One kind of request to one server: a value per round."""

    name: str
    rate: list[float] = field(default_factory=list[float])
    processor: list[float] = field(default_factory=list[float])
    """CPU seconds of the server per request."""


@dataclass
class Held:
    """All entries, the seconds of the changes, and the servers that were left out, with the reason."""

    effort: Effort
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    told: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    milestones: list[Milestone] = field(default_factory=list[Milestone])

    def note(self, name: str, rate: float, processor: float) -> None:
        """Add a round."""
        entry = self.entries.setdefault(name, Entry(name))
        entry.rate.append(rate)
        entry.processor.append(processor)


def hold(effort: Effort, listeners: int = LISTENERS) -> Held:
    """Run all rounds."""
    held = Held(effort)
    commands = {
        "greenroom": ours("echo"),
        "greenroom, many": ours("many"),
        "mcp 2.3.0": theirs("mcp-2", "echo_mcp", "stateless"),
    }
    server_core, our_core = cores()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        up: dict[str, Served] = {}
        for name, command in commands.items():
            try:
                up[name] = stack.enter_context(serving(command, folder / f"{len(up)}.log", core=server_core))
            except (NotServing, OSError) as error:
                held.missing[name] = f"it did not start: {error}"
        stack.enter_context(on_core(our_core))
        for number in range(effort.rounds + 1):
            held.entries = held.entries if number > 1 else {}  # the first round is for warming up
            for name, server, kind in (
                (SESSION, "greenroom", Caller),
                (SESSIONLESS, "greenroom", SessionlessCaller),
                (MCP, "mcp 2.3.0", SessionlessCaller),
            ):
                if server in up:
                    held.note(name, *calls(up[server], kind, effort.seconds))
            for name, method in LISTS.items():
                held.note(name, *requests(up["greenroom, many"], method, effort.seconds / 3))
        for _ in range(effort.rounds):
            port = up["greenroom, many"].port
            held.told.setdefault("sessions", []).append(fan_out(port, listeners))
            held.told.setdefault("listens", []).append(listen_fan_out(port, listeners))
    held.milestones = reached(held)
    return held


def calls(served: Served, kind: type[Caller], seconds: float) -> tuple[float, float]:
    """Calls per second with `CROWD` in flight, and the processor time of each."""
    with callers(served.port, CROWD, kind) as made:
        before = served.processor_time()
        load = drive(made, "echo", {"text": TEXT}, seconds)
        return load.rate, (served.processor_time() - before) / len(load.latencies)


def requests(served: Served, method: str, seconds: float) -> tuple[float, float]:
    """Requests per second, one after another on one connection, and the processor time of each."""
    caller = SessionlessCaller(served.port)
    caller.line.fixed["Mcp-Method"] = method
    body = enveloped(1, method, {})
    try:
        count, began, before = 0, time.perf_counter(), served.processor_time()
        while time.perf_counter() - began < seconds:
            answer = caller.line.exchange("POST", body)
            assert answer.status == 200, answer.body[:200]  # noqa: PLR2004 - HTTP's own
            count += 1
        took = time.perf_counter() - began
        return count / took, (served.processor_time() - before) / count
    finally:
        caller.end()


def listen_fan_out(port: int, listeners: int = LISTENERS) -> float:
    """The seconds from a change until the last of so many listens is told."""
    asker = SessionlessCaller(port)
    poll = select.epoll()
    lines = {line.fileno(): line for line in (Line(port) for _ in range(listeners))}
    body = enveloped(1, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    try:
        for number, line in lines.items():
            line.fixed = {**asker.line.fixed, "Mcp-Method": "subscriptions/listen"}
            line.socket.sendall(line.head("POST", len(body)) + body)
            heard = b""
            while b"acknowledged" not in heard:
                heard += line.socket.recv(65_536)
            poll.register(number, select.EPOLLIN)
        waiting = set(lines)
        began = time.perf_counter()
        asker.prepare("more", {})
        asker.begin()
        while waiting:
            for number, _ in poll.poll(10.0):
                if b"list_changed" in lines[number].socket.recv(65_536):
                    waiting.discard(number)
        took = time.perf_counter() - began
        asker.line.read_response()
        return took
    finally:
        poll.close()
        for line in lines.values():
            line.close()
        asker.end()


def reached(held: Held) -> list[Milestone]:
    """The targets."""
    found: list[Milestone] = []
    entries = held.entries
    session, without, mcp = (entries.get(name) for name in (SESSION, SESSIONLESS, MCP))
    if session is not None and without is not None:
        more = [one / two for one, two in zip(without.processor, session.processor, strict=True)]
        about = f"{ratio(without.rate, session.rate):.2f}x by rate"
        found.append(
            Milestone("processor time of a call, beside a session's", "x", MORE_PROCESSOR, more, about, least=False)
        )
    if without is not None and mcp is not None:
        faster = [one / two for one, two in zip(without.rate, mcp.rate, strict=True)]
        about = f"{ratio(mcp.processor, without.processor):.2f}x by processor time"
        found.append(Milestone("calls, beside mcp 2.3.0", "x", BESIDE_MCP, faster, about))
    if held.told:
        listens, sessions = held.told["listens"], held.told["sessions"]
        slower = [one / two for one, two in zip(listens, sessions, strict=True)]
        about = f"{1e3 * statistics.median(listens):.0f} ms beside {1e3 * statistics.median(sessions):.0f} ms"
        found.append(Milestone("one change to listens, beside sessions", "x", NO_SLOWER, slower, about, least=False))
    return found


def table(held: Held) -> str:
    """The results as text."""
    effort = held.effort
    lines = [
        f"modern: medians of {effort.rounds} rounds of {effort.seconds:g} s, {CROWD} connections; lists on one",
        f"{'':32}{'requests/s':>12}{'CPU us':>9}",
    ]
    for entry in held.entries.values():
        rate, processor = statistics.median(entry.rate), 1e6 * statistics.median(entry.processor)
        lines += [f"{entry.name:32}{rate:12,.0f}{processor:9,.0f}"]
    return "\n".join([*lines, *left_out(held.missing)])


def as_data(held: Held) -> dict[str, Any]:
    """All results as JSON types."""
    return {
        "rounds": held.effort.rounds,
        "seconds": held.effort.seconds,
        "connections": CROWD,
        "missing": held.missing,
        "told": held.told,
        "entries": [
            {"name": entry.name, "rate": entry.rate, "processor": entry.processor} for entry in held.entries.values()
        ],
    }
