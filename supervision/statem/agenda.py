"""What a machine has before it besides its mailbox: events that wait inside it, and its timers.

The order is OTP's. Next comes what `NextEvent` put there, then what was postponed and is retried, then what was queued
before; when all that is done, timeouts of 0 seconds in the order they were asked for; then the mailbox. A timer that
runs out puts itself into the mailbox, behind what is there. It is void unless it is still the machine's when its turn
comes; so a cancelled one never shows, and one whose content was updated brings the new content.

Timers of one machine that fall due at the same instant come in the order in which they were started.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, TypeAlias

from greenroom.supervision.kernel import clock
from greenroom.supervision.kernel.messages import SIGNAL

from .events import EventTimeout, GenericTimeout, StateTimeout
from .results import After, At, Cancel, Update

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Hashable, Iterable

    from greenroom.supervision.kernel.process import Process

    from .events import Queued, TimeoutEvent
    from .results import Timing

Key: TypeAlias = "tuple[type[TimeoutEvent], Hashable]"
EVENT: Final[Key] = (EventTimeout, None)
STATE: Final[Key] = (StateTimeout, None)


def key_of(event: TimeoutEvent) -> Key:
    """Which timer brings this event: there is one for the state, one for events, and one for each name."""
    return (type(event), event.name if isinstance(event, GenericTimeout) else None)


class Timer:
    """One start of a timer. It is the message that its end puts into the mailbox."""

    __slots__ = ("due", "event", "key")

    def __init__(self, key: Key, event: TimeoutEvent, due: float | None) -> None:
        """`due` is None for one of 0 seconds, and for one that has rung: the clock has no more to do with it."""
        self.key = key
        self.event = event
        self.due = due

    def __repr__(self) -> str:
        return f"<Timer {self.event}>"


class Agenda:
    """Of one machine. It decides what is next, and knows nothing of states."""

    __slots__ = ("_alarm", "_process", "_queue", "_timers", "_zeros", "postponed")

    def __init__(self, process: Process) -> None:
        """`process` is whose mailbox the timers ring in."""
        self._process = process
        self._queue: list[Queued] = []  # the next is the last
        self._zeros: list[Timer] = []
        self._timers: dict[Key, Timer] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self.postponed: list[Queued] = []

    # --- events

    def take(self) -> Queued | None:
        """The next event of the machine's own; None when the mailbox comes next."""
        if self._queue:
            return self._queue.pop()
        while self._zeros:
            if (event := self.rung(self._zeros.pop(0))) is not None:
                return event
        return None

    def rung(self, timer: Timer) -> TimeoutEvent | None:
        """The event of a timer whose turn has come; None when it was cancelled or started anew meanwhile."""
        if self._timers.get(timer.key) is not timer:
            return None
        del self._timers[timer.key]
        return timer.event

    def postpone(self, event: Queued) -> None:
        """Keep an event for another state. A bound of the mailbox counts it."""
        self.postponed.append(event)
        process = self._process
        if process.limit is not None:
            process.exempt -= 1

    def insert(self, events: list[Queued]) -> None:
        """These come before all others."""
        self._queue.extend(reversed(events))

    def change(self) -> None:
        """The state has changed: what was postponed is retried, and the state's time is over."""
        if self.postponed:
            if self._process.limit is not None:
                self._process.exempt += len(self.postponed)
            self._queue.extend(reversed(self.postponed))
            self.postponed.clear()
        self.cancel(STATE)

    # --- timers

    @property
    def timers(self) -> tuple[TimeoutEvent, ...]:
        """What is to come, unless it is cancelled."""
        return tuple(timer.event for timer in self._timers.values())

    @property
    def waiting(self) -> tuple[Queued, ...]:
        """What is queued, the next first; zero timeouts are among `timers`."""
        return tuple(reversed(self._queue))

    def set(self, actions: Iterable[Timing]) -> None:
        """Start, update and cancel: at most one action for each timer."""
        now: float | None = None
        for action in actions:
            key = key_of(action.event)
            match action:
                case Cancel():
                    self._timers.pop(key, None)
                case Update():
                    running = self._timers.get(key)
                    if running is None:
                        self._start(key, action.event, None)
                    else:
                        running.event = action.event
                case At(moment=moment) if moment < math.inf:
                    self._start(key, action.event, moment)
                case At() | After(seconds=None | math.inf):
                    self._timers.pop(key, None)
                case After(seconds=seconds):
                    if not seconds:
                        self._start(key, action.event, None)
                    else:
                        if now is None:
                            now = clock.now(self._process.node.loop)
                        self._start(key, action.event, now + seconds)
        self._wind()

    def cancel(self, key: Key) -> None:
        """Stop a timer, if it runs."""
        if self._timers.pop(key, None) is not None:
            self._wind()

    def _start(self, key: Key, event: TimeoutEvent, due: float | None) -> None:
        timer = Timer(key, event, due)
        self._timers.pop(key, None)  # so that the order in there is the order of starts
        self._timers[key] = timer
        if due is None:
            self._zeros = [zero for zero in self._zeros if self._timers.get(zero.key) is zero]
            self._zeros.append(timer)

    # The loop knows of one alarm for each machine: it can order timers that fall due together only by chance.

    def _wind(self) -> None:
        """Have the loop wake us when the first timer is due, and only then."""
        first = min((timer.due for timer in self._timers.values() if timer.due is not None), default=None)
        alarm = self._alarm
        if alarm is not None:
            if alarm.when() == first:
                return
            alarm.cancel()
            self._alarm = None
        if first is not None:
            node = self._process.node
            self._alarm = node.loop.call_at(first, self._ring, first, context=node.context)

    def _ring(self, moment: float) -> None:
        self._alarm = None
        moment = max(moment, clock.now(self._process.node.loop))
        due = [timer for timer in self._timers.values() if timer.due is not None and timer.due <= moment]
        for timer in sorted(due, key=lambda timer: timer.due or 0.0):
            timer.due = None
            self._process.deliver_exempt((SIGNAL, timer))
        self._wind()

    def close(self) -> None:
        """The machine is gone."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._timers.clear()
