"""What happened in a run, as data: births and deaths, the two sides of each call and its end, and the reports.

A history is a value: it prints as text that is the same, byte for byte, whenever the same run is played again; it goes
to JSON and comes back. Times count from where it begins. `Recorder` writes one, and `check` reads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Kind: TypeAlias = Literal[
    "born",
    "called",
    "sent",
    "answered",
    "failed",
    "exited",
    "expired",
    "abandoned",
    "refused",
    "late",
    "died",
    "report",
]
OUTCOMES: Final = ("answered", "failed", "exited", "expired", "abandoned", "refused")
"""How a call can end: a reply, an error for a reply, the callee's death, the deadline, the caller's own end, a full mailbox."""
REPLIES: Final = ("answered", "failed")
OUTSIDE: Final = "outside"
"""The name of a caller that is no process."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_INCARNATION = re.compile(r"<([\w.@-]+)/[0-9a-f]+\.(\d+)>")


def without_addresses(text: str) -> str:
    """A text without what differs from one run to the next: addresses in memory, and when a node began."""
    return _INCARNATION.sub(r"<\1.\2>", _ADDRESS.sub("", " ".join(text.split())))


class HistoryEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened to `who`.

    `by` is the process that did it: the caller, the parent, the replier. `what` is the request, the answer, the reason, or the
    report. `call` is the number of the call that it is about.
    """

    number: int
    time: float
    kind: Kind
    who: str
    what: str = ""
    by: str | None = None
    call: int | None = None

    def __str__(self) -> str:
        call = "" if self.call is None else f" #{self.call}"
        by = "" if self.by in (None, self.who) else f" by {self.by}"
        return f"{self.time:.6f} {self.kind}{call} {self.who}{by}{f': {self.what}' if self.what else ''}"


class CallRecord(msgspec.Struct, frozen=True):
    """One call: where it began, and the outcomes that it had, of which there should be one."""

    number: int
    caller: str
    callee: str
    request: str
    begun: HistoryEvent
    outcomes: tuple[HistoryEvent, ...]

    @property
    def outcome(self) -> HistoryEvent | None:
        """Its first outcome, if it has come to one."""
        return self.outcomes[0] if self.outcomes else None

    @property
    def seconds(self) -> float | None:
        """How long it took."""
        return self.outcomes[0].time - self.begun.time if self.outcomes else None


class History(msgspec.Struct):
    """All events of a run, in order."""

    events: list[HistoryEvent] = []

    def __len__(self) -> int:
        return len(self.events)

    def of(self, *kinds: Kind, who: str | None = None) -> list[HistoryEvent]:
        """The events of some kinds; `who` is the beginning of a process's label or all of it."""
        return [
            event
            for event in self.events
            if (not kinds or event.kind in kinds) and (who is None or event.who.startswith(who))
        ]

    def calls(self) -> list[CallRecord]:
        """All calls in the order in which they were made."""
        outcomes: dict[int | None, list[HistoryEvent]] = {}
        for event in self.events:
            if event.kind in OUTCOMES:
                outcomes.setdefault(event.call, []).append(event)
        return [
            CallRecord(
                number=event.call or 0,
                caller=event.by or OUTSIDE,
                callee=event.who,
                request=event.what,
                begun=event,
                outcomes=tuple(outcomes.get(event.call, ())),
            )
            for event in self.events
            if event.kind == "called"
        ]

    def text(self) -> str:
        """A line for each event. The same run prints the same, byte for byte."""
        return "".join(f"{event}\n" for event in self.events)

    def dump(self) -> str:
        """As JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def load(cls, text: str | bytes) -> History:
        """Back from JSON."""
        return msgspec.json.decode(text, type=cls)


# --- What a history must be like, whatever happened in it: each call has exactly one outcome, and all is in order.


@dataclass(frozen=True, slots=True)
class HistoryViolation:
    """Something that must not be: the rule that it breaks, in words, and the events that show it."""

    rule: str
    what: str
    events: tuple[HistoryEvent, ...]

    def __str__(self) -> str:
        return "".join([f"{self.rule}: {self.what}", *(f"\n  {event}" for event in self.events)])


def check(history: History, *, unordered: Iterable[str] = (), finished: bool = True) -> list[HistoryViolation]:
    """What is wrong with a history; nothing, if all is well.

    `unordered` are patterns for the labels of callees that may answer in another order than they were asked: those that
    postpone, or answer later. `finished=False` lets calls be that are still under way where the history ends.
    """
    calls = history.calls()
    found = [*_outcomes(history, calls, finished=finished), *_order(calls, tuple(unordered)), *_deaths(history)]
    return sorted(found, key=lambda finding: finding.events[-1].number)


def assert_clean(history: History, *, unordered: Iterable[str] = (), finished: bool = True) -> None:
    """Fails with what `check` finds."""
    __tracebackhide__ = True
    found = check(history, unordered=unordered, finished=finished)
    if found:
        raise AssertionError("\n".join(["the history is not in order:", *map(str, found)]))


def _outcomes(history: History, calls: list[CallRecord], *, finished: bool) -> Iterator[HistoryViolation]:
    last = history.events[-1:]
    for call in calls:
        if not call.outcomes and finished:
            yield HistoryViolation("no outcome", f"call #{call.number} never ended", (call.begun, *last))
        if len(call.outcomes) > 1:
            words = f"call #{call.number} ended {len(call.outcomes)} times"
            yield HistoryViolation("two outcomes", words, (call.begun, *call.outcomes))
        for outcome in call.outcomes:
            if outcome.number < call.begun.number or outcome.time < call.begun.time:
                yield HistoryViolation(
                    "outcome first", f"call #{call.number} ended before it began", (outcome, call.begun)
                )
    known = {call.number for call in calls}
    for event in history.events:
        if event.kind in OUTCOMES and event.call not in known:
            yield HistoryViolation("nobody asked", f"call #{event.call} ended and was never made", (event,))


def _order(calls: list[CallRecord], unordered: tuple[str, ...]) -> Iterator[HistoryViolation]:
    newest: dict[tuple[str, str], tuple[CallRecord, HistoryEvent]] = {}
    for call in calls:
        label = call.callee.rpartition(" ")[0]
        if any(fnmatchcase(label, pattern) for pattern in unordered) or call.request.startswith("system "):
            continue
        for outcome in call.outcomes:
            if outcome.kind not in REPLIES:
                continue
            pair = (call.caller, call.callee)
            before = newest.get(pair)
            if before is not None and before[1].number > outcome.number:
                words = f"{call.callee} answered #{call.number} before #{before[0].number}, which was asked first"
                yield HistoryViolation("out of order", words, (before[0].begun, call.begun, outcome, before[1]))
            else:
                newest[pair] = (call, outcome)


def _deaths(history: History) -> Iterator[HistoryViolation]:
    deaths: dict[str, HistoryEvent] = {}
    for event in history.events:
        if event.kind == "died":
            if event.who in deaths:
                yield HistoryViolation("two deaths", f"{event.who} died again", (deaths[event.who], event))
            deaths.setdefault(event.who, event)
        elif event.kind == "born" and event.who in deaths:
            yield HistoryViolation("after death", f"{event.who} was born again", (deaths[event.who], event))
        elif event.kind in (*REPLIES, "called") and event.by in deaths:
            verb = "called somebody" if event.kind == "called" else "replied"
            yield HistoryViolation("after death", f"{event.by} {verb} after its death", (deaths[event.by], event))
