"""What has happened so far: the reports of the node, and the fate of every call, kept for the picture."""

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
    "guests": "nobody replaces a guest",
    "theatre": "theatre restarts all of it",
}
"""What a supervisor does about a death, in words."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Something worth telling, at so many seconds after the beginning."""

    at: float
    text: str
    grave: bool = False


class Book:
    """Subscribe it to the node's reports."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds since the beginning."""
        self.clock = clock
        self.entries: deque[Entry] = deque(maxlen=REMEMBERED)
        self.told = 0  # entries ever, those forgotten included
        self.starts: Counter[str] = Counter()
        self.deaths = 0
        self.last: dict[str, Entry] = {}  # of each child, what it died of most recently
        self.beats: dict[str, int] = {}
        self.answered = 0
        self.refused = 0
        self.late = 0
        self.guests = 0

    @property
    def calls(self) -> int:
        """How many were made and are over."""
        return self.answered + self.refused + self.late

    @property
    def restarts(self) -> int:
        """How many times a process was started again."""
        return sum(times - 1 for times in self.starts.values())

    def tell(self, text: str, *, grave: bool = False) -> Entry:
        """Write something down."""
        entry = Entry(self.clock(), text, grave)
        self.entries.append(entry)
        self.told += 1
        return entry

    def since(self, told: int) -> list[Entry]:
        """What was written after the first so many entries."""
        fresh = min(self.told - told, len(self.entries))
        return list(self.entries)[-fresh:] if fresh else []

    def report(self, report: Report) -> None:
        """Take a report from the node."""
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
                    self.entries.pop()  # the death that was one too many: there is more to tell of it
                    self.told -= 1
                text = f"{who.id} is gone again, more than {intensity} times in {period:g} s → {supervisor} gives up"
                self.tell(text, grave=True)
            case StartError(child=who, reason=reason):
                self.tell(f"{who.id} did not come up: {reason}", grave=True)
            case Leaked(label=label):
                self.tell(f"{label} did not unwind in time, and was left behind", grave=True)
            case _:
                pass  # a crash report, whose crash the supervisor tells of as well


def ended(reason: ExitReason, *, short: bool = False) -> str:
    """How a process ended, as the rest of a sentence."""
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
