"""Curves: cost against size, and the measurement of their points."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from .benchmark_types import UNITS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable

    from .measure import Plan

Function: TypeAlias = "Callable[[Point], Coroutine[Any, Any, None]]"

ENOUGH = 20_000  # operations per point: small sizes are repeated, large ones run once
ROUND = 1_000  # operations per repeat, likewise


@dataclass
class Point:
    """One repeat at one size. It has several rounds, so that one-time costs do not dominate small sizes."""

    size: int
    rounds: int
    costs: dict[str, float] = field(default_factory=dict[str, float])
    """The cost of one operation, by series."""

    @contextmanager
    def measured(self, series: str) -> Generator[None]:
        """Measure the CPU time of a block of `size` operations, once in each round."""
        began = time.process_time()
        yield
        spent = time.process_time() - began
        self.costs[series] = self.costs.get(series, 0.0) + spent / (self.size * self.rounds)


@dataclass(frozen=True)
class Curve:
    """A set of series over one range of sizes."""

    name: str
    about: str
    function: Function
    sizes: tuple[int, ...]
    size: str
    """The meaning of the sizes."""
    unit: str


@dataclass(frozen=True)
class Drawn:
    """A measured curve: for each series, the cost at each size, in the curve's unit."""

    curve: Curve
    series: dict[str, list[tuple[int, float]]]


_registered: dict[str, Curve] = {}


def registered() -> tuple[Curve, ...]:
    """All curves of the modules imported so far."""
    return tuple(_registered.values())


def curve(name: str, *, sizes: Iterable[int], size: str, unit: str = "us") -> Callable[[Function], Curve]:
    """Make a curve of a function that measures one point, and whose docstring describes it."""

    def register(function: Function) -> Curve:
        about = function.__doc__
        if not about:
            message = f"{name}: a curve says in its docstring what it measures"
            raise ValueError(message)
        if name in _registered:
            message = f"there is a curve named {name!r} already"
            raise ValueError(message)
        made = Curve(name, " ".join(about.split()), function, tuple(sizes), size, unit)
        _registered[name] = made
        return made

    return register


def draw(curve: Curve, plan: Plan) -> Drawn:
    """Measure a curve up to the plan's largest size; each point is the median of its repeats."""
    enough = min(plan.largest, ENOUGH // plan.divisor)
    series: dict[str, list[tuple[int, float]]] = {}
    for size in curve.sizes:
        if size > plan.largest:
            break
        costs: dict[str, list[float]] = {}
        for _ in range(max(1, enough // max(size, ROUND))):
            point = Point(size, max(1, ROUND // size))
            gc.collect()
            asyncio.run(curve.function(point))
            for name, cost in point.costs.items():
                costs.setdefault(name, []).append(cost)
        for name, values in costs.items():
            series.setdefault(name, []).append((size, statistics.median(values) / UNITS[curve.unit]))
    return Drawn(curve, series)
