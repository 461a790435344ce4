"""The views of several workers as one: nothing is lost, nothing is counted twice, and a silent worker is named."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from greenroom.observe.view_models import (
    VIEW_TYPES,
    CallsView,
    CrashesView,
    NowView,
    TasksView,
    ToolsView,
    TreeView,
    View,
    WireView,
)
from greenroom.observe.view_rows import (
    CallRow,
    CrashGroup,
    Curve,
    FrameRow,
    Notice,
    Spread,
    ToolRow,
    TreeRow,
    UpstreamCount,
    WireGroup,
)
from greenroom.observe.worker_views import merged_curves, merged_spread, merged_view, named_view

counts = some.integers(0, 1000)


def tool(name: str, calls: int, p95: float | None = None) -> ToolRow:
    spread = Spread(count=calls, p95=p95)
    return ToolRow(program="many", side="server", method="tools/call", name=name, calls=calls, spread=spread)


def notice(number: int, at: float) -> Notice:
    return Notice(number=number, at=at, kind="ProcessCrashed", level="error", text="it crashed")


@pytest.mark.parametrize("name", sorted(set(VIEW_TYPES) - {"process", "call"}))
def test_every_view_is_merged_with_answers_and_without(name: str) -> None:
    kind = VIEW_TYPES[name]
    empty = kind(at=1.0, program="many")
    whole = merged_view(empty, {"worker-1": kind(at=2.0, program="many", notes=["switched off"]), "worker-2": None})
    assert type(whole) is kind
    assert whole.workers == ["worker-1", "worker-2"]
    assert whole.notes == ["worker-2 does not answer: it is starting, restarting or busy.", "switched off"]
    assert (whole.at, whole.program) == (1.0, "many")
    assert msgspec.json.decode(msgspec.json.encode(whole), type=kind) == whole


@given(some.lists(some.tuples(counts, counts, some.floats(0, 60)), min_size=1, max_size=6))
def test_numbers_are_added_up_and_lag_is_the_longest(found: list[tuple[int, int, float]]) -> None:
    views = [
        NowView(
            at=0.0, program="many", process=number, calls_total=calls, sessions=sessions, lag=lag, up_seconds=number
        )
        for number, (calls, sessions, lag) in enumerate(found)
    ]
    whole = merged_view(views[0], {f"worker-{number}": view for number, view in enumerate(views[1:], 1)})
    assert whole.calls_total == sum(calls for calls, _, _ in found)
    assert whole.sessions == sum(sessions for _, sessions, _ in found)
    assert whole.lag == max(lag for _, _, lag in found)
    assert (whole.process, whole.up_seconds, whole.state) == (0, 0.0, "serving")


@given(some.lists(some.lists(some.tuples(some.sampled_from("abc"), counts), max_size=5), max_size=4))
def test_a_tool_is_one_row_however_many_workers_ran_it(found: list[list[tuple[str, int]]]) -> None:
    own = ToolsView(at=0.0, program="many")
    answers = {
        f"worker-{number}": ToolsView(
            at=0.0, program="many", rows=[tool(name, calls, p95=float(calls)) for name, calls in rows]
        )
        for number, rows in enumerate(found, 1)
    }
    rows = merged_view(own, answers).rows
    called = [each for per_worker in found for each in per_worker]
    assert {row.name: row.calls for row in rows} == {
        name: sum(calls for other, calls in called if other == name) for name, _ in called
    }
    for row in rows:
        assert row.spread.p95 == max(calls for name, calls in called if name == row.name)
        assert row.spread.count == row.calls


def test_rows_name_their_worker_also_inside_of_groups() -> None:
    frame = FrameRow(number=1, at=0.0, side="server", program="many", direction="in", kind="request", size=1)
    view = WireView(at=0.0, program="many", groups=[WireGroup(method="ping", at=0.0, frames=[frame])])
    (group,) = named_view(view, "worker-2").groups
    assert (group.worker, group.frames[0].worker) == ("worker-2", "worker-2")
    assert view.groups[0].worker == ""  # what is kept for other viewers stays as it is


def test_what_happened_is_in_order_and_bounded() -> None:
    own = NowView(at=0.0, program="many", notices=[notice(1, 5.0)])
    answers = {
        "worker-1": NowView(at=0.0, program="many", notices=[notice(number, 10.0 - number) for number in range(200)])
    }
    whole = merged_view(own, answers)
    assert len(whole.notices) == 100
    assert [each.at for each in whole.notices] == sorted((each.at for each in whole.notices), reverse=True)
    assert {each.worker for each in whole.notices} == {"", "worker-1"}


def test_crashes_of_workers_stand_by_the_time_of_their_last() -> None:
    def view(group: str, last: float) -> CrashesView:
        made = CrashGroup(group=group, kind="K", reason="r", count=1, first_at=0.0, last_at=last)
        return CrashesView(at=0.0, program="many", groups=[made], matching=1, total=1)

    whole = merged_view(view("a", 1.0), {"worker-1": view("b", 3.0), "worker-2": view("c", 2.0)})
    assert [(each.group, each.worker) for each in whole.groups] == [("b", "worker-1"), ("c", "worker-2"), ("a", "")]
    assert (whole.matching, whole.total) == (3, 3)


def test_each_worker_is_a_branch_of_the_tree_and_a_dead_one_is_seen() -> None:
    def view(*depths: int) -> TreeView:
        return TreeView(at=0.0, program="many", rows=[TreeRow(depth=depth, label="p", kind="K") for depth in depths])

    whole = merged_view(view(0), {"worker-1": view(0, 1, 0), "worker-2": None})
    assert [(row.depth, row.label, row.worker, row.state, row.children) for row in whole.rows] == [
        (0, "p", "", "running", 0),
        (0, "worker-1", "worker-1", "running", 2),
        (1, "p", "worker-1", "running", 0),
        (2, "p", "worker-1", "running", 0),
        (1, "p", "worker-1", "running", 0),
        (0, "worker-2", "worker-2", "exited", 0),
    ]


def test_a_page_of_many_workers_is_bounded_and_says_so() -> None:
    row = CallRow(call=1, side="server", program="many", way="session", method="ping")
    view = CallsView(at=0.0, program="many", rows=[row] * 200, pages=3, matching=500)
    whole = merged_view(view, {f"worker-{number}": view for number in range(1, 20)})
    assert (len(whole.rows), whole.pages, whole.matching) == (2000, 3, 10_000)
    assert whole.notes == ["There are more rows than fit here: choose a worker to see all of its own."]


def test_counts_by_word_are_added_up() -> None:
    own = TasksView(at=0.0, program="many", counts={"completed": 1})
    whole = merged_view(own, {"worker-1": TasksView(at=0.0, program="many", counts={"completed": 2, "failed": 1})})
    assert whole.counts == {"completed": 3, "failed": 1}
    schema = {"type": "object"}
    tools = merged_view(
        ToolsView(at=0.0, program="many"), {"worker-1": ToolsView(at=0.0, program="many", schema=schema)}
    )
    assert tools.schema == schema


def test_upstreams_are_counted_by_state() -> None:
    def view(*pairs: tuple[str, int]) -> NowView:
        return NowView(
            at=0.0, program="m", upstreams=[UpstreamCount(state=state, count=count) for state, count in pairs]
        )

    whole = merged_view(view(("ready", 1)), {"worker-1": view(("ready", 2), ("down", 1))})
    assert [(each.state, each.count) for each in whole.upstreams] == [("down", 1), ("ready", 3)]


def test_curves_of_one_name_stand_above_one_another_at_their_ends() -> None:
    def curve(name: str, unit: str, ends_at: float, *values: float | None) -> Curve:
        return Curve(name=name, unit=unit, step=1.0, ends_at=ends_at, values=list(values))

    calls, p95 = merged_curves(
        [
            curve("calls", "1/s", 10.0, 1.0, 2.0, None),
            curve("p95", "s", 10.0, 0.5),
            curve("calls", "1/s", 11.0, 5.0, None),
            curve("p95", "s", 10.0, 0.25),
        ]
    )
    assert (calls.values, calls.ends_at) == ([1.0, 7.0, None], 11.0)
    assert p95.values == [0.5]


def test_a_spread_of_nothing_is_nothing() -> None:
    assert merged_spread([Spread(), Spread()]) == Spread()
    assert merged_spread([]) == Spread()


def test_no_view_is_changed_by_merging() -> None:
    views: list[View] = [CallsView(at=0.0, program="many", notes=["a"]), CallsView(at=0.0, program="many")]
    before = msgspec.json.encode(views)
    merged_view(views[0], {"worker-1": views[1]})
    assert msgspec.json.encode(views) == before
