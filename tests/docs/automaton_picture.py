"""Draws a state machine's table as an SVG picture: a box for each state, an arrow for each transition between two states."""

from __future__ import annotations

import math
from collections import defaultdict
from html import escape
from typing import TYPE_CHECKING

from greenroom.protocol.methods import SessionAction, SessionEvent, SessionState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.protocol.methods import Table

WIDTH, HEIGHT = 860, 330
BOX = (210, 84)
PLACES = {
    SessionState.NEW: (122, 80),
    SessionState.INITIALIZING: (430, 80),
    SessionState.READY: (738, 80),
    SessionState.CLOSED: (430, 280),
}
CLOSED_BOX = (210, 66)
APART = 13  # the distance of two arrows between the same boxes, from the middle

STYLE = """\
<style>
  text { font: 13px sans-serif; fill: #222; text-anchor: middle }
  .name { font-weight: bold; font-size: 15px }
  .small { font-size: 11px; fill: #555 }
  rect.state { fill: #f2f5f8; stroke: #567; stroke-width: 1.5 }
  path { stroke: #567; stroke-width: 1.5; fill: none; marker-end: url(#head) }
</style>
<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">
  <polygon points="0,0 10,5 0,10" fill="#567"/></marker></defs>"""


def draw(table: Table) -> str:
    """The picture, as SVG."""
    arrows: dict[tuple[SessionState, SessionState], list[str]] = defaultdict(list)
    for (state, event), rule in table.items():
        if rule.state is not state:
            arrows[state, rule.state].append(event.value)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img">',
        "<title>The states of a session</title>",
        STYLE,
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fff"/>',
    ]
    for (start, end), events in arrows.items():
        lines += _arrow(start, end, events, both=(end, start) in arrows)
    for state in SessionState:
        lines += _box(state, table)
    return "\n".join([*lines, "</svg>", ""])


def _size(state: SessionState) -> tuple[int, int]:
    return CLOSED_BOX if state is SessionState.CLOSED else BOX


def _box(state: SessionState, table: Table) -> Iterator[str]:
    x, y = PLACES[state]
    width, height = _size(state)
    yield f'<rect class="state" x="{x - width // 2}" y="{y - height // 2}" width="{width}" height="{height}" rx="8"/>'
    lines = [f"{verdict.value}s {_kinds(state, verdict, table)}" for verdict in SessionAction]
    shown = [line for line in lines if not line.endswith("s nothing")]
    top = y - 8 * len(shown) + 4
    yield f'<text class="name" x="{x}" y="{top}">{state.value}</text>'
    for number, line in enumerate(shown, 1):
        yield f'<text class="small" x="{x}" y="{top + 2 + 15 * number}">{escape(line)}</text>'


_SHORT = {
    SessionEvent.PING: "ping",
    SessionEvent.REQUEST: "requests",
    SessionEvent.NOTIFICATION: "notifications",
    SessionEvent.ANSWER: "responses",
}


def _kinds(state: SessionState, verdict: SessionAction, table: Table) -> str:
    """The events that stay in the state with this verdict; other events are arrows."""
    found = [name for event, name in _SHORT.items() if table[state, event].action is verdict]
    return "everything" if len(found) == len(_SHORT) else ", ".join(found) or "nothing"


def _arrow(start: SessionState, end: SessionState, events: list[str], *, both: bool) -> Iterator[str]:
    (x1, y1), (x2, y2) = PLACES[start], PLACES[end]
    length = math.hypot(x2 - x1, y2 - y1)
    along = ((x2 - x1) / length, (y2 - y1) / length)
    aside = APART if both else 0
    right, down = aside * along[1], -aside * along[0]
    out, into = _edge(_size(start), along), length - _edge(_size(end), along)
    left, top = x1 + right + along[0] * out, y1 + down + along[1] * out
    x, y = x1 + right + along[0] * into, y1 + down + along[1] * into
    yield f'<path d="M {left:.0f} {top:.0f} L {x:.0f} {y:.0f}"/>'
    level = abs(along[1]) < abs(along[0]) / 3
    x, y = (left + x) / 2, (top + y) / 2
    if level:
        y += -7 if along[0] > 0 else 17
        for number, event in enumerate(reversed(events) if along[0] > 0 else events):
            for row, word in enumerate(_wrapped(event)):
                yield f'<text class="small" x="{x:.0f}" y="{y + (14 * (number + row)) * (-1 if along[0] > 0 else 1):.0f}">{escape(word)}</text>'
    else:
        for number, event in enumerate(events):
            yield f'<text class="small" x="{x + 36:.0f}" y="{y + 4 + 14 * number:.0f}">{escape(event)}</text>'


def _wrapped(text: str) -> list[str]:
    """Long names in two lines, the last one first, since they grow upwards."""
    head, slash, tail = text.partition("/")
    return [tail, head + slash] if slash else [text]


def _edge(box: tuple[int, int], along: tuple[float, float]) -> float:
    """The distance from a box's centre to its edge in a direction."""
    sides = [half / 2 / abs(step) for half, step in zip(box, along, strict=True) if abs(step) > 1e-9]
    return min(sides)
