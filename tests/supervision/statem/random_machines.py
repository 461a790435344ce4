"""Random machines and scripts as plain data, decoded from bytes: what the model and the real machine both play.

A machine is a table: for each state and each kind of event, the reactions to be had in turn. Bytes are what Hypothesis
makes fastest, and zeros mean the plainest choice, so a failure shrinks to a small table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

STATES: Final = 3
KINDS: Final = ("call", "cast", "ask", "tell", "info", "internal", "state", "event", "a", "b", "enter")
"""The kinds of events, the timers by their names: one for the state, one for events, two generic ones."""
OUTSIDE: Final = KINDS[:5]
TIMERS: Final = KINDS[6:10]
INSERTED: Final = ("internal", "cast", "tell", "info", *TIMERS)
FUEL: Final = 60
"""How often a machine reacts; then it only listens, so that whatever it does ends."""
TICKS: Final = 1024

Outcome = Literal["none", "keep", "next", "repeat", "stop", "stop_and_reply", "reject", "crash"]
Verb = Literal[
    "after",
    "zero",
    "postpone",
    "next",
    "again",
    "reply",
    "fail",
    "at",
    "cancel",
    "update",
    "never",
    "send",
    "unpostpone",
]
_OUTCOMES: Final[tuple[Outcome, ...]] = (
    *("none", "next", "keep", "next", "keep", "next", "repeat", "next", "keep"),
    *("next", "reject", "repeat", "keep", "next", "next", "stop", "stop_and_reply", "reject", "next", "keep", "crash"),
)
_VERBS: Final[tuple[Verb, ...]] = (
    *(
        "postpone",
        "reply",
        "after",
        "next",
        "zero",
        "reply",
        "update",
        "zero",
        "postpone",
        "after",
        "next",
        "reply",
        "at",
    ),
    *("postpone", "again", "send", "fail", "never", "unpostpone", "cancel", "after", "zero", "update"),
)
_RARE: Final = ("stop", "stop_and_reply", "crash")


@dataclass(frozen=True)
class Do:
    """One action: what, with which event or timer, in how many seconds."""

    verb: Verb
    kind: str = "internal"
    seconds: int = 0


@dataclass(frozen=True)
class Reaction:
    """What a state function returns."""

    outcome: Outcome = "none"
    target: int = 0
    actions: tuple[Do, ...] = ()


@dataclass(frozen=True)
class Table:
    """A machine."""

    first: int
    begins: tuple[Do, ...]
    reactions: dict[tuple[int, str], tuple[Reaction, ...]]
    enters: bool
    asynchronous: bool
    one_function: bool

    nothing = Reaction()

    def react(self, state: int, kind: str, seen: int) -> Reaction:
        """What is done the `seen`th time."""
        row = self.reactions[state, kind]
        return row[seen % len(row)]


@dataclass(frozen=True)
class Sent:
    """An event from outside; a call has a number."""

    kind: str
    content: str
    call: int | None = None


@dataclass(frozen=True)
class Burst:
    """Events sent all at once, at a moment that no timer shares: its fraction of a second is its own."""

    moment: float
    events: tuple[Sent, ...]


Script: TypeAlias = tuple[Burst, ...]


@dataclass
class Source:
    """Bytes as choices; when they are used up, the plainest."""

    data: bytes
    _at: int = field(default=0)

    def below(self, limit: int) -> int:
        """A number from 0 to `limit` - 1."""
        if self._at >= len(self.data):
            return 0
        self._at += 1
        return self.data[self._at - 1] % limit


def table(source: Source) -> Table:
    """A machine.

    One whose functions are asynchronous sets no timer that is due already, and sends itself no messages: when those
    would reach its mailbox is for the event loop to say.
    """
    style = source.below(8)
    enters, asynchronous, one_function = bool(style & 1), style & 6 == 6, bool(style & 2)
    reactions: dict[tuple[int, str], tuple[Reaction, ...]] = {}
    for state in range(STATES):
        for kind in KINDS:
            row = [_reaction(source, kind, asynchronous=asynchronous) for _ in range(1 + source.below(3) % 2)]
            reactions[state, kind] = tuple(row)
    first = source.below(STATES)
    return Table(
        first, _actions(source, "init", asynchronous=asynchronous), reactions, enters, asynchronous, one_function
    )


def _reaction(source: Source, kind: str, *, asynchronous: bool) -> Reaction:
    outcome = _OUTCOMES[source.below(len(_OUTCOMES))]
    if outcome == "reject" and kind not in ("call", "ask"):
        outcome = "next"
    if outcome in _RARE and source.below(4):
        outcome = "keep"
    if kind == "enter" and outcome == "next" and source.below(24):
        outcome = "keep"
    if outcome == "none":
        return Reaction()
    target = source.below(STATES) if outcome == "next" else 0
    return Reaction(outcome, target, _actions(source, kind, asynchronous=asynchronous))


def _actions(source: Source, kind: str, *, asynchronous: bool) -> tuple[Do, ...]:
    actions: list[Do] = []
    for _ in range((0, 1, 1, 2, 2, 3, 4)[source.below(7)]):
        verb = _VERBS[source.below(len(_VERBS))]
        if kind == "enter" and verb in ("postpone", "next", "again") and source.below(24):
            verb = "zero"
        if verb == "send" and asynchronous:
            verb = "next"
        if verb in ("reply", "fail", "postpone", "unpostpone", "again", "send"):
            actions.append(Do(verb))
        elif verb == "next":
            actions.append(Do(verb, INSERTED[source.below(len(INSERTED))]))
        else:
            timer = TIMERS[source.below(len(TIMERS))]
            seconds = source.below(3) + (verb == "after" or asynchronous)
            actions.append(Do(verb, timer, seconds if verb in ("after", "at") else 0))
    return tuple(actions)


def script(source: Source) -> Script:
    """What happens to the machine from outside."""
    bursts: list[Burst] = []
    moment = sent = 0
    for number in range(1, 2 + source.below(6)):
        moment += source.below(4)
        events: list[Sent] = []
        for _ in range(1 + source.below(4)):
            sent += 1
            kind = OUTSIDE[source.below(len(OUTSIDE))]
            events.append(Sent(kind, f"out.{sent}", sent if kind in ("call", "ask") else None))
        bursts.append(Burst(moment + number / TICKS, tuple(events)))
    return tuple(bursts)
