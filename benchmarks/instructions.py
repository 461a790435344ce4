"""Instructions of the processor that a call takes, counted by Callgrind: a figure that does not depend on the clock or on other programs.

The program that is measured runs under Valgrind, its peer outside of it. It marks the ends of windows by calling a C function that nothing
else calls, at which Callgrind writes down what it has counted and begins anew. A window has as many calls as all others, and the cost of an
empty window is subtracted from each. The first count of a program reaches from its start to its first mark, so it is the cost of a start.

What the clock decides is switched off by `counting`, or the load of the machine would be counted: the watchdog's thread, and the look after a
client that may have left, for which a server has time only in a call that takes 20 ms. What still differs between windows is a
collection of garbage that falls into one of them.
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
from .serving.sessions import Caller

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NAME: Final = "instructions"
ABOUT: Final = """Instructions of the processor, counted by Valgrind's Callgrind: of a tools/call over HTTP on a kept connection in a session with an
answer as JSON, over stdio, and in our HTTP client; and of the starts of these programs to their first answered call. It needs valgrind."""
MISSING: Final = "instructions are counted by Valgrind, which is not installed: apt-get install valgrind"
HTTP_TARGET: Final = 560_000
"""What a call over HTTP is to take at most."""
PATIENCE: Final = 1800.0
"""Seconds for a program to start, or to make all its calls: under Valgrind it is about fifty times as slow."""
PAUSE: Final = 0.002
"""Seconds before each call. A stdio server keeps its loop turning for a peer that asks again within a tenth of a millisecond, so
that without a pause the clock would decide how many empty turns are counted."""
SERVER: Final = "benchmarks.serving.programs.counted"
CLIENT: Final = "benchmarks.client.counted"


@dataclass(frozen=True)
class Size:
    """How much is counted."""

    windows: int = 5
    calls: int = 200
    """In each window; as many are made before, to warm up."""

    @classmethod
    def quick(cls) -> Size:
        """Enough to see a change of a few per cent."""
        return cls(windows=3, calls=50)

    @property
    def counts(self) -> list[int]:
        """Calls before each mark: one that ends the start, those that warm up, the empty window, and the windows."""
        return [1, self.calls, 0, *[self.calls] * self.windows]


FIRST: Final = Size(windows=0, calls=1)
"""A run that is not counted, before the one that is."""


@dataclass
class Row:
    """One figure: a value per window, or one for a start."""

    name: str
    values: list[float]
    target: float | None = None

    @property
    def median(self) -> float:
        """Of the windows."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """How far the windows lie apart, as a part of the median."""
        return (max(self.values) - min(self.values)) / self.median

    @property
    def met(self) -> bool | None:
        """Whether it is as it should be; None where there is no target."""
        return None if self.target is None else self.median <= self.target


@dataclass
class Held:
    """All rows, or why there are none."""

    size: Size
    rows: list[Row] = field(default_factory=list[Row])
    missing: str | None = None

    @property
    def missed(self) -> list[str]:
        """What takes more than it is to take."""
        return [row.name for row in self.rows if row.met is False]


def installed() -> bool:
    """Whether Valgrind can be run."""
    return shutil.which("valgrind") is not None


def hold(size: Size) -> Held:
    """Count everything, one program after another."""
    if not installed():
        return Held(size, missing=MISSING)
    calls: list[Row] = []
    starts: list[Row] = []
    for served, started, count, target in (
        ("tools/call served over HTTP", "start of an HTTP server", _http_server, HTTP_TARGET),
        ("tools/call served over stdio", "start of a stdio server", _stdio_server, None),
        ("tools/call by an HTTP client", "start of an HTTP client", _http_client, None),
    ):
        with tempfile.TemporaryDirectory() as folder:
            start, windows = per_call(count(Path(folder), size), size.calls)
        calls.append(Row(served, windows, target))
        starts.append(Row(started, [start]))
    return Held(size, [*calls, *starts])


def _http_server(folder: Path, size: Size) -> list[int]:
    with serving((*alike(folder), sys.executable, "-m", SERVER, "PORT"), folder / "log") as served:
        caller = Caller(served.port)
        with closing(caller.line):
            driven(caller.call, FIRST)
    port = free_port()
    with (folder / "log").open("wb") as said:
        served = Served([*callgrind(folder), sys.executable, "-m", SERVER, str(port)], port, said, core=None)
        try:
            served.wait_until_it_listens(PATIENCE)
            caller = Caller(port, timeout=PATIENCE)
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


def _http_client(folder: Path, size: Size) -> list[int]:
    with serving(over_http.SERVER, folder / "log") as served:
        command = (sys.executable, "-m", CLIENT, f"http://127.0.0.1:{served.port}/json")
        subprocess.run(  # noqa: S603 - our own program
            [*alike(folder), *command, "1"], cwd=ROOT, check=True, timeout=PATIENCE
        )
        counts = map(str, size.counts)
        subprocess.run([*callgrind(folder), *command, *counts], cwd=ROOT, check=True, timeout=PATIENCE)  # noqa: S603 - same
    return counted(folder)


def driven(call: Callable[[str, dict[str, Any]], dict[str, Any]], size: Size) -> None:
    """Make the calls of each window at a server, one after another, and end it."""
    for count in size.counts:
        for _ in range(count):
            time.sleep(PAUSE)
            answer = call("echo", {"text": TEXT})
            assert answer["result"]["content"][0]["text"] == TEXT, answer
        answer = call("mark", {})
        assert not answer["result"].get("isError"), answer


# --- Callgrind

_MARK: Final = "ctermid"
"""A function of the C library that `os.ctermid` calls, and nothing else."""
_TOTALS: Final = re.compile(r"^totals: (\d+)$", re.MULTILINE)


def alike(folder: Path) -> tuple[str, ...]:
    """What stands before a command for all its runs to be alike: sets and dicts have a fixed seed, and compiled modules are kept in `folder`.

    A first run that is not counted compiles them, whatever the environment says of that and whatever is compiled already: to compile
    the modules takes several times as many instructions as the rest of a start.
    """
    kept = f"PYTHONPYCACHEPREFIX={folder / 'modules'}"
    return ("env", "--unset=PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED=0", kept)


def callgrind(folder: Path) -> tuple[str, ...]:
    """What stands before a command whose instructions are to be counted."""
    tool = ("valgrind", "--quiet", "--tool=callgrind", "--dump-line=no", f"--dump-before={_MARK}")
    return (*alike(folder), *tool, f"--callgrind-out-file={folder / 'counts'}")


def counted(folder: Path) -> list[int]:
    """What was counted up to each mark, since the one before it."""
    found: list[int] = []
    while (file := folder / f"counts.{len(found) + 1}").exists():
        total = _TOTALS.search(file.read_text(encoding="utf-8", errors="replace"))
        assert total is not None, file
        found.append(int(total[1]))
    return found


def per_call(counts: Sequence[int], calls: int) -> tuple[int, list[float]]:
    """What the start took, and what a call took in each window."""
    start, _, empty, *windows = counts
    return start, [(window - empty) / calls for window in windows]


def table(held: Held) -> str:
    """For people."""
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
    """Everything, in plain types."""
    return {
        "windows": held.size.windows,
        "calls": held.size.calls,
        "missing": held.missing,
        "rows": [{"name": row.name, "values": row.values, "target": row.target, "met": row.met} for row in held.rows],
    }
