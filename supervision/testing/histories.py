"""What happened in a run, as data: who was born and died, who called whom, how each call ended, and what was reported.

A history is a value: it prints as text that is the same, byte for byte, whenever the same run is played again; it goes
to JSON and comes back. Times count from where it begins. `Recorder` writes one, and `check` reads it.
"""

from __future__ import annotations

import re
from typing import Final, Literal, TypeAlias

import msgspec

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
"""Who calls, when it is no process."""

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_INCARNATION = re.compile(r"<([\w.@-]+)/[0-9a-f]+\.(\d+)>")


def stable(text: str) -> str:
    """A text without what differs from one run to the next: addresses in memory, and when a node began."""
    return _INCARNATION.sub(r"<\1.\2>", _ADDRESS.sub("", " ".join(text.split())))


class Occurrence(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened to `who`.

    `by` is who did it: the caller, the parent, whoever replied. `what` is the request, the answer, the reason, or the
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
    begun: Occurrence
    outcomes: tuple[Occurrence, ...]

    @property
    def outcome(self) -> Occurrence | None:
        """Its first outcome, if it has come to one."""
        return self.outcomes[0] if self.outcomes else None

    @property
    def seconds(self) -> float | None:
        """How long it took."""
        return self.outcomes[0].time - self.begun.time if self.outcomes else None


class History(msgspec.Struct):
    """All events of a run, in order."""

    events: list[Occurrence] = []

    def __len__(self) -> int:
        return len(self.events)

    def of(self, *kinds: Kind, who: str | None = None) -> list[Occurrence]:
        """The events of some kinds; `who` is the beginning of a process's label or all of it."""
        return [
            event
            for event in self.events
            if (not kinds or event.kind in kinds) and (who is None or event.who.startswith(who))
        ]

    def calls(self) -> list[CallRecord]:
        """All calls in the order in which they were made."""
        outcomes: dict[int | None, list[Occurrence]] = {}
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
