"""CPU instructions of a call, counted by Callgrind: a figure that depends neither on the clock nor on other programs.

The measured program runs under Valgrind, its peer outside. It marks the ends of windows by calling an otherwise unused C function, at which Callgrind
writes its count and resets it. All windows have the same number of calls, and the cost of an empty window is subtracted from each. The first count
runs from the program's start to its first mark: the cost of a start.

Clock-dependent parts are switched off by `instruction_marks`, or the machine's load would be counted: the watchdog's thread, and the watch for
disconnected clients, which a server starts only in calls of 20 ms. The remaining difference between windows is a garbage collection in one of them.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .client import over_http
from .contest_rounds import Program, span
from .serving import stdio
from .serving.contest import TEXT
from .serving.processes import ROOT, NotServing, Served, free_port, serving
from .serving.sessions import Caller, SessionlessCaller

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAME: Final = "instructions"
ABOUT: Final = """Instructions of the processor, counted by Valgrind's Callgrind: of a tools/call over HTTP on a kept connection in a session with an
answer as JSON, over stdio, and in our HTTP client; and of the starts of these programs to their first answered call. It needs valgrind."""
MISSING: Final = "instructions are counted by Valgrind, which is not installed: apt-get install valgrind"
HTTP_TARGET: Final = 560_000
"""The target of a call over HTTP."""
SESSIONLESS_TARGET: Final = HTTP_TARGET * 1.25
"""The target of a call without a session: as `serving.modern` has it for processor time."""
PATIENCE: Final = 1800.0
"""The time limit for a start or for all calls, in seconds: under Valgrind a program is about fifty times slower."""
PAUSE: Final = 0.002
"""The pause before each call in seconds.

A stdio server busy-polls for a tenth of a millisecond for a peer that sends again at once; without a pause the clock would decide how many empty
polls are counted.
"""
SERVER: Final = "benchmarks.serving.programs.counted"
CLIENT: Final = "benchmarks.client.counted"


@dataclass(frozen=True)
class Size:
    """The numbers of calls and windows."""

    windows: int = 5
    calls: int = 200
    """The calls in each window, and before the first one, for warming up."""

    @classmethod
    def quick(cls) -> Size:
        """The minimal size, which shows changes of a few per cent."""
        return cls(windows=3, calls=50)

    @property
    def counts(self) -> list[int]:
        """The calls before each mark: one after the start, the warm-up, the empty window, and the windows."""
        return [1, self.calls, 0, *[self.calls] * self.windows]


FIRST: Final = Size(windows=0, calls=1)
"""A run that is not counted, before the counted one."""


@dataclass
class Row:
    """One figure: a value per window, or one value for a start."""

    name: str
    values: list[float]
    target: float | None = None

    @property
    def median(self) -> float:
        """The median of the windows."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """The spread of the windows relative to the median."""
        return (max(self.values) - min(self.values)) / self.median

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without a target."""
        return None if self.target is None else self.median <= self.target


@dataclass
class Held:
    """All rows, or the reason why there are none."""

    size: Size
    rows: list[Row] = field(default_factory=list[Row])
    missing: str | None = None

    @property
    def missed(self) -> list[str]:
        """The rows that miss their target."""
        return [row.name for row in self.rows if row.met is False]


def installed() -> bool:
    """Whether Valgrind is installed."""
    return shutil.which("valgrind") is not None


def hold(size: Size) -> Held:
    """Count all programs, one after another."""
    if not installed():
        return Held(size, missing=MISSING)
    calls: list[Row] = []
    starts: list[Row] = []
    for served, started, count, target in (
        ("tools/call served over HTTP", "start of an HTTP server", _http_server, HTTP_TARGET),
        ("the same without a session", None, _sessionless_http_server, SESSIONLESS_TARGET),
        ("tools/call served over stdio", "start of a stdio server", _stdio_server, None),
        ("tools/call by an HTTP client", "start of an HTTP client", _http_client, None),
        ("the same in 2026-07-28", None, _stateless_http_client, None),
    ):
        with tempfile.TemporaryDirectory() as folder:
            start, windows = per_call(count(Path(folder), size), size.calls)
        calls.append(Row(served, windows, target))
        if started is not None:
            starts.append(Row(started, [start]))
    return Held(size, [*calls, *starts])


def _sessionless_http_server(folder: Path, size: Size) -> list[int]:
    return _http_server(folder, size, SessionlessCaller)


