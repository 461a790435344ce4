"""How values of a view are written on a page: ages, sizes, rates, the tone of a state, small drawings."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .view_rows import Curve, TreeRow

NOTHING: Final = "\N{EN DASH}"
"""Stands in a cell without a value."""
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_LAST_TIME: Final = 253_402_300_799.0
"""The end of the year 9999, the last that dates can be written for."""
_LONGEST_FRESH: Final = 8.0
"""For how many seconds a restarted process is shown in colour."""

TONES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("serving", "ready", "result", "running", "as_predicted", "closed", "completed", "idle_worker"), "good"
    ),
    **dict.fromkeys(("answered", "accept"), "good"),
    **dict.fromkeys(("starting", "restarting", "degraded", "half_open", "drained", "draining", "stopping"), "warn"),
    **dict.fromkeys(
        ("tool_error", "deadline", "parked", "missed", "refused", "input_required", "lost", "leaving"), "warn"
    ),
    **dict.fromkeys(("gave_up", "exited", "open", "error", "worker_crashed", "process_ended", "otherwise"), "bad"),
    **dict.fromkeys(("failed", "unreadable"), "bad"),
    **dict.fromkeys(("needs_sign_in", "asks", "busy", "working", "pending", "request", "notification"), "info"),
}
"""The tone of a state, which is a colour and a shape; all others are `idle`."""


def tone(state: str) -> str:
    """The tone of a state or an outcome."""
    return TONES.get(state, "idle")


def words(state: str) -> str:
    """A state as words: `needs_sign_in` is "needs sign in"."""
    return state.replace("_", " ")


def age(seconds: float | None) -> str:
    """An age for a person: 12 s, 3 min, 2 h 5 min, 4 d 3 h."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    whole = int(max(0.0, seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // 60} min"
    if whole < _DAY:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def took(seconds: float | None) -> str:
    """A duration with about three digits: 0.4 ms, 12 ms, 1.23 s, 34 s."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 1:
        milliseconds = seconds * 1000
        return f"{milliseconds:.1f} ms" if 0 < milliseconds < 10 else f"{milliseconds:.0f} ms"  # noqa: PLR2004 - three digits
    if seconds < _MINUTE:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"  # noqa: PLR2004 - the same
    return age(seconds)


def number(value: float | None) -> str:
    """A count with separators, or a rate with about two digits after the point."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value < 0.005:  # noqa: PLR2004 - it would be written as 0.00
        return "0"
    if value == int(value) or value >= 100:  # noqa: PLR2004 - a rate above needs no fractions
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def plural(count: int, noun: str) -> str:
    """A count with its noun: 1 task, 2 tasks."""
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def size(count: float | None) -> str:
    """Bytes: 512 B, 1.4 kB, 23 MB."""
    if count is None:
        return NOTHING
    amount, unit = float(count), "B"
    for larger in ("kB", "MB", "GB"):
        if amount < 1000:  # noqa: PLR2004 - the next unit
            break
        amount, unit = amount / 1000, larger
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"  # noqa: PLR2004 - two digits


def measured(value: float | None, unit: str) -> str:
    """The value of a curve in its unit."""
    if unit in ("s", "seconds"):
        return took(value)
    if unit in ("By", "B", "bytes"):
        return size(value)
    return number(value)


def clock(at: float) -> str:
    """The time of day in this machine's zone, as logs have it; with the date when it was another day."""
    then = time.localtime(_known_time(at))
    return time.strftime("%H:%M:%S" if time.time() - at < _DAY else "%d %b %H:%M", then)


def _known_time(at: float) -> float:
    return min(max(0.0, at), _LAST_TIME) if math.isfinite(at) else 0.0


