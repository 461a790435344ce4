"""Views as text: tables that fit a terminal, and lines for one thing."""

from __future__ import annotations

from typing import Any

import msgspec
import msgspec.inspect as types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.cli.view_tables import (
    Cell,
    TableRow,
    curve_text,
    detail_lines,
    display_width,
    fitted_lines,
    now_lines,
    program_line,
    sorted_rows,
    view_table,
)
from greenroom.observe import view_models as views
from greenroom.observe import view_rows as rows
from greenroom.observe.page_formats import NOTHING

AT = 1_700_000_000.0
BAD = "\x1b[2J\u202e[bold]\nx"
LISTS = [name for name in views.VIEW_TYPES if name not in ("process", "call", "wire", "faults")]


def filled(shape: type[Any], text: str) -> Any:
    """A struct whose every text is this one, and whose every list has an element."""
    return msgspec.convert(_value(types.type_info(shape), text), shape)


def _value(info: types.Type, text: str) -> Any:
    match info:
        case types.StructType(fields=fields):
            return {each.encode_name: _value(each.type, text) for each in fields}
        case types.StrType():
            return text
        case types.LiteralType(values=values):
            return values[0]
        case types.BoolType():
            return True
        case types.IntType():
            return 12
        case types.FloatType():
            return 1.5
        case types.ListType(item_type=inner):
            return [_value(inner, text)]
        case types.DictType(value_type=inner):
            return {text: _value(inner, text)}
        case types.UnionType(types=inner):
            return _value(next(each for each in inner if not isinstance(each, types.NoneType)), text)
        case _:
            return {}


@pytest.mark.parametrize("name", LISTS)
def test_every_list_is_a_table_whose_rows_have_all_columns_and_no_control_characters(name: str) -> None:
    view = filled(views.VIEW_TYPES[name], BAD)
    for each in (view, views.VIEW_TYPES[name](at=AT, program="x")):
        table = view_table(each)
        assert all(len(row.cells) == len(table.columns) for row in table.rows)
        texts = [*table.above, *(cell.text for row in table.rows for cell in row.cells)]
        assert all(text.isprintable() for text in texts)
    assert view_table(view).rows


@pytest.mark.parametrize("name", ["process", "call", "tools", "crashes"])
def test_details_have_no_control_characters(name: str) -> None:
    view = filled(views.VIEW_TYPES[name], BAD)
    lines = list(detail_lines(view, {"tool": BAD}))
    assert len(lines) > 1
    assert all(line.isprintable() for line in lines)


def test_a_list_has_no_details() -> None:
    with pytest.raises(TypeError, match="LoopView is a list"):
        list(detail_lines(views.LoopView(at=AT, program="x"), {}))


def test_the_program_is_one_line_with_what_went_wrong() -> None:
    view = views.NowView(
        at=AT, program="sky", process=7, up_seconds=61.0, processes=31, calls_per_second=3.25, gave_up_total=1, lag=0.2
    )
    assert program_line(view) == (
        f"sky (process 7), serving, up 1 min, 1 gave up, 200 ms late, 3.2 calls/s, p95 {NOTHING}, 31 processes"
    )


def test_curves_are_bars_with_gaps_and_their_last_value() -> None:
    assert curve_text([0.0, None, 4.0, 8.0], 3) == "·▅█"
    assert curve_text([0.0, 0.0], 9) == "▁▁"
    assert curve_text([1.0], 0) == ""
    curve = rows.Curve(name="lag", unit="s", step=1.0, ends_at=AT, values=[0.0, 0.25, None])
    (line,) = [each for each in now_lines(views.NowView(at=AT, program="x", curves=[curve])) if each.startswith("lag")]
    assert line.split() == ["lag", "250", "ms", "▁█·"]


def test_one_is_not_called_by_the_word_for_many() -> None:
    one = views.NowView(at=AT, program="x", sessions=1, streams=1, listens=1, crashes_total=1, restarts_total=1)
    assert ", 1 crash, 1 restart, " in program_line(one)
    assert "1 session, 2 streams, 0 tasks, 0 questions, 0 pool workers" in list(now_lines(one))
    assert ", 2 crashes, 3 restarts, " in program_line(msgspec.structs.replace(one, crashes_total=2, restarts_total=3))


def row(*cells: Cell) -> TableRow:
    return TableRow(key="k", cells=cells)


def test_the_widest_text_is_cut_first_and_numbers_never() -> None:
    some = [row(Cell("a" * 30, "a"), Cell("b" * 10, "b"), Cell("12345", 12345.0))]
    head, (line,) = fitted_lines(some, ["LONG", "SHORT", "N"], 30)
    text = "".join(piece for piece, _ in line)
    assert text == "a" * 12 + "… bbbbbbbbbb 12345"
    assert head == "LONG          SHORT          N"


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.text(max_size=60), st.text(max_size=20), st.floats(0, 1e9)), max_size=6),
    st.integers(40, 120),
)
def test_a_table_never_is_wider_than_its_terminal(some: list[tuple[str, str, float]], width: int) -> None:
    cells = [
        row(*view_cells(first), *view_cells(second), Cell(f"{number:.0f}", number)) for first, second, number in some
    ]
    head, lines = fitted_lines(cells, ["FIRST", "SECOND", "N"], width)
    assert display_width(head) <= width
    for line in lines:
        assert display_width("".join(text for text, _ in line)) <= width


def view_cells(text: str) -> list[Cell]:
    """The cell that a view makes of a text."""
    call = rows.CallRow(call=1, side="server", program=text, way="", method="m", name="n")
    return [view_table(views.CallsView(at=AT, program="x", rows=[call])).rows[0].cells[2]]


def test_rows_are_sorted_by_number_or_text() -> None:
    some = [row(Cell("10", 10.0)), row(Cell("9", 9.0)), row(Cell("z", "z"))]
    assert [each.cells[0].text for each in sorted_rows(some, 0)] == ["9", "10", "z"]
    assert [each.cells[0].text for each in sorted_rows(some, 0, is_reversed=True)] == ["z", "10", "9"]


def test_an_upstream_says_why_and_what_to_do() -> None:
    one = rows.UpstreamRow(
        upstream="git",
        program="host",
        state="needs_sign_in",
        reason="no login",
        sign_in_url="https://x/",
        breaker="half_open",
        next_attempt=2.0,
    )
    (line,) = view_table(views.UpstreamsView(at=AT, program="host", rows=[one])).rows
    texts = [cell.text for cell in line.cells]
    assert line.target == "host/git"
    assert texts[1] == "needs sign in"
    assert texts[3] == "no login, sign in at https://x/, breaker half open"
    assert texts[4] == "2.00 s"
