"""`python -m benchmarks.serving.profiling [TOOL]`: the CPU time of a served call by layer.

A profiler samples the stacks of a loaded server from outside. A sample belongs to the innermost layer on its stack: the work of the interpreter and
the standard library counts for the layer that calls it, except for the event loop. Shares times the measured CPU time of a call are microseconds.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from .contenders import PEERS, ours
from .contest import CROWD, TEXT
from .load import callers, drive
from .processes import cores, on_core, serving

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PROFILER = PEERS / "profiler" / "bin" / "py-spy"
SECONDS = 10
RATE = 250

LAYERS = (
    ("HTTP parser", ("transports/http1_codec.py", "/h11/", "(h11/")),
    (
        "HTTP server",
        tuple(
            f"transports/{name}.py"
            for name in ("http1_connection", "http1_request", "open_connections", "http_listener")
        ),
    ),
    ("Hypercorn, where it serves", ("hypercorn/", "transports/hypercorn_connection.py")),
    ("ASGI endpoint", ("transports/asgi.py", "transports/http_request.py")),
    ("HTTP engine", ("transports/",)),
    ("parse, check, encode", ("greenroom/protocol/",)),
    ("session", tuple(f"actors/{name}.py" for name in ("session", "sessions", "calls", "reply_sinks"))),
    ("worker and tool", ("greenroom/actors/", "serving/programs/")),
    ("kernel: processes, messages, links", ("greenroom/supervision/",)),
    ("event loop and its system calls", ("asyncio/", "selectors.py", "select", "socket")),
)
REST = "all else"


def layer_of(stack: Sequence[str]) -> str:
    """The layer of a stack, outermost frame first."""
    for frame in reversed(stack):
        for name, marks in LAYERS:
            if any(mark in frame for mark in marks):
                return name
    return REST


def shares(lines: Iterable[str]) -> dict[str, float]:
    """The share of each layer in collapsed stacks: `frame;frame;frame COUNT`."""
    counts: Counter[str] = Counter()
    for line in lines:
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if any("run_forever" in frame for frame in frames) or any("_Job.run" in frame for frame in frames):
            counts[layer_of(frames)] += int(count)
    total = sum(counts.values())
    return {name: counts[name] / total for name in (*(name for name, _ in LAYERS), REST)}


def profile(tool: str, options: Sequence[str]) -> tuple[float, dict[str, float]]:
    """The CPU seconds per call, and the shares of layers."""
    server_core, our_core = cores()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (
            serving(ours("echo", *options), folder / "log", core=server_core) as served,
            on_core(our_core),
            callers(served.port, CROWD) as crowd,
        ):
            drive(crowd, tool, {"text": TEXT}, 1.0)
            before = served.processor_time()
            load = drive(crowd, tool, {"text": TEXT}, 3.0)
            cost = (served.processor_time() - before) / len(load.latencies)
            command = [str(PROFILER), "record", "--format", "raw", "--output", str(folder / "stacks")]
            command += ["--pid", str(served.pid), "--duration", str(SECONDS), "--rate", str(RATE)]
            profiler = subprocess.Popen(  # noqa: S603 - the profiler from our lock file
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            drive(crowd, tool, {"text": TEXT}, SECONDS + 2.0)
            if profiler.wait():
                raise SystemExit("the profiler may not look at other processes here")
        return cost, shares((folder / "stacks").read_text(encoding="utf-8").splitlines())


def main(arguments: Sequence[str] | None = None) -> int:
    """Profile, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving.profiling", description="Measures the CPU time of a call by layer."
    )
    parser.add_argument("tool", nargs="?", default="echo", choices=("echo", "echo_def"))
    parser.add_argument("--uvloop", action="store_true", help="on uvloop")
    options = parser.parse_args(arguments)
    if not PROFILER.exists():
        print("the profiler is not there: `make profile` installs it", file=sys.stderr)
        return 2
    cost, parts = profile(options.tool, ["uvloop"] if options.uvloop else [])
    print("| layer | us a call |\n|---|---:|")
    for name, part in parts.items():
        print(f"| {name} | {part * cost * 1e6:.0f} |")
    print(f"| **together** | **{cost * 1e6:.0f}** |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
