"""The curves as an SVG chart: one panel each, both axes logarithmic.

Written by hand: a chart of a few lines needs no dependency.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .curves import Drawn

# The size of a panel, and its margins.
WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 112, 44, 44
COLUMNS = 2
LINE = 13  # the height of a label

# Colors that are distinct for colorblind readers; each line also has its name at its end.
COLOURS = ("#0b5fa5", "#c2410c", "#15803d", "#7e22ce")
INK, FAINT, PAPER = "#1f2328", "#d8dee4", "#ffffff"


def svg(curves: Sequence[Drawn]) -> str:
    """The chart with all panels, two in a row."""
    rows = math.ceil(len(curves) / COLUMNS)
    wide, high = WIDTH * min(COLUMNS, max(1, len(curves))), HEIGHT * max(1, rows)
    panels = "".join(
        f'<g transform="translate({index % COLUMNS * WIDTH},{index // COLUMNS * HEIGHT})">{panel(drawn)}</g>\n'
        for index, drawn in enumerate(curves)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        f'font-family="sans-serif" font-size="11" fill="{INK}">\n'
        f'<rect width="{wide}" height="{high}" fill="{PAPER}"/>\n{panels}</svg>\n'
    )


class Scale:
    """A logarithmic axis between whole decades."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        """The coordinates of the axis's ends."""
        self.low = math.floor(math.log10(min(values)))
        self.high = max(self.low + 1, math.ceil(math.log10(max(values))))
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    @property
    def decades(self) -> list[float]:
        """The values of the grid lines."""
        return [10.0**power for power in range(self.low, self.high + 1)]


def panel(drawn: Drawn) -> str:
    """The panel of a curve: title, grid, and a labelled line per series."""
    curve = drawn.curve
    title = text(8, 18, curve.name, size=14, weight="bold") + text(8, 33, f"{curve.unit} each, by {curve.size}")
    # A cost of 0 was too small for the clock: a logarithmic axis has no place for it.
    series = {name: [point for point in points if point[1] > 0] for name, points in drawn.series.items()}
    points = [point for each in series.values() for point in each]
    if not points:
        return title + text(LEFT, HEIGHT / 2, "nothing measured")
    x = Scale([size for size, _ in points], LEFT, WIDTH - RIGHT)
    y = Scale([cost for _, cost in points], HEIGHT - BOTTOM, TOP)
    grid = [line(x(each), TOP, x(each), HEIGHT - BOTTOM) for each in x.decades]
    grid += [line(LEFT, y(each), WIDTH - RIGHT, y(each)) for each in y.decades]
    ticks = [text(x(each), HEIGHT - BOTTOM + 16, tick(each), anchor="middle") for each in x.decades]
    ticks += [text(LEFT - 6, y(each) + 4, tick(each), anchor="end") for each in y.decades]
    ends = {name: y(points[-1][1]) for name, points in series.items() if points}
    heights = apart(ends)
    lines = [
        path([(x(size), y(cost)) for size, cost in series[name]], COLOURS[index % len(COLOURS)])
        + text(WIDTH - RIGHT + 10, heights[name] + 4, name, fill=COLOURS[index % len(COLOURS)])
        for index, name in enumerate(ends)
    ]
    return "".join([title, *grid, *ticks, *lines])


def apart(wanted: dict[str, float]) -> dict[str, float]:
    """The positions of the labels: near the ends of their lines, without overlap."""
    placed: dict[str, float] = {}
    above = -math.inf
    for name, height in sorted(wanted.items(), key=lambda item: item[1]):
        above = placed[name] = max(height, above + LINE)
    return placed


def tick(value: float) -> str:
    """The label of a decade."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def text(  # noqa: PLR0913 - SVG's attributes
    x: float, y: float, words: str, *, anchor: str = "start", fill: str = INK, size: int = 11, weight: str = "normal"
) -> str:
    """A text element."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}" '
        f'font-weight="{weight}">{escape(words)}</text>'
    )


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    """A grid line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{FAINT}"/>'


def path(points: Sequence[tuple[float, float]], colour: str) -> str:
    """A line through the points, with a dot on each."""
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in points)
    return f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="1.8"/>{dots}'