def _http_server(folder: Path, size: Size, kind: type[Caller] = Caller) -> list[int]:
    with serving((*alike(folder), sys.executable, "-m", SERVER, "PORT"), folder / "log") as served:
        caller = kind(served.port)
        with closing(caller.line):
            driven(caller.call, FIRST)
    port = free_port()
    with (folder / "log").open("wb") as said:
        served = Served([*callgrind(folder), sys.executable, "-m", SERVER, str(port)], port, said, core=None)
        try:
            served.wait_until_it_listens(PATIENCE)
            caller = kind(port, timeout=PATIENCE)
            with closing(caller.line):
                driven(caller.call, size)
        except NotServing:
            raise NotServing((folder / "log").read_text(encoding="utf-8", errors="replace")) from None
        finally:
            served.end()
    return counted(folder)


def _stdio_server(folder: Path, size: Size) -> list[int]:
    command = (sys.executable, "-m", SERVER, "stdio")
    with stdio.started(Program("greenroom", (*alike(folder), *command))) as (line, _):
        driven(line.call, FIRST)
    with stdio.started(Program("greenroom", (*callgrind(folder), *command))) as (line, _):
        driven(line.call, size)
    return counted(folder)


def _stateless_http_client(folder: Path, size: Size) -> list[int]:
    return _http_client(folder, size, "auto")


def _http_client(folder: Path, size: Size, mode: str = "legacy") -> list[int]:
    with serving(over_http.SERVER, folder / "log") as served:
        command = (sys.executable, "-m", CLIENT, mode, f"http://127.0.0.1:{served.port}/json")
        subprocess.run(  # noqa: S603 - our own program
            [*alike(folder), *command, "1"], cwd=ROOT, check=True, timeout=PATIENCE
        )
        counts = map(str, size.counts)
        subprocess.run([*callgrind(folder), *command, *counts], cwd=ROOT, check=True, timeout=PATIENCE)  # noqa: S603 - same
    return counted(folder)


def driven(call: Callable[[str, dict[str, Any]], dict[str, Any]], size: Size) -> None:
    """Make the calls of all windows to a server, one after another, and end it."""
    for count in size.counts:
        for _ in range(count):
            time.sleep(PAUSE)
            answer = call("echo", {"text": TEXT})
            assert answer["result"]["content"][0]["text"] == TEXT, answer
        answer = call("mark", {})
        assert not answer["result"].get("isError"), answer


# --- Callgrind

_MARK: Final = "ctermid"
"""A C function that only `os.ctermid` calls: the mark that Callgrind reacts to."""
_TOTALS: Final = re.compile(r"^totals: (\d+)$", re.MULTILINE)


def alike(folder: Path) -> tuple[str, ...]:
    """The prefix that makes all runs of a command alike: a fixed hash seed, and compiled modules in `folder`.

    An uncounted first run compiles the modules: compiling takes several times as many instructions as the rest of a start.
    """
    kept = f"PYTHONPYCACHEPREFIX={folder / 'modules'}"
    return ("env", "--unset=PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED=0", kept)


def callgrind(folder: Path) -> tuple[str, ...]:
    """The prefix of a command whose instructions are counted."""
    tool = ("valgrind", "--quiet", "--tool=callgrind", "--dump-line=no", f"--dump-before={_MARK}")
    return (*alike(folder), *tool, f"--callgrind-out-file={folder / 'counts'}")


def counted(folder: Path) -> list[int]:
    """The counts between marks."""
    found: list[int] = []
    while (file := folder / f"counts.{len(found) + 1}").exists():
        total = _TOTALS.search(file.read_text(encoding="utf-8", errors="replace"))
        assert total is not None, file
        found.append(int(total[1]))
    return found


def per_call(counts: Sequence[int], calls: int) -> tuple[int, list[float]]:
    """The cost of the start, and of a call in each window."""
    start, _, empty, *windows = counts
    return start, [(window - empty) / calls for window in windows]


def table(held: Held) -> str:
    """The rows as text."""
    if held.missing is not None:
        return f"{NAME}: left out, {held.missing}"
    lines = [
        f"{NAME}: under Callgrind, medians of {held.size.windows} windows of {held.size.calls} calls (least and most)",
        f"{'':30}{'instructions':>40}{'spread':>9}{'target':>14}",
    ]
    for row in held.rows:
        single = len(row.values) == 1
        shown = f"{row.median:,.0f}" if single else span(row.values)
        target = "" if row.target is None else f"<= {row.target:,.0f}"
        verdict = {None: "", True: "met", False: "MISSED"}[row.met]
        lines.append(
            f"{row.name:30}{shown:>40}{'' if single else f'{row.spread:.2%}':>9}{target:>14}  {verdict}".rstrip()
        )
    return "\n".join(lines)


def as_data(held: Held) -> dict[str, Any]:
    """All results as JSON types."""
    return {
        "windows": held.size.windows,
        "calls": held.size.calls,
        "missing": held.missing,
        "rows": [{"name": row.name, "values": row.values, "target": row.target, "met": row.met} for row in held.rows],
    }
