"""The log of events for the picture: the node's reports, and the outcome of every call."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from greenroom.supervision import (
    ChildTerminated,
    Crash,
    Killed,
    Leaked,
    Normal,
    ProgressReport,
    ReachedMaxRestartIntensity,
    Shutdown,
    StartError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision import ExitReason, Report

REMEMBERED: Final = 50

AND_THEN: Final = {
    "light": "light restarts from it on",
    "band": "band restarts all",
    "cast": "cast restarts it",
    "guests": "guests are not replaced",
    "theatre": "theatre restarts all of it",
}
"""The reaction of each supervisor to a death, in words."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An event, with its time in seconds since the start."""

    at: float
    text: str
    grave: bool = False


class EventLog:
    """Records events. It is subscribed to the node's reports."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives the seconds since the start."""
        self.clock = clock
        self.entries: deque[Entry] = deque(maxlen=REMEMBERED)
        self.told = 0  # number of entries so far, including dropped ones
        self.starts: Counter[str] = Counter()
        self.deaths = 0
        self.last: dict[str, Entry] = {}  # the most recent exit reason of each child
        self.beats: dict[str, int] = {}
        self.answered = 0
        self.refused = 0
        self.late = 0
        self.guests = 0

    @property
    def calls(self) -> int:
        """The number of finished calls."""
        return self.answered + self.refused + self.late

    @property
    def restarts(self) -> int:
        """The number of restarts."""
        return sum(times - 1 for times in self.starts.values())

    def tell(self, text: str, *, grave: bool = False) -> Entry:
        """Add an entry."""
        entry = Entry(self.clock(), text, grave)
        self.entries.append(entry)
        self.told += 1
        return entry

    def since(self, told: int) -> list[Entry]:
        """The entries after the first `count` ones."""
        fresh = min(self.told - told, len(self.entries))
        return list(self.entries)[-fresh:] if fresh else []

    def report(self, report: Report) -> None:
        """Record a report of the node."""
        match report:
            case ProgressReport(child=who, asked_for=asked_for):
                if asked_for:
                    self.guests += 1
                else:
                    self.starts[str(who.id)] += 1
                    self.beats.pop(str(who.id), None)
            case ChildTerminated(label=supervisor, child=who, reason=reason):
                self.deaths += 1
                self.last[str(who.id)] = Entry(self.clock(), ended(reason, short=True))
                self.tell(f"{who.id} {ended(reason)} → {AND_THEN[supervisor]}")
            case ReachedMaxRestartIntensity(label=supervisor, child=who, intensity=intensity, period=period):
                if self.entries:
                    self.entries.pop()  # this death exceeded the restart limit
                    self.told -= 1
                text = f"{who.id} died again, more than {intensity} times in {period:g} s → {supervisor} gives up"
                self.tell(text, grave=True)
            case StartError(child=who, reason=reason):
                self.tell(f"{who.id} did not come up: {reason}", grave=True)
            case Leaked(label=label):
                self.tell(f"{label} did not end in time and was abandoned", grave=True)
            case _:
                pass  # a crash report; the supervisor reports the same crash


def ended(reason: ExitReason, *, short: bool = False) -> str:
    """An exit reason as the end of a sentence."""
    match reason:
        case Crash(error=error) if short:
            return f"crashed: {type(error).__name__}"
        case Crash(error=error):
            return f"crashed, {type(error).__name__}: {error}"
        case Killed():
            return "was killed"
        case Normal():
            return "walked off"
        case Shutdown():
            return "gave up"
        case _:
            return f"ended, {reason}"
