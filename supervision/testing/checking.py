"""What a history must be like, whatever happened in it: each call has exactly one outcome, and all is in order."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from .histories import OUTCOMES, REPLIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .histories import CallRecord, History, Occurrence


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be: the rule that it breaks, in words, and the events that show it."""

    rule: str
    what: str
    events: tuple[Occurrence, ...]

    def __str__(self) -> str:
        return "".join([f"{self.rule}: {self.what}", *(f"\n  {event}" for event in self.events)])


def check(history: History, *, unordered: Iterable[str] = (), finished: bool = True) -> list[Finding]:
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


def _outcomes(history: History, calls: list[CallRecord], *, finished: bool) -> Iterator[Finding]:
    last = history.events[-1:]
    for call in calls:
        if not call.outcomes and finished:
            yield Finding("no outcome", f"call #{call.number} never ended", (call.begun, *last))
        if len(call.outcomes) > 1:
            words = f"call #{call.number} ended {len(call.outcomes)} times"
            yield Finding("two outcomes", words, (call.begun, *call.outcomes))
        for outcome in call.outcomes:
            if outcome.number < call.begun.number or outcome.time < call.begun.time:
                yield Finding("outcome first", f"call #{call.number} ended before it began", (outcome, call.begun))
    known = {call.number for call in calls}
    for event in history.events:
        if event.kind in OUTCOMES and event.call not in known:
            yield Finding("nobody asked", f"call #{event.call} ended and was never made", (event,))


def _order(calls: list[CallRecord], unordered: tuple[str, ...]) -> Iterator[Finding]:
    newest: dict[tuple[str, str], tuple[CallRecord, Occurrence]] = {}
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
                yield Finding("out of order", words, (before[0].begun, call.begun, outcome, before[1]))
            else:
                newest[pair] = (call, outcome)


def _deaths(history: History) -> Iterator[Finding]:
    deaths: dict[str, Occurrence] = {}
    for event in history.events:
        if event.kind == "died":
            if event.who in deaths:
                yield Finding("two deaths", f"{event.who} died again", (deaths[event.who], event))
            deaths.setdefault(event.who, event)
        elif event.kind == "born" and event.who in deaths:
            yield Finding("after death", f"{event.who} was born again", (deaths[event.who], event))
        elif event.kind in (*REPLIES, "called") and event.by in deaths:
            verb = "called somebody" if event.kind == "called" else "replied"
            yield Finding("after death", f"{event.by} {verb} after its death", (deaths[event.by], event))