def iso(at: float) -> str:
    """A time as HTML's `datetime` takes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_known_time(at)))


def pretty(text: str | None) -> str:
    """JSON over several lines; text that is no JSON (it may have been cut) as it is."""
    if not text:
        return ""
    try:
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text


def is_fresh(row: TreeRow) -> bool:
    """Whether a process was restarted a moment ago."""
    return row.restarted is not None and row.restarted < _LONGEST_FRESH


def row_tone(row: TreeRow) -> str:
    """The tone of a process in the tree: how it lives first, then what it does."""
    if row.state != "running":
        return tone(row.state)
    if is_fresh(row):
        return "warn"
    if row.activity in ("running", "working", "queued"):
        return "info"
    return "good"


class TreeNode:
    """A row of the tree with the rows below it."""

    __slots__ = ("children", "row", "title")

    def __init__(self, row: TreeRow, above: TreeNode | None) -> None:
        self.row = row
        self.children: list[TreeNode] = []
        self.title = name_of(row)
        """Its name, without the program's where the row above has it as well."""
        if above is not None:
            program, slash, _ = name_of(above.row).partition("/")
            self.title = self.title.removeprefix(f"{program}/") if slash else self.title


def name_of(row: TreeRow) -> str:
    """What a process is called: its name, its id among its siblings, or what it runs."""
    return row.name or row.id or row.label


def nested(rows: Sequence[TreeRow]) -> list[TreeNode]:
    """Rows of a drawing as a forest. A row that skips a depth, since a page begins in the middle, is below the last one that is less deep."""
    top: list[TreeNode] = []
    path: list[TreeNode] = []
    for row in rows:
        while path and path[-1].row.depth >= row.depth:
            path.pop()
        node = TreeNode(row, path[-1] if path else None)
        (path[-1].children if path else top).append(node)
        path.append(node)
    return top


def marks(nodes: Sequence[TreeNode]) -> list[tuple[str, TreeNode]]:
    """A forest as marks in order: a row with others below it opens and closes, any other is a leaf."""
    found: list[tuple[str, TreeNode]] = []
    for node in nodes:
        if node.children:
            found += [("open", node), *marks(node.children), ("close", node)]
        else:
            found.append(("leaf", node))
    return found


def in_order(nodes: Sequence[TreeNode]) -> list[TreeNode]:
    """A forest as rows again, each with its title."""
    return [each for node in nodes for each in (node, *in_order(node.children))]


def line_points(values: Sequence[float | None], width: float = 100.0, height: float = 24.0) -> str:
    """The points of a small curve for an SVG `polyline`; a gap is drawn as zero."""
    numbers = [0.0 if value is None or not math.isfinite(value) else max(0.0, value) for value in values]
    if len(numbers) < 2:  # noqa: PLR2004 - a line needs two points
        numbers = [*numbers, *numbers] or [0.0, 0.0]
    most = max(numbers) or 1.0
    step = width / (len(numbers) - 1)
    return " ".join(
        f"{step * place:.1f},{height - 1 - (height - 2) * value / most:.1f}" for place, value in enumerate(numbers)
    )


def curve_data(curves: Sequence[Curve]) -> str:
    """Curves with the same times as the JSON that the page's script draws: times, then each curve's values."""
    if not curves:
        return "[]"
    length = max(len(each.values) for each in curves)
    first = curves[0]
    begins = first.ends_at - first.step * (length - 1)
    times = [round(begins + first.step * place, 3) for place in range(length)]
    gap: list[float | None] = [None]
    rows = [gap * (length - len(each.values)) + each.values for each in curves]
    return msgspec.json.encode(
        {"unit": first.unit, "names": [words(each.name) for each in curves], "data": [times, *rows]}
    ).decode()


def summary(curve: Curve) -> str:
    """A curve as words, for readers who do not see it."""
    known = [value for value in curve.values if value is not None]
    if not known:
        return "none so far"
    return f"now {measured(known[-1], curve.unit)}, at most {measured(max(known), curve.unit)}"


def percent(part: float, whole: float | None) -> int:
    """A part of a whole in whole percents, from 0 to 100; at least 1 for a part that is there."""
    if not whole or part <= 0 or not math.isfinite(part):
        return 0
    return max(1, min(100, round(100 * part / whole)))


FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "age": age,
    "clock": clock,
    "iso": iso,
    "is_fresh": is_fresh,
    "measured": measured,
    "in_order": in_order,
    "marks": marks,
    "nested": nested,
    "number": number,
    "plural": plural,
    "pretty": pretty,
    "row_tone": row_tone,
    "size": size,
    "summary": summary,
    "took": took,
    "tone": tone,
    "words": words,
    "curve_data": curve_data,
    "line_points": line_points,
    "percent": percent,
}
"""The filters of the templates."""
