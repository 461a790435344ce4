"""A model of OTP's documented state transitions, step by step and in plain data.

Written from the documented rules, and not from the machine: it knows nothing of the event loop, of processes or of
greenroom's modules. It plays a table against a script and says what is seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .random_machines import FUEL

if TYPE_CHECKING:
    from .random_machines import Do, Reaction, Script, Table

Told = list[tuple["Do", str]]
"""Actions, each with the content that it would bring."""


@dataclass
class Seen:
    """The observable behaviour of a machine, of the model and of the real one."""

    trace: list[tuple[float, int, str, str]] = field(default_factory=list[tuple[float, int, str, str]])
    """Each call of a state function: when, in which state, for what, with which content."""
    answers: dict[int, str] = field(default_factory=dict[int, str])
    end: str = "stopped"
    state: int | None = None
    postponed: list[str] = field(default_factory=list[str])


@dataclass(frozen=True)
class Happening:
    """An event: its kind, what it brings, and which call it is, if it is one."""

    kind: str
    content: str
    call: int | None = None


@dataclass(eq=False)
class Armed:
    """A timer that was started; `due` is None for one of 0 seconds, which no clock decides."""

    name: str
    content: str
    due: float | None
    serial: int
    rung: bool = False


class Ended(Exception):
    """The machine ends."""


class Model:
    """One machine, playing."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.clock = 0.0
        self.state = table.first
        self.mailbox: list[Happening | Armed] = []
        self.queue: list[Happening | Armed] = []
        self.zeros: list[Armed] = []
        self.timers: dict[str, Armed] = {}
        self.postponed: list[Happening] = []
        self.open: list[int] = []
        self.reactions = 0
        self.starts = 0
        self.visits: dict[tuple[int, str], int] = {}
        self.seen = Seen()

    # --- the world

    def play(self, script: Script) -> Seen:
        """The whole script, and as much time after it as anything takes."""
        try:
            begins = [(do, f"init.{index}") for index, do in enumerate(self.table.begins)]
            self.transition(None, self.state, begins, enter=True)
            self.run()
            for burst in script:
                self.until(burst.moment)
                self.mailbox += [Happening(sent.kind, sent.content, sent.call) for sent in burst.events]
                self.run()
            self.until(math.inf)
            self.seen.state = self.state
            self.seen.postponed = [each.content for each in self.postponed]
        except Ended as end:
            self.seen.end = str(end)
        calls = [sent.call for burst in script for sent in burst.events if sent.call is not None]
        self.seen.answers = {call: self.seen.answers.get(call, "gone") for call in calls}
        return self.seen

    def until(self, moment: float) -> None:
        """Let time pass. Timers ring when they are due, and those due together in the order of their starts."""
        while running := [each for each in self.timers.values() if each.due is not None and not each.rung]:
            first = min(each.due for each in running if each.due is not None)
            if first > moment:
                break
            self.clock = max(self.clock, first)
            due = [each for each in running if each.due is not None and each.due <= self.clock]
            for timer in sorted(due, key=lambda each: (each.due, each.serial)):
                timer.rung = True
                self.mailbox.append(timer)
            self.run()
        self.clock = moment

    def run(self) -> None:
        """Until there is nothing left to do at this moment: queued events, zero timeouts, then what comes from outside."""
        while waiting := self.queue or self.zeros or self.mailbox:
            event = waiting.pop(0)
            if isinstance(event, Armed):
                if self.timers.get(event.name) is not event:
                    continue  # it was cancelled, or started anew
                del self.timers[event.name]
                event = Happening(event.name, event.content)
            self.handle(event)

    # --- one event, by the documented steps

    def handle(self, event: Happening) -> None:
        """The function of the state has its turn, and a transition follows."""
        old = self.state
        reaction, told = self.call(event.kind, event.content, event.call)
        if reaction.outcome == "next":
            self.state = reaction.target
        self.transition(event, old, told, enter=reaction.outcome == "repeat" or self.state != old)

    def transition(self, event: Happening | None, old: int, told: Told, *, enter: bool) -> None:
        """The steps of a state transition."""
        postpone = entering = False
        inserted: list[Happening | Armed] = []
        timings: Told = []
        while True:
            # 1. the actions in order of appearance: answers are sent, the others are options, and the last one wins
            for do, content in told:
                if entering and do.verb in ("postpone", "next", "again"):
                    raise Ended("bad return")
                if do.verb in ("reply", "fail"):
                    self.answer(do, content, None if event is None or entering else event.call)
                elif do.verb in ("postpone", "unpostpone"):
                    postpone = do.verb == "postpone"
                elif do.verb == "next":
                    inserted.append(Happening(do.kind, content))
                elif do.verb == "again":
                    inserted.append(event or Happening("internal", content))
                elif do.verb != "send":
                    timings.append((do, content))
            # 2. the state is entered, if that is called for, and what that returns is treated from the top
            if not (enter and self.table.enters):
                break
            entering = True
            reaction, told = self.call("enter", str(old), None)
            if reaction.outcome == "next" and reaction.target != self.state:
                raise Ended("bad return")
            enter = reaction.outcome == "repeat"
        # 3. the event is postponed
        if postpone and event is not None:
            self.postponed.append(event)
        # 4. a change of state starts over with the oldest postponed; it ends the state timeout, as any event does the event's
        self.timers.pop("event", None)
        if self.state != old:
            self.queue = [*self.postponed, *self.queue]
            self.postponed = []
            self.timers.pop("state", None)
        # 5. inserted events come before those that are queued
        self.queue = [*inserted, *self.queue]
        # 6. timeouts
        last = {do.kind: place for place, (do, _) in enumerate(timings)}
        for place, (do, content) in enumerate(timings):
            if last[do.kind] == place:
                self.time(do, content)

    def time(self, do: Do, content: str) -> None:
        """One timeout action."""
        running = self.timers.get(do.kind)
        if do.verb == "update" and running is not None:
            running.content = content
            return
        self.timers.pop(do.kind, None)
        if do.verb in ("cancel", "never"):
            return
        self.starts += 1
        due = self.clock + do.seconds if do.verb in ("after", "at") else None
        timer = self.timers[do.kind] = Armed(do.kind, content, due, self.starts)
        if due is None:
            self.zeros.append(timer)

    # --- what the functions of the table do

    def call(self, kind: str, content: str, call: int | None) -> tuple[Reaction, Told]:
        """Call the function of the state."""
        self.seen.trace.append((self.clock, self.state, kind, content))
        if call is not None and call not in self.seen.answers and call not in self.open:
            self.open.append(call)
        number = self.reactions = self.reactions + 1
        if number > FUEL:
            return self.table.nothing, []
        visit = self.visits[self.state, kind] = self.visits.get((self.state, kind), -1) + 1
        reaction = self.table.react(self.state, kind, visit)
        told = [(do, f"{number}.{index}") for index, do in enumerate(reaction.actions)]
        self.mailbox += [Happening("info", sent) for do, sent in told if do.verb == "send"]
        if reaction.outcome == "reject" and call is not None:
            self.settle(call, f"refused {number}")
            return self.table.nothing, []
        if reaction.outcome in ("reject", "crash"):
            raise Ended("crash")
        if reaction.outcome == "stop_and_reply":
            for do, answer in told:
                if do.verb in ("reply", "fail"):
                    self.answer(do, answer, call)
        if reaction.outcome in ("stop", "stop_and_reply"):
            raise Ended("shutdown")
        return reaction, told

    def answer(self, do: Do, content: str, call: int | None) -> None:
        """Answer the call that is handled, else the oldest that is open."""
        if call is None and self.open:
            call = self.open[0]
        if call is not None:
            self.settle(call, f"{do.verb} {content}")

    def settle(self, call: int, text: str) -> None:
        """The first answer is the one that counts."""
        self.seen.answers.setdefault(call, text)
        if call in self.open:
            self.open.remove(call)
