"""Linearity by counting: the cost of reading a peer's bytes at growing sizes. `python -m tests.fuzz.linearity`, which `make fuzz` runs.

A `Reader` reads a peer's bytes, with its known worst inputs. Each file of the folder `linear` lists
some under `READERS`; a new file is found by itself. Two counts exist, and neither is a clock:

- *instructions* of the processor, under Valgrind's Cachegrind, at 1 to 64 KiB (`make fuzz`, `.ci/run`). Each size is read in a child that
  is forked from one program, so its count is exact but for the fork: imports and everything before belong to all of them.
- *steps*: bytecodes of Python (`make test`), at smaller sizes and without Valgrind. What one C function does is a single step there;
  regular expressions are proven linear by a house test instead, and the rest is left to the instructions.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import FrameType

ROOT: Final = Path(__file__).parents[2]
KIB: Final = 1024
SIZES: Final = (KIB, 4 * KIB, 16 * KIB, 64 * KIB)
SHORT: Final = (256, 512, 1024, 2048)
"""The sizes at which `make test` counts steps."""
GROWTH: Final = 1.1
"""The allowed growth relative to linear growth."""
LAYOUTS: Final = 3
"""An attack is wrong if it grows too fast in so many processes, each with another layout of memory."""
NOISE: Final = 0.02
"""The tolerance relative to the smaller cost: a fork, a resized dict or a new page of memory is no growth."""


class Reader(NamedTuple):
    """A reader of a peer's bytes."""

    name: str
    read: Callable[[Any], object]
    """Reads one input, without state between calls. Its `refuses` errors are caught."""
    shapes: Mapping[str, Callable[[int], Any]]
    """Inputs of a given size, by their attack. An input is what `read` takes: bytes, text, pieces, an object."""
    refuses: tuple[type[Exception], ...] = ()
    """The errors of `read` for refused inputs."""
    sizes: tuple[int, ...] = SIZES
    """The sizes; lower ones if a limit ends reading earlier. There are four."""
    short: tuple[int, ...] = SHORT
    """The sizes for steps: below them something is not executed at all."""
    moves: float = 0.0
    """The part of a cost that depends on memory addresses: instruction counts differ between runs."""


class Cost(NamedTuple):
    """The cost of one attack at each size."""

    reader: str
    shape: str
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    moves: float = 0.0

    @property
    def growth(self) -> float:
        """The worst growth relative to linear growth; the rate is that between the first two sizes.

        Costs that do not depend on the size cancel out: only differences are compared.
        """
        first, rate = self.counts[0], self._rate
        worst = 0.0
        for size, count in zip(self.sizes[2:], self.counts[2:], strict=True):
            grown = count - first - NOISE * first - self.moves * count
            worst = max(worst, grown / (rate * (size - self.sizes[0])))
        return worst

    @property
    def _rate(self) -> float:
        rate = (self.counts[1] - self.counts[0]) / (self.sizes[1] - self.sizes[0])
        return max(rate, NOISE * self.counts[0] / self.sizes[0], 1e-9)

    @property
    def linear(self) -> bool:
        """Whether the growth is within the tolerance."""
        return self.growth <= GROWTH

    def __str__(self) -> str:
        verdict = "linear" if self.linear else f"WRONG: {', '.join(f'{count:,}' for count in self.counts)}"
        return f"{self.reader:<12} {self.shape:<44} {self.counts[-1]:>14,}  {self.growth:5.2f}  {verdict}"


def readers() -> dict[str, Reader]:
    """All readers of the folder `linear`, by name."""
    found: dict[str, Reader] = {}
    folder = Path(__file__).parent / "linear"
    for module in sorted(pkgutil.iter_modules([str(folder)])):
        for reader in importlib.import_module(f"tests.fuzz.linear.{module.name}").READERS:
            assert reader.name not in found, f"two readers are called {reader.name}"
            found[reader.name] = reader
    return found


