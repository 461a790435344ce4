"""The views of a running program as text: tables for lists, and lines for one thing. `greenroom top`, `status` and `calls` print these.

All texts come from another program, and partly from its peers: `visible` escapes them here as well. A state is a word and never only a colour.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from unicodedata import combining, east_asian_width

from greenroom.observe import view_models as views
from greenroom.observe.page_formats import NOTHING, age, clock, is_fresh, measured, number, plural, size, took
from greenroom.protocol.serialization import is_object
from greenroom.supervision import visible_text

from .exit_codes import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from greenroom.observe.view_rows import CrashRow, Notice, UpstreamRow

_BARS: Final = "▁▂▃▄▅▆▇█"
_GAP: Final = "·"
_LATE: Final = 0.05
"""From how many seconds on a late event loop is shown as a fault: what a user notices."""
_LEAST_TEXT: Final = 6
"""A column of texts is not made narrower than that."""
_WIDEST: Final = 200
"""The widest text of a cell in characters."""
_GOOD_STATES: Final = frozenset({"ready", "running", "idle", "busy", "completed", "closed", "serving", "result"})
_ODD_STATES: Final = frozenset(
    {"starting", "stopping", "stopped", "restarting", "queued", "working", "asks", "leaving", "draining", "cancelled"}
    | {"drained", "half_open", "input_required", "tool_error"}
)


class Cell(NamedTuple):
    """One cell of a table. `order` is its value for sorting, and `style` one of `styled`."""

    text: str
    order: float | str = 0.0
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A row of a table."""

    key: str
    """The same for the same thing in a later snapshot."""
    cells: Sequence[Cell]
    view: str = ""
    """The view that shows more of it,"""
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """with this query,"""
    details: Sequence[str] = ()
    """or these lines, which say more of it."""
    target: str = ""
    """What acts on it take as their target,"""
    acts: Sequence[str] = ()
    """and which of them are possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewTable:
    """A table: columns, and rows with as many cells."""

    columns: Sequence[str]
    rows: Sequence[TableRow]
    above: Sequence[str] = ()
    """Lines that stand above it."""


# --- values


def curve_text(values: Sequence[float | None], width: int) -> str:
    """The last values as bars, `width` at most; a dot for a gap. A line of zeros is a line at the bottom."""
    shown = list(values)[-width:] if width > 0 else []
    highest = max((each for each in shown if each is not None), default=0.0)
    most = len(_BARS) - 1
    return "".join(
        _GAP if each is None else _BARS[max(0, min(most, round(each / highest * most))) if highest > 0 else 0]
        for each in shown
    )


def _text(text: object, style: str = "") -> Cell:
    shown = visible(str(text), _WIDEST)
    return Cell(shown, shown.casefold(), style)


def _state(state: str) -> Cell:
    shown = visible(state.replace("_", " "), _WIDEST)
    return Cell(
        shown, shown, "good" if state in _GOOD_STATES else "odd" if state in _ODD_STATES else "bad" if state else ""
    )


def _count(count: int, style: str = "") -> Cell:
    return Cell(number(count) if count else "", count, style if count else "")


def _seconds(seconds: float | None, style: str = "") -> Cell:
    return Cell("" if seconds is None else took(seconds), -1.0 if seconds is None else seconds, style)


def _age(seconds: float | None) -> Cell:
    return Cell("" if seconds is None else age(seconds), -1.0 if seconds is None else seconds)


def _rate(rate: float) -> Cell:
    return Cell(number(rate) if rate else "", rate)


# --- tables


def _tree(view: views.TreeView) -> ViewTable:
    rows: list[TableRow] = []
    for each in view.rows:
        named = visible(each.name or each.label or each.id, _WIDEST)
        hidden = f" (+{each.hidden})" if each.hidden else ""
        fresh = is_fresh(each)
        state = each.activity if each.state == "running" and each.activity else each.state
        bound = f"/{each.mailbox_bound}" if each.mailbox_bound is not None and each.mailbox else ""
        cells = (
            Cell(f"{'  ' * min(each.depth, 12)}{named}{hidden}", named.casefold(), "odd" if fresh else ""),
            _text(each.pid, "dim"),
            Cell("", "") if state == "idle" else _state(state),
            _age(each.age),
            Cell(f"{each.mailbox}{bound}" if each.mailbox else "", each.mailbox, "odd"),
            _count(each.restarts, "odd"),
            Cell(f"new {took(each.restarted)}" if fresh else "", -(each.restarted or 0.0), "odd"),
        )
        key = each.pid or f"{each.parent}/{each.id}"
        rows.append(
            TableRow(
                key=key,
                cells=cells,
                target=each.pid,
                view="process" if each.pid else "",
                query={"pid": each.pid},
            )
        )
    columns = ("PROCESS", "PID", "STATE", "AGE", "MBOX", "RST", "")
    return ViewTable(columns=columns, rows=rows)


def _calls(view: views.CallsView) -> ViewTable:
    rows = [
        TableRow(
            key=str(each.call),
            cells=(
                _seconds(each.seconds),
                _text(each.name or each.method),
                _text(each.program),
                _text(each.way),
                _state(each.outcome) if each.outcome else _text(each.step),
                _text(each.isolation),
                _text(each.principal_kind),
                _text(each.pid, "dim"),
            ),
            view="call",
            query={"call": each.call},
            target=str(each.call),
            acts=each.acts,
        )
        for each in view.rows
    ]
    columns = (
        "TOOK" if view.is_ended else "AGE",
        "NAME",
        "PROGRAM",
        "WAY",
        "OUTCOME" if view.is_ended else "STEP",
        "WHERE",
        "WHO",
        "PID",
    )
    return ViewTable(columns=columns, rows=rows)


def _tools(view: views.ToolsView) -> ViewTable:
    rows = [
        TableRow(
            key=f"{each.place}/{each.side}/{each.method}/{each.name}/{each.worker}",
            cells=(
                _text(each.name),
                _text(each.place),
                _count(each.calls),
                _rate(each.per_second),
                _count(each.in_flight),
                _count(each.failed, "bad"),
                _count(each.refused, "odd"),
                _count(each.crashes, "bad"),
                _seconds(each.spread.p50),
                _seconds(each.spread.p95),
                _seconds(each.spread.p99),
            ),
            view="tools",
            query={"tool": each.name, "program": each.place},
        )
        for each in view.rows
    ]
    columns = ("NAME", "PROGRAM", "CALLS", "/S", "NOW", "FAIL", "REF", "CRASH", "P50", "P95", "P99")
    return ViewTable(columns=columns, rows=rows)


def _sessions(view: views.SessionsView) -> ViewTable:
    rows = [
        TableRow(
            key=f"{each.side}/{each.program}/{each.session}",
            cells=(
                _text(each.session),
                _text(each.program),
                _text(each.peer),
                _text(each.revision),
                _text(each.transport),
                _text(each.principal or each.principal_kind),
                _age(each.age),
                _age(each.idle),
                _count(each.calls),
                _text(each.pid, "dim"),
            ),
            view="calls",
            query={"session": each.session},
            target=each.pid,
        )
        for each in view.rows
    ]
    above = [
        f"{plural(view.total, 'session')}, {plural(view.streams_total, 'stream')}, {number(view.evicted_total)} evicted so far"
    ]
    columns = ("SESSION", "PROGRAM", "PEER", "REVISION", "BY", "WHO", "AGE", "IDLE", "CALLS", "PID")
    return ViewTable(columns=columns, rows=rows, above=above)


def _upstreams(view: views.UpstreamsView) -> ViewTable:
    rows = [
        TableRow(
            key=f"{each.program}/{each.upstream}",
            cells=(
                _text(each.upstream),
                _state(each.state),
                _age(each.since),
                _text(_upstream_reason(each)),
                _seconds(each.next_attempt),
                Cell("" if each.process is None else str(each.process), each.process or 0),
                _count(each.calls),
                _count(each.failed, "bad"),
                _seconds(each.spread.p95),
                _count(each.restarts, "odd"),
            ),
            details=tuple(upstream_lines(each)),
            target=f"{each.program}/{each.upstream}",
            acts=each.acts,
        )
        for each in view.rows
    ]
    columns = ("UPSTREAM", "STATE", "SINCE", "WHY", "NEXT", "PID", "CALLS", "FAIL", "P95", "RST")
    return ViewTable(columns=columns, rows=rows)


def _upstream_reason(row: UpstreamRow) -> str:
    parts = [row.reason]
    if row.sign_in_url and row.sign_in_url not in row.reason:
        parts.append(f"sign in at {row.sign_in_url}")
    if row.breaker not in ("", "closed"):
        parts.append(f"breaker {row.breaker.replace('_', ' ')}")
    return ", ".join(filter(None, parts))


def _crashes(view: views.CrashesView) -> ViewTable:
    rows = [
        TableRow(
            key=each.group,
            cells=(
                Cell(clock(each.last_at), each.last_at),
                _count(each.count, "bad"),
                Cell(curve_text(each.per_minute, 10), sum(each.per_minute)),
                _text(each.kind),
                _text(each.label),
                _text(each.reason),
            ),
            view="crashes",
            query={"crash": each.group},
        )
        for each in view.groups
    ]
    above = [f"{clock(each.at)} gave up: {visible(each.text, _WIDEST)}" for each in view.gave_up[:3]]
    columns = ("LAST", "COUNT", "MINUTES", "KIND", "LABEL", "REASON")
    return ViewTable(columns=columns, rows=rows, above=above)


def _pools(view: views.PoolsView) -> ViewTable:
    rows: list[TableRow] = []
    for pool in view.rows:
        lost = ", ".join(f"{visible(name)} {count}" for name, count in pool.lost.items())
        about = f"{pool.busy} of {pool.most} busy" + (f", {pool.waiting} wait" if pool.waiting else "")
        cells = (
            _text(pool.pool),
            _text(about),
            _text(", ".join(pool.tools)),
            Cell("", 0.0),
            _count(pool.started),
            _text(f"lost: {lost}" if lost else "", "bad"),
            _text(pool.why, "bad"),
        )
        rows.append(
            TableRow(
                key=pool.pid or pool.pool,
                cells=cells,
                target=f"{pool.program}/{pool.pool}",
                acts=pool.acts,
            )
        )
        for place, each in enumerate(pool.workers):
            process = "" if each.process is None else str(each.process)
            worker = (
                Cell(f"  process {process}", pool.pool.casefold()),
                _state(each.state),
                _text(each.tool),
                _seconds(each.seconds),
                _count(each.calls),
                Cell("", ""),
                Cell("", ""),
            )
            rows.append(TableRow(key=f"{pool.pid}/{process or place}", cells=worker))
    columns = ("POOL", "STATE", "RUNS", "FOR", "CALLS", "LOST", "WHY")
    return ViewTable(columns=columns, rows=rows)


def _tasks(view: views.TasksView) -> ViewTable:
    rows = [
        TableRow(
            key=f"{each.program}/{each.task}",
            cells=(
                _text(each.task),
                _text(each.name or each.method),
                _text(each.program),
                _state(each.status),
                _age(each.age),
                _text(each.pid, "dim"),
            ),
            target=f"{each.program}/{each.task}",
            acts=each.acts,
        )
        for each in view.rows
    ]
    above = [", ".join(f"{visible(status)}: {count}" for status, count in view.counts.items())] if view.counts else []
    return ViewTable(columns=("TASK", "NAME", "PROGRAM", "STATUS", "AGE", "PID"), rows=rows, above=above)


def _questions(view: views.QuestionsView) -> ViewTable:
    rows = [
        TableRow(
            key=str(each.question),
            cells=(
                _age(each.age),
                _text(each.method),
                _text(each.tool),
                _text(each.program),
                _text(each.peer or each.session),
                _text(each.text),
            ),
            view="call" if each.call else "",
            query={"call": each.call},
        )
        for each in view.rows
    ]
    return ViewTable(columns=("AGE", "QUESTION", "TOOL", "PROGRAM", "ASKED", "TEXT"), rows=rows)


def _loop(view: views.LoopView) -> ViewTable:
    rows: list[TableRow] = []
    for each in view.loops:
        lags = curve_text(each.lags.values, 20) if each.lags is not None else ""
        cells = (
            _text(each.node),
            _seconds(each.lag if each.is_watched else None, "bad" if each.lag > _LATE else ""),
            _seconds(each.longest_lag if each.is_watched else None, "bad" if each.longest_lag > _LATE else ""),
            Cell(lags, each.lag),
            _count(each.runnable),
            _count(each.timers),
            Cell(f"{each.busy_workers}/{each.workers}", each.busy_workers),
            Cell(f"{each.threads_busy}/{each.threads_most}", each.threads_busy),
            _count(each.leaked, "bad"),
        )
        rows.append(TableRow(key=f"{each.worker}/{each.node}", cells=cells))
        for block in each.blocks:
            about = f"  blocked by {visible(block.label, _WIDEST)}"
            blocked = (Cell(about, about, "bad"), _seconds(block.seconds, "bad"), *[Cell("", "")] * 7)
            rows.append(
                TableRow(key=f"{block.at}/{block.pid}", cells=blocked, view="process", query={"pid": block.pid})
            )
    columns = ("LOOP", "LATE", "WORST", "MINUTE", "READY", "TIMERS", "TASKS", "THREADS", "LEAK")
    return ViewTable(columns=columns, rows=rows)


def _now(view: views.NowView) -> ViewTable:
    rows = [
        TableRow(
            key=str(each.number),
            cells=(Cell(clock(each.at), each.at), *_notice_cells(each)),
            **_notice_link(each),
        )
        for each in view.notices
    ]
    return ViewTable(columns=("TIME", "LEVEL", "WHAT HAPPENED LAST"), rows=rows, above=list(now_lines(view)))


def _notice_cells(notice: Notice) -> Sequence[Cell]:
    style = {"error": "bad", "warning": "odd"}.get(notice.level, "")
    return _text(notice.level, style), _text(notice.text)


def _notice_link(notice: Notice) -> dict[str, Any]:
    if notice.call:
        return {"view": "call", "query": {"call": notice.call}}
    return {"view": "process", "query": {"pid": notice.pid}} if notice.pid else {}


_TABLES: Final[Mapping[type[views.View], Callable[[Any], ViewTable]]] = {
    views.NowView: _now,
    views.TreeView: _tree,
    views.CallsView: _calls,
    views.ToolsView: _tools,
    views.SessionsView: _sessions,
    views.UpstreamsView: _upstreams,
    views.CrashesView: _crashes,
    views.PoolsView: _pools,
    views.TasksView: _tasks,
    views.QuestionsView: _questions,
    views.LoopView: _loop,
}


def view_table(view: views.View) -> ViewTable:
    """The table of a view that is a list."""
    return _TABLES[type(view)](cast("Any", view))


def fitted_lines(
    rows: Sequence[TableRow], labels: Sequence[str], width: int
) -> tuple[str, list[list[tuple[str, str]]]]:
    """The head and the rows as lines of `width` columns at most: pieces of text, each with its style. Long texts are cut, those of the widest column first."""
    cells = [[each.cells[place] for each in rows] for place in range(len(labels))]
    are_numbers = [bool(some) and not any(isinstance(each.order, str) for each in some) for some in cells]
    longest = [
        max(map(display_width, (label, *(each.text for each in some))))
        for label, some in zip(labels, cells, strict=True)
    ]
    least = [
        has if is_number else max(display_width(label), min(has, _LEAST_TEXT))
        for label, has, is_number in zip(labels, longest, are_numbers, strict=True)
    ]
    widths = list(longest)
    while (over := sum(widths) + len(widths) - 1 - width) > 0:
        spare = [has - needs for has, needs in zip(widths, least, strict=True)]
        if not any(spare):
            break
        widest = max((place for place, some in enumerate(spare) if some), key=lambda place: widths[place])
        others = [widths[place] for place, some in enumerate(spare) if some and place != widest]
        widths[widest] -= min(over, spare[widest], max(1, widths[widest] - max(others, default=0)))
    head = " ".join(
        _padded(label, columns, is_number=is_number)
        for label, columns, is_number in zip(labels, widths, are_numbers, strict=True)
    )
    lines: list[list[tuple[str, str]]] = []
    for row in rows:
        pieces: list[tuple[str, str]] = []
        for cell, columns in zip(row.cells, widths, strict=True):
            pieces += [(_padded(cell.text, columns, is_number=not isinstance(cell.order, str)), cell.style), (" ", "")]
        lines.append(pieces[:-1])
    return head, lines


def display_width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def _padded(text: str, columns: int, *, is_number: bool) -> str:
    length = display_width(text)
    if length > columns:
        kept, length = "", 0
        for sign in text:
            if length + display_width(sign) >= columns:
                break
            kept, length = kept + sign, length + display_width(sign)
        text, length = f"{kept}…", length + 1
    blanks = " " * (columns - length)
    return blanks + text if is_number else text + blanks


def sorted_rows(rows: Sequence[TableRow], column: int, *, is_reversed: bool = False) -> list[TableRow]:
    """The rows by a column: numbers before texts, equal ones as they were."""

    def order(row: TableRow) -> tuple[bool, float, str]:
        value = row.cells[column].order
        return (True, 0.0, value) if isinstance(value, str) else (False, value, "")

    return sorted(rows, key=order, reverse=is_reversed)


# --- one thing, as lines


def program_line(view: views.NowView) -> str:
    """The program in one line: what it is, how long it runs, what went wrong, and how it fares. What a narrow screen cuts off stands last."""
    parts = [
        f"{visible(view.program)} (process {view.process})",
        view.state.replace("_", " "),
        f"up {age(view.up_seconds)}",
    ]
    if view.gave_up_total:
        parts.append(f"{view.gave_up_total} gave up")
    if view.crashes_total:
        parts.append(f"{number(view.crashes_total)} crash{'' if view.crashes_total == 1 else 'es'}")
    if view.restarts_total:
        parts.append(plural(view.restarts_total, "restart"))
    if view.lag > _LATE:
        parts.append(f"{took(view.lag)} late")
    parts += [f"{number(view.calls_per_second)} calls/s", f"p95 {took(view.spread.p95)}", f"{view.processes} processes"]
    return ", ".join(parts)


def now_lines(view: views.NowView, width: int = 78) -> Iterator[str]:
    """The view `now` above its list of what happened: counts and curves."""
    yield from map(visible, view.urls)
    yield (
        f"calls {view.calls} now, {number(view.calls_total)} in all, {number(view.failed_total)} failed, "
        f"{number(view.refused_total)} refused"
    )
    counts = {
        "session": view.sessions,
        "stream": view.streams + view.listens,
        "task": view.tasks,
        "question": view.questions,
        "pool worker": view.pool_workers,
    }
    told = [plural(count, word) for word, count in counts.items()]
    if view.memory:
        told.append(size(view.memory))
    yield ", ".join(told)
    if view.upstreams:
        yield "upstreams: " + ", ".join(
            f"{each.count} {visible(each.state.replace('_', ' '))}" for each in view.upstreams
        )
    for curve in view.curves:
        last = next((each for each in reversed(curve.values) if each is not None), None)
        unit = visible(curve.unit)
        value = NOTHING if last is None else measured(last, unit)
        yield f"{visible(curve.name):<10} {value:>10} {curve_text(curve.values, max(8, width - 22))}"


def _process_details(view: views.ProcessView) -> Iterator[str]:
    row = view.row
    if row is None:
        yield f"There is no process {visible(view.pid)} any more."
    else:
        names = f" named {', '.join(map(visible, view.names))}" if view.names else ""
        yield f"{visible(row.label)} {visible(row.pid)}, a {visible(row.kind)}{names}"
        yield f"{row.activity or row.state}, {row.mailbox} waiting, {row.restarts} restarts, age {age(row.age)}"
    if view.report:
        yield f"state: {visible(view.report, _WIDEST)}"
    for title, refs in (
        ("below", view.ancestors),
        ("children", view.children),
        ("linked to", view.links),
        ("watched by", view.monitors),
        ("watches", view.watching),
    ):
        if refs:
            yield f"{title}: " + ", ".join(f"{visible(each.label)} {visible(each.pid)}" for each in refs[:12])
    if (facts := view.supervisor) is not None:
        yield f"{facts.strategy}: {facts.left} of {facts.intensity} restarts left within {facts.period:g} s, {facts.children} children"
    yield from _block("state", [f"{visible(each.name)} = {visible(each.value, _WIDEST)}" for each in view.state])
    yield from _block("waiting messages", [visible(each.text, _WIDEST) for each in view.mailbox])
    yield from _block("stack", visible(view.stack, lines=True).splitlines())
    for crash in view.crashes:
        yield from _crash_lines(crash)


def _crash_lines(crash: CrashRow) -> Iterator[str]:
    yield ""
    during = f" during {visible(crash.during, _WIDEST)}" if crash.during else ""
    yield f"{clock(crash.at)} {visible(crash.label)} {visible(crash.pid)} crashed{during}: {visible(crash.reason, 1000)}"
    for title, text in (
        ("last message", crash.last_message),
        ("state", crash.state),
        ("below", ", ".join(crash.ancestors)),
    ):
        if text:
            yield f"  {title}: {visible(text, 1000)}"
    yield from (f"  {line}" for line in visible(crash.stack, lines=True).splitlines())


def _block(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"{title}:"
        yield from (f"  {line}" for line in lines)


def _call_details(view: views.CallView) -> Iterator[str]:
    row = view.row
    if row is None:
        yield f"The call {view.call} is not known any more."
        return
    how = row.outcome.replace("_", " ") or "in flight"
    yield f"{visible(row.method)} {visible(row.name)}: {how}, {took(row.seconds)}, queued for {took(row.queued)}"
    facts = {
        "program": row.program,
        "way": f"{row.side}, {row.way}",
        "where": row.isolation,
        "session": row.session,
        "revision": row.revision,
        "transport": row.transport,
        "from": row.address,
        "principal": row.principal or row.principal_kind,
        "task": row.task,
        "trace": row.trace,
        "process": row.pid,
    }
    yield ", ".join(f"{name} {visible(value, _WIDEST)}" for name, value in facts.items() if value)
    steps = [f"{took(each.after):>8}  {each.step:<9} {visible(each.text, _WIDEST)}".rstrip() for each in view.steps]
    yield from _block("timeline", [*steps, *([f"{view.dropped} steps are left out"] if view.dropped else [])])
    yield from _block("arguments", visible(view.arguments or "", lines=True).splitlines())
    yield from _block("result", visible(view.result or "", lines=True).splitlines())


def _tool_details(view: views.ToolsView, query: Mapping[str, Any]) -> Iterator[str]:
    for row in view.rows:
        if row.name == query.get("tool") and query.get("program") in (None, "", row.program, row.place):
            yield f"{visible(row.name)} of {visible(row.place)}: {visible(row.description, _WIDEST) or 'no description'}"
            spread = row.spread
            yield (
                f"{row.calls} calls, {row.failed} failed, {row.tool_errors} with an error of the tool, {row.refused} refused, {row.crashes} crashes; "
                f"p50 {took(spread.p50)}, p95 {took(spread.p95)}, p99 {took(spread.p99)}, "
                f"longest {took(spread.longest)}"
            )
    yield from _block(
        "outcomes", [f"{visible(name.replace('_', ' '))}: {count}" for name, count in view.outcomes.items()]
    )
    yield from _block("curves", [f"{visible(each.name):<10} {curve_text(each.values, 60)}" for each in view.curves])
    properties: Any = (view.schema or {}).get("properties")
    if is_object(properties):
        yield from _block("arguments", [visible(name, _WIDEST) for name in properties])


def detail_lines(view: views.View, query: Mapping[str, Any]) -> Iterator[str]:
    """One thing as lines: a process, a call, a tool, or the crashes of a group."""
    match view:
        case views.ProcessView():
            lines = _process_details(view)
        case views.CallView():
            lines = _call_details(view)
        case views.ToolsView():
            lines = _tool_details(view, query)
        case views.CrashesView():
            lines = (line for crash in view.crashes for line in _crash_lines(crash))
        case _:
            raise TypeError(f"{type(view).__name__} is a list, and has no details")
    yield from map(visible_text.escaped, lines)
    yield from map(visible, view.notes)


def upstream_lines(row: UpstreamRow) -> Iterator[str]:
    """A server of a host in full."""
    yield f"{visible(row.upstream)} of {visible(row.program)}: {visible(row.state.replace('_', ' '))} for {age(row.since)}"
    if why := _upstream_reason(row):
        yield f"why: {visible(why)}"
    if row.next_attempt is not None:
        yield f"next attempt in {took(row.next_attempt)}"
    process = "" if row.process is None else f", process {row.process}"
    yield f"revision {visible(row.revision) or '-'}{process}, supervisor {visible(row.pid) or '-'}"
    yield f"{row.tools} tools, {row.resources} resources, {row.prompts} prompts"
    yield (
        f"{row.calls} calls, {row.failed} failed, {row.in_progress} in progress, {row.waiting} waiting, {row.restarts} restarts; "
        f"p95 {took(row.spread.p95)}"
    )
