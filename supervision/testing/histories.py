"""The history of a run as data: starts and exits of processes, calls with their outcomes, messages and reports.

A history is a value. Its text is the same, byte for byte, for each replay of the same run; it can be stored as JSON. Times count from its first event.
`Recorder` records one, and `check` checks it.
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
"""The outcomes of a call: a reply, an error as reply, the callee's exit, a timeout, the caller's end, a full mailbox."""
REPLIES: Final = ("answered", "failed")
OUTSIDE: Final = "outside"
"""The name of a caller that is not a process."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_INCARNATION = re.compile(r"<([\w.@-]+)/[0-9a-f]+\.(\d+)>")


def without_addresses(text: str) -> str:
    """The text without what differs between runs: memory addresses, and the incarnations of nodes."""
    return _INCARNATION.sub(r"<\1.\2>", _ADDRESS.sub("", " ".join(text.split())))


class HistoryEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event that concerns the process `who`.

    `by` is the process that caused it: the caller, the parent, the replier. `what` is the request, the reply, the reason or the report. `call` is the number of
    the call, if it belongs to one.

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
    """A call with its outcomes, of which there should be exactly one."""

    number: int
    caller: str
    callee: str
    request: str
    begun: HistoryEvent
    outcomes: tuple[HistoryEvent, ...]

    @property
    def outcome(self) -> HistoryEvent | None:
        """The first outcome, if there is one."""
        return self.outcomes[0] if self.outcomes else None

    @property
    def seconds(self) -> float | None:
        """The duration until the first outcome."""
        return self.outcomes[0].time - self.begun.time if self.outcomes else None


class History(msgspec.Struct):
    """All events of a run, in order."""

    events: list[HistoryEvent] = []

    def __len__(self) -> int:
        return len(self.events)

    def of(self, *kinds: Kind, who: str | None = None) -> list[HistoryEvent]:
        """The events of some kinds; `who` is a prefix of the process's label."""
        return [
            event
            for event in self.events
            if (not kinds or event.kind in kinds) and (who is None or event.who.startswith(who))
        ]

    def calls(self) -> list[CallRecord]:
        """All calls in order."""
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
        """One line per event; the same for each replay of the run."""
        return "".join(f"{event}\n" for event in self.events)

    def dump(self) -> str:
        """The history as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def load(cls, text: str | bytes) -> History:
        """The history in a JSON text."""
        return msgspec.json.decode(text, type=cls)


# --- Invariants of every history: each call has exactly one outcome, and events are in order.


@dataclass(frozen=True, slots=True)
class HistoryViolation:
    """A violated invariant: the name of the rule, what happened, and the events that show it."""

    rule: str
    what: str
    events: tuple[HistoryEvent, ...]

    def __str__(self) -> str:
        return "".join([f"{self.rule}: {self.what}", *(f"\n  {event}" for event in self.events)])


def check(history: History, *, unordered: Iterable[str] = (), finished: bool = True) -> list[HistoryViolation]:
    """The violations in a history; empty if there are none.

    `unordered` are patterns for the labels of callees that may answer out of order, because they postpone or reply later. With `finished=False`, calls may be in
    progress at the end.

    """
    calls = history.calls()
    found = [*_outcomes(history, calls, finished=finished), *_order(calls, tuple(unordered)), *_deaths(history)]
    return sorted(found, key=lambda finding: finding.events[-1].number)


def assert_clean(history: History, *, unordered: Iterable[str] = (), finished: bool = True) -> None:
    """Fail with the violations that `check` finds."""
    __tracebackhide__ = True
    found = check(history, unordered=unordered, finished=finished)
    if found:
        raise AssertionError("\n".join(["the history violates invariants:", *map(str, found)]))


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
            yield HistoryViolation("unknown call", f"call #{event.call} ended and was never made", (event,))


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
                words = f"{call.callee} answered #{call.number} before #{before[0].number}, which was called first"
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
            verb = "made a call" if event.kind == "called" else "replied"
            yield HistoryViolation("after death", f"{event.by} {verb} after its death", (deaths[event.by], event))
