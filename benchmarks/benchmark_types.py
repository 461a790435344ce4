"""The definition of a benchmark: a named function that marks what is measured, with its floor and its target.

Only the clocks are read here; `measure` decides which benchmark runs how often.
"""

from __future__ import annotations

import gc
import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

Clock: TypeAlias = Literal["cpu", "wall"]
Function: TypeAlias = "Callable[[Run], Awaitable[None] | None]"


@dataclass
class Run:
    """One repeat. The function performs the operation `count` times and marks it with `measured`.

    `cpu` and `wall` are read around the same blocks, so that one floor serves both kinds of benchmark.
    """

    count: int
    asides: dict[str, float] = field(default_factory=dict[str, float])
    """Further numbers of the same repeat, in the benchmark's unit."""
    _blocks: list[tuple[float, float, int]] = field(default_factory=list[tuple[float, float, int]])

    @contextmanager
    def measured(self, count: int | None = None) -> Generator[None]:
        """Measure a block of `count` operations, by default all of the run's.

        Garbage of earlier code is collected before the first block. In the block the collector runs as usual: the cost of garbage is part of the
        cost.
        """
        if not self._blocks:
            gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        self._blocks.append((cpu, wall, self.count if count is None else count))

    def record(self, value: float) -> None:
        """Record one operation that the function measured itself: a latency in seconds, a size in bytes."""
        self._blocks.append((value, value, 1))

    def cost(self, clock: Clock) -> float:
        """The cost of one operation. CPU time is averaged over the run; a latency is the median, which outliers do not move."""
        if not self._blocks:
            message = "the benchmark measured nothing: it has to use `run.measured()` or `run.record(…)`"
            raise RuntimeError(message)
        if clock == "wall":
            return statistics.median(wall / count for _, wall, count in self._blocks)
        return sum(cpu for cpu, _, _ in self._blocks) / sum(count for _, _, count in self._blocks)


@dataclass(frozen=True)
class Benchmark:
    """A function to be measured, with its floor and target."""

    name: str
    about: str
    function: Function
    count: int
    """The number of operations in one repeat."""
    unit: str
    clock: Clock
    floor: Benchmark | None
    target: float | None
    """The largest allowed ratio to the floor; without a floor, the largest cost in `unit`."""
    repeats: int | None
    """The number of repeats; None for the plan's."""


UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "bytes": 1.0, "MB": 1e6, "x": 1.0}
"""The size of one unit in the unit of `Run`."""

_registered: dict[str, Benchmark] = {}


def registered() -> tuple[Benchmark, ...]:
    """All benchmarks of the modules imported so far, in written order."""
    return tuple(_registered.values())


def benchmark(  # noqa: PLR0913 - options by keyword only
    name: str,
    *,
    count: int = 1,
    unit: str = "us",
    clock: Clock = "cpu",
    floor: Benchmark | None = None,
    target: float | None = None,
    repeats: int | None = None,
) -> Callable[[Function], Benchmark]:
    """Make a benchmark of a function, whose docstring says what is measured."""
    if unit not in UNITS:
        message = f"{name}: the unit {unit!r} is none of {', '.join(UNITS)}"
        raise ValueError(message)

    def register(function: Function) -> Benchmark:
        about = function.__doc__
        if not about:
            message = f"{name}: a benchmark says in its docstring what it measures"
            raise ValueError(message)
        if name in _registered:
            message = f"there is a benchmark named {name!r} already"
            raise ValueError(message)
        made = Benchmark(name, " ".join(about.split()), function, count, unit, clock, floor, target, repeats)
        _registered[name] = made
        return made

    return register