def repeated(unit: bytes, size: int, front: bytes = b"", end: bytes = b"") -> bytes:
    """A unit repeated between two ends, up to the size."""
    return front + unit * (max(0, size - len(front) - len(end)) // len(unit)) + end


def run(reader: Reader, given: Any) -> None:
    """Read one input; it may be refused."""
    with contextlib.suppress(*reader.refuses):
        reader.read(given)


# --- steps

_TOOL: Final = 4
"""A free tool id of `sys.monitoring`."""


def steps(function: Callable[[], object]) -> int:
    """The number of Python bytecodes of the call in this thread."""
    gc.disable()  # a garbage collection would run unrelated callbacks, whose bytecodes would count
    try:
        return _bytecodes(function)
    finally:
        gc.enable()


if sys.version_info >= (3, 12):  # a tracer gets no opcode events for the first frame of each function

    def _bytecodes(function: Callable[[], object]) -> int:
        here, count, monitoring = threading.get_ident(), 0, sys.monitoring

        def instruction(_code: object, _offset: int) -> None:
            nonlocal count
            count += threading.get_ident() == here

        monitoring.use_tool_id(_TOOL, "steps")
        monitoring.register_callback(_TOOL, monitoring.events.INSTRUCTION, instruction)
        monitoring.set_events(_TOOL, monitoring.events.INSTRUCTION)
        try:
            function()
        finally:
            monitoring.set_events(_TOOL, 0)
            monitoring.register_callback(_TOOL, monitoring.events.INSTRUCTION, None)
            monitoring.free_tool_id(_TOOL)
        return count

else:

    def _bytecodes(function: Callable[[], object]) -> int:
        count = 0

        def tracer(frame: FrameType, event: str, _: object) -> Any:
            nonlocal count
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
            count += event == "opcode"
            return tracer

        before = sys.gettrace()
        sys.settrace(tracer)
        try:
            function()
        finally:
            sys.settrace(before)
        return count


def short(reader: Reader, shape: str) -> Cost:
    """The steps of an attack at small sizes."""
    made = reader.shapes[shape]
    run(reader, made(reader.short[0]))  # what is computed once for all
    counts = tuple(steps(partial(run, reader, made(size))) for size in reader.short)
    return Cost(reader.name, shape, reader.short, counts)


# --- instructions

VALGRIND: Final = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
_REFS: Final = re.compile(r"I\s+refs:\s+([\d,]+)")


def instructions(names: Sequence[str]) -> Iterator[Cost]:
    """The instructions of all attacks on these readers. Needs Valgrind (Debian: valgrind)."""
    if shutil.which(VALGRIND[0]) is None:
        raise SystemExit("instructions are counted by Valgrind: apt-get install valgrind")
    for name in names:
        costs = list(_count_reader(name, 0))
        # Counts depend on where the memory of a process lies, by a few per cent: growth that is real is there in every layout.
        for layout in range(1, LAYOUTS):
            if all(cost.linear for cost in costs):
                break
            again = {cost.shape: cost for cost in _count_reader(name, layout)}
            costs = [cost if cost.linear else again[cost.shape] for cost in costs]
        yield from costs


def _count_reader(name: str, layout: int) -> Iterator[Cost]:
    environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "LAYOUT": str(layout)}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "%p")
        command = [*VALGRIND, f"--log-file={log}", sys.executable, "-m", "tests.fuzz.linearity", "--count", name]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
        counts = {int(file.name): _counted(file.read_text()) for file in Path(folder).iterdir()}
    for line in done.stdout.decode().splitlines():
        told = json.loads(line)
        base = counts[told["base"]]
        found = tuple(counts[child] - base for child in told["children"])
        yield Cost(name, told["shape"], tuple(told["sizes"]), found, readers()[name].moves)


def _counted(log: str) -> int:
    found = _REFS.search(log)
    assert found is not None, log
    return int(found[1].replace(",", ""))


def count(name: str) -> None:
    """Under Valgrind: read each input in a child process, and print which child read which."""
    reader = readers()[name]
    # Objects of all small sizes, more for each layout: they take what is free in the heap, so that later ones lie elsewhere.
    ballast = [bytes(size) for size in range(600 * int(os.environ.get("LAYOUT", "0")))]
    for shape, made in reader.shapes.items():
        run(reader, made(reader.sizes[0]))  # what is computed once for all
        gc.collect()
        gc.disable()  # the time of a collection depends on earlier allocations
        base = _forked(lambda: None)
        children = [_forked(partial(run, reader, made(size))) for size in reader.sizes]
        print(json.dumps({"shape": shape, "base": base, "sizes": reader.sizes, "children": children}), flush=True)
    del ballast


def _forked(work: Callable[[], object]) -> int:
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        except Exception:  # noqa: BLE001 - nothing may propagate into the parent's code
            traceback.print_exc()
        os._exit(status)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(f"an input ended its reader with {status}")
    return child


def main(arguments: Sequence[str] | None = None) -> int:
    """Count for each reader, and print a line for each attack; 1 if one grows faster than linearly."""
    known = readers()
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.linearity", description="What a peer's bytes cost.")
    parser.add_argument("--only", metavar="READER", nargs="+", choices=sorted(known), default=list(known))
    parser.add_argument("--count", metavar="READER", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.count is not None:
        count(options.count)
        return 0
    wrong = 0
    for cost in instructions(options.only):
        print(cost, flush=True)
        wrong += not cost.linear
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
