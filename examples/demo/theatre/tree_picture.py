"""The picture: the live tree and the event log as lines of text. Pure, so it can be tested.

The frame follows the planned tree and is fixed; the state of each worker is looked up in the live tree, so a missing worker leaves a
gap.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .supervision_tree import CAST_INTENSITY, CAST_PERIOD, DEPARTMENTS, SEATS

if TYPE_CHECKING:
    from greenroom.supervision import Branch

    from .event_log import EventLog

RECENT: Final = 1.5  # seconds for which a death is shown beside the restarted process
LINES: Final = 3  # lines for the latest events
WIDTH: Final = 80

PLANS: Final = {
    "theatre": "one_for_one",
    "light": "rest_for_one: from it on",
    "band": "one_for_all: all fall with one",
    "cast": f"one_for_one: {CAST_INTENSITY} times in {CAST_PERIOD:g} s, no more",
    "guests": "dynamic, temporary",
}

PLAIN, BOLD, DIM, RED, GREEN, YELLOW = "", "1", "2", "31", "32", "33"
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class Scene:
    """The content of a picture: the tree (None without one), the event log, and the time."""

    house: Branch | None
    book: EventLog
    now: float
    seconds: float
    seed: int
    stopping: bool = False


def paint(text: str, colour: str) -> str:
    """The text in a terminal colour."""
    return f"\x1b[{colour}m{text}\x1b[0m" if colour else text


def uncoloured(line: str) -> str:
    """The text without colour sequences."""
    return _ESCAPE.sub("", line)


def clipped(line: str, width: int) -> str:
    """A coloured line cut to `width` characters."""
    if len(uncoloured(line)) <= width:
        return line
    kept: list[str] = []
    room = width - 1
    for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
        if _ESCAPE.fullmatch(piece):
            kept.append(piece)
        else:
            kept.append(piece[:room])
            room -= len(piece[:room])
    return "".join(kept) + "…"


def picture(scene: Scene) -> list[str]:
    """The picture: 23 lines of 80 characters."""
    found = _index(scene.house)
    state = "closing, the last one first" if scene.stopping else f"{scene.now:.0f} s of {scene.seconds:g}"
    title = "greenroom: workers that die are restarted"
    lines = [
        f"{paint(title, BOLD)}{f'seed {scene.seed}, {state}':>{WIDTH - len(title)}}",
        _department("theatre", "theatre   ", found, scene),
    ]
    for department, parts in DEPARTMENTS.items():
        lines.append(_department(department, f"├─ {department:<7}", found, scene))
        for part in parts:
            lead = "│  └─" if part == parts[-1] else "│  ├─"
            lines.append(_part(f"{lead} {part:<8}", part, found, scene))
    lines.append(_department("guests", "└─ guests ", found, scene))
    lines += _seats(found.get("guests"))
    lines += ["", *_told(scene.book), sums(scene.book)]
    return [line.rstrip() for line in lines]


def _index(house: Branch | None) -> dict[str, Branch]:
    """Branches by name. If a name has both a gap and a new process, the process counts."""
    found: dict[str, Branch] = {}
    waiting = [] if house is None else [house]
    while waiting:
        branch = waiting.pop()
        waiting += branch.children
        if branch.pid is not None:
            found[branch.label] = branch
        else:
            found.setdefault(str(branch.id), branch)
    return found


def _mark(branch: Branch | None, who: str, scene: Scene) -> tuple[str, str]:
    """The state of a branch as a coloured mark and a word."""
    if branch is None or branch.pid is None:
        if scene.stopping:
            return paint("○", DIM), "gone"
        return (paint("✗", RED), "down") if scene.book.starts[who] else (paint("·", DIM), "")
    if branch.state != "running":
        return paint("◌", YELLOW), "leaving"
    if branch.id is None and who != "theatre":  # its supervisor waits for its init and does not list it yet
        return paint("◐", YELLOW), "gets ready"
    return paint("●", GREEN), ""


def _department(name: str, lead: str, found: dict[str, Branch], scene: Scene) -> str:
    branch = found.get(name)
    mark, word = _mark(branch, name, scene)
    return f"{lead}{mark} {_pid(branch)}{word or PLANS[name]:<40}{_times(scene.book, name)}{_why(name, scene)}"


def _part(lead: str, part: str, found: dict[str, Branch], scene: Scene) -> str:
    branch = found.get(part)
    mark, word = _mark(branch, part, scene)
    doing = word or ("" if branch is None else f"beat {scene.book.beats.get(part, 0)}")
    return f"{lead} {mark} {_pid(branch)}{doing:<11}{_times(scene.book, part)}{_why(part, scene)}"


def _seats(guests: Branch | None) -> list[str]:
    taken = [] if guests is None else [one for one in guests.children if one.pid is not None]
    lines: list[str] = []
    for place in range(SEATS):
        lead = "   └─" if place == SEATS - 1 else "   ├─"
        if place < len(taken):
            lines.append(f"{lead} {taken[place].label:<8} {paint('●', GREEN)} {_pid(taken[place])}")
        else:
            lines.append(paint(f"{lead} (free)", DIM))
    return lines


def _pid(branch: Branch | None) -> str:
    return f"{'' if branch is None or branch.pid is None else branch.pid!s:<11}"


def _times(book: EventLog, who: str) -> str:
    times = book.starts[who] - 1
    return f" ↻ {times:<3}" if times > 0 else " " * 6


def _why(who: str, scene: Scene) -> str:
    death = scene.book.last.get(who)
    return paint(f" {death.text}", RED) if death is not None and scene.now - death.at < RECENT else ""


def _told(book: EventLog) -> list[str]:
    """The latest events, in the lines reserved for them."""
    lines: list[str] = []
    for entry in reversed(book.entries):
        wrapped = textwrap.wrap(f"{entry.at:5.1f} s  {entry.text}", WIDTH, subsequent_indent=" " * 9)
        if len(lines) + len(wrapped) > LINES:
            break
        lines[:0] = [paint(line, YELLOW if entry.grave else PLAIN) for line in wrapped]
    return [*lines, *[""] * (LINES - len(lines))]


def sums(book: EventLog) -> str:
    """The totals in one line."""
    calls = f"calls {book.calls:,}: {book.answered:,} answered, {book.refused:,} failed, {book.late:,} late"
    return f"{paint(f'deaths {book.deaths}, restarts {book.restarts}', BOLD)} · {calls}"
