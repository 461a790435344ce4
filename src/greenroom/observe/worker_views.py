"""The views of several workers as one: rows are put together, numbers are added up, and a worker that does not answer is named.

A view of the parent's own process comes first, with the worker name "": it has the processes that watch the workers. Everything here is pure.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from .view_models import PAGE_SIZE, NowView, PagedView, ToolsView, TreeView, View
from .view_rows import Curve, Spread, ToolRow, TreeRow, UpstreamCount

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence


V = TypeVar("V", bound=View)

OWN_VIEWS: Final = frozenset({"process", "call", "faults"})
"""Views of one process, call or fault: they are asked of the worker that the query names."""
_OF_PARENT: Final = frozenset(
    {"at", "program", "refresh", "workers", "notes", "version", "urls", "process", "up_seconds", "page"}
)
"""Fields that are the parent's, or of the answer as a whole."""
_LARGEST: Final = frozenset({"lag", "pages"})
_MOST_NOTICES: Final = 100
_MOST_ROWS: Final = 10 * PAGE_SIZE


def merged_view(parent: V, answers: Mapping[str, V | None]) -> V:
    """One view of the parent's and of each worker's; None stands for a worker that did not answer."""
    known = {worker: named_view(view, worker) for worker, view in answers.items() if view is not None}
    views = [parent, *known.values()]
    values = {
        field: _merged(field, [getattr(each, field) for each in views])
        for field in parent.__struct_fields__
        if field not in _OF_PARENT
    }
    silent = [worker for worker, view in answers.items() if view is None]
    values["workers"] = list(answers)
    values["notes"] = [
        *(f"{worker} does not answer: it is starting, restarting or busy." for worker in silent),
        *dict.fromkeys(note for each in views for note in each.notes),  # each once
    ]
    values["refresh"] = max(each.refresh for each in views)
    if isinstance(parent, TreeView):
        values["rows"] = _tree_rows(
            parent.rows, {worker: getattr(view, "rows", []) for worker, view in known.items()}, silent
        )
    elif isinstance(parent, ToolsView):
        values["rows"] = _tool_rows(values["rows"])
    elif isinstance(parent, NowView):
        values["state"] = parent.state
    if isinstance(parent, PagedView) and any(len(values.get(field, ())) >= _MOST_ROWS for field in ("rows", "groups")):
        values["notes"].append("There are more rows than fit here: choose a worker to see all of its own.")
    return msgspec.structs.replace(parent, **values)


def named_view(view: V, worker: str) -> V:
    """The view with the worker's name in each row that has a place for it."""
    changes: dict[str, Any] = {}
    for field in view.__struct_fields__:
        value: Any = getattr(view, field)
        if value.__class__ is list and field not in ("workers", "notes"):
            changes[field] = [_row_of(each, worker) for each in value]
    return msgspec.structs.replace(view, **changes)


def _row_of(row: Any, worker: str) -> Any:
    if not isinstance(row, msgspec.Struct) or "worker" not in row.__struct_fields__:
        return row
    inner = {
        field: [_row_of(each, worker) for each in value]
        for field, value in msgspec.structs.asdict(row).items()
        if value.__class__ is list
    }
    return msgspec.structs.replace(row, worker=worker, **inner)


def _merged(field: str, values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, bool):
        return any(values)
    if isinstance(first, int | float):
        return max(values) if field in _LARGEST else sum(values)
    if isinstance(first, Spread):
        return merged_spread(values)
    if field in ("outcomes", "counts"):
        added = Counter[str]()
        for each in values:
            added.update(each)
        return dict(added)
    if first.__class__ is list:
        return _merged_lists(field, values)
    return next((each for each in values if each is not None and each != ""), first)


def _merged_lists(field: str, values: Sequence[list[Any]]) -> list[Any]:
    rows = [row for each in values for row in each]
    if any(isinstance(row, Curve) for row in rows):
        return merged_curves(rows)
    if any(isinstance(row, UpstreamCount) for row in rows):
        counts = Counter[str]()
        for row in rows:
            counts[row.state] += row.count
        return [UpstreamCount(state=state, count=count) for state, count in sorted(counts.items())]
    if field in ("notices", "gave_up", "crashes", "groups", "faults"):
        rows.sort(key=_time_of, reverse=True)
        return rows[: _MOST_NOTICES if field == "notices" else _MOST_ROWS]
    return rows[:_MOST_ROWS]


def _time_of(row: Any) -> float:
    found: float = row.last_at if hasattr(row, "last_at") else row.at
    return found


def merged_spread(values: Iterable[Spread]) -> Spread:
    """One spread of several: percentiles cannot be added, so each is the largest of theirs, which no worker's calls exceed."""
    known = list(values)

    def largest(name: str) -> float | None:
        return max((found for each in known if (found := getattr(each, name)) is not None), default=None)

    return Spread(
        count=sum(each.count for each in known),
        p50=largest("p50"),
        p95=largest("p95"),
        p99=largest("p99"),
        longest=largest("longest"),
    )


def merged_curves(curves: Iterable[Curve]) -> list[Curve]:
    """Curves of the same name as one: times and percentiles are the largest, all others are added up. Their newest values stand above one another."""
    by_name: dict[tuple[str, float], list[Curve]] = {}
    for each in curves:
        by_name.setdefault((each.name, each.step), []).append(each)
    return [
        msgspec.structs.replace(same[0], ends_at=max(each.ends_at for each in same), values=_merged_values(same))
        for same in by_name.values()
    ]


def _merged_values(same: Sequence[Curve]) -> list[float | None]:
    put: Callable[[Sequence[float]], float] = max if same[0].unit in ("s", "seconds") else math.fsum
    columns = zip_longest(*(reversed(each.values) for each in same))
    found: list[float | None] = []
    for column in columns:
        present = [value for value in column if value is not None]
        found.append(put(present) if present else None)
    return found[::-1]


def _tree_rows(own: Iterable[TreeRow], known: Mapping[str, Sequence[TreeRow]], silent: Iterable[str]) -> list[TreeRow]:
    """The parent's tree, then each worker with its own tree below it."""
    rows = list(own)
    for worker, theirs in known.items():
        rows.append(_worker_row(worker, "running", sum(not row.depth for row in theirs)))
        rows += [msgspec.structs.replace(row, depth=row.depth + 1) for row in theirs]
    rows += [_worker_row(worker, "exited", 0) for worker in silent]
    return rows[:_MOST_ROWS]


def _worker_row(worker: str, state: Any, children: int) -> TreeRow:
    return TreeRow(
        depth=0, label=worker, kind="process of the operating system", state=state, children=children, worker=worker
    )


def _tool_rows(rows: Iterable[ToolRow]) -> list[ToolRow]:
    """One row for each tool, whichever workers ran it."""
    found: dict[Hashable, list[ToolRow]] = {}
    for row in rows:
        found.setdefault((row.place, row.side, row.method, row.name), []).append(row)
    merged = [_tool_row(same) for same in found.values()]
    merged.sort(key=lambda row: -row.calls)
    return merged


_ADDED: Final = ("calls", "in_flight", "per_second", "failed", "tool_errors", "refused", "crashes")


def _tool_row(same: Sequence[ToolRow]) -> ToolRow:
    if len(same) == 1:
        return same[0]
    added = {name: sum(getattr(each, name) for each in same) for name in _ADDED}
    return msgspec.structs.replace(same[0], worker="", spread=merged_spread(each.spread for each in same), **added)
