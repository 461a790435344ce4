"""Runs benchmarks: several repeats, each right after a repeat of its floor, so that noise affects both; the results are medians."""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .benchmark_types import UNITS, Benchmark, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


@dataclass(frozen=True)
class Plan:
    """The effort of a run."""

    repeats: int = 9
    divisor: int = 1
    """The divisor of the counts of operations."""
    largest: int = 1_000_000
    """The upper limit of sizes and counts."""

    @classmethod
    def quick(cls) -> Plan:
        """The minimal effort, for a rough check."""
        return cls(repeats=3, divisor=10, largest=10_000)

    def count(self, benchmark: Benchmark) -> int:
        """The number of operations in one repeat."""
        return min(self.largest, max(1, benchmark.count // self.divisor))


@dataclass
class Result:
    """The result of a benchmark: one value per repeat."""

    benchmark: Benchmark
    costs: list[float] = field(default_factory=list[float])
    """The costs in the benchmark's unit."""
    ratios: list[float] = field(default_factory=list[float])
    """The ratios to the floor's repeats that ran right before."""
    asides: dict[str, list[float]] = field(default_factory=dict[str, list[float]])

    @property
    def cost(self) -> float:
        """The median, in the benchmark's unit."""
        return statistics.median(self.costs)

    @property
    def judged(self) -> Sequence[float]:
        """The values that the target limits: the ratios if there is a floor, else the costs."""
        return self.ratios or self.costs

    @property
    def spread(self) -> float:
        """The interquartile range relative to the median."""
        return spread(self.judged)

    @property
    def met(self) -> bool | None:
        """Whether the median meets the target; None without a target."""
        target = self.benchmark.target
        return None if target is None else statistics.median(self.judged) <= target


def spread(values: Sequence[float]) -> float:
    """The interquartile range relative to the median."""
    middle = statistics.median(values)
    if len(values) == 1 or not middle:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return (high - low) / middle


def with_floors(benchmarks: Iterable[Benchmark]) -> list[Benchmark]:
    """The floors of the benchmarks, followed by the benchmarks."""
    chosen = list(benchmarks)
    floors = [each.floor for each in chosen if each.floor is not None]
    return list(dict.fromkeys([*floors, *chosen]))


def measure(
    benchmarks: Iterable[Benchmark], plan: Plan, on_result: Callable[[Result], None] = lambda _result: None
) -> list[Result]:
    """Run all benchmarks; `on_result` is called with each result."""
    results: list[Result] = []
    for benchmark in benchmarks:
        result = Result(benchmark)
        for _ in range(benchmark.repeats or plan.repeats):
            _repeat(result, plan)
        on_result(result)
        results.append(result)
    return results


def _repeat(result: Result, plan: Plan) -> None:
    benchmark = result.benchmark
    clock, scale = benchmark.clock, UNITS[benchmark.unit]
    below = None if benchmark.floor is None else _run(benchmark.floor, plan).cost(clock)
    run = _run(benchmark, plan)
    cost = run.cost(clock)
    result.costs.append(cost / scale)
    if below is not None:
        result.ratios.append(cost / below)
    for name, value in run.asides.items():
        result.asides.setdefault(name, []).append(value / scale)


def _run(benchmark: Benchmark, plan: Plan) -> Run:
    run = Run(plan.count(benchmark))
    coroutine: Any = benchmark.function(run)
    if coroutine is not None:
        asyncio.run(coroutine)
    return run
