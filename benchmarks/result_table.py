"""The results as text: a row per benchmark, a block per curve."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .curves import Drawn
    from .measure import Result

HEAD = f"{'':28}{'cost':>10} {'':5}  {'x floor':>8}  {'target':>8}  {'spread':>6}"


def row(result: Result) -> str:
    """One line: cost, ratio to the floor, target, spread, and whether the target is met."""
    benchmark = result.benchmark
    ratio = f"{statistics.median(result.ratios):8.3f}" if result.ratios else " " * 8
    target = "" if benchmark.target is None else f"≤ {benchmark.target:g}"
    spread = f"{result.spread:6.1%}" if len(result.judged) > 1 else ""
    verdict = {None: "", True: "met", False: "MISSED"}[result.met]
    line = (
        f"{benchmark.name:28}{number(result.cost):>10} {benchmark.unit:5}  {ratio}  {target:>8}  {spread:>6}  {verdict}"
    )
    parts = [f"{name} {number(statistics.median(values))}" for name, values in result.asides.items()]
    return line.rstrip() + (f"\n{'':28}{'':4}of which {', '.join(parts)} {benchmark.unit}" if parts else "")


def block(drawn: Drawn) -> str:
    """A small table of a curve: a line per size."""
    curve = drawn.curve
    names = list(drawn.series)
    lines = [f"{curve.name}, {curve.unit} each", f"{curve.size:>12}" + "".join(f"{name:>18}" for name in names)]
    for points in zip(*drawn.series.values(), strict=True):
        costs = "".join(f"{number(cost):>18}" for _, cost in points)
        lines.append(f"{points[0][0]:12,}{costs}")
    return "\n".join(lines)


def number(value: float) -> str:
    """A number with its significant digits."""
    figures_after = max(0, 3 - len(str(int(value))))
    return f"{value:,.{figures_after}f}"
