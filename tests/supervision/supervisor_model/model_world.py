"""The model's world: processes as generators on a clock of its own, with links, exit signals, calls and a history.

Pure: no event loop, and no code of the engine. A process yields what it waits for (`Sleep`, `Receive`, `Gone`, `Begun`) and is resumed when that has happened.
The rules are those of OTP in the fewest lines: which processes get an exit signal, what it does, how long code takes to unwind.

Two simultaneous events make a plan unpredictable; the world detects that and lists them in `races`.

"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from itertools import count
from typing import TYPE_CHECKING, Any

from .example_plan import GRACE
from .model_processes import (
    DYING,
    GONE,
    KILLED,
    NO_PROCESS,
    NORMAL,
    WAITING,
    Begun,
    Code,
    Gone,
    ModelCall,
    ModelProcess,
    Receive,
    Sleep,
    WaitCondition,
    is_busy,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def _always() -> bool:
    return True


def never() -> bool:
    """Marks an event that changes nothing in the tree."""
    return False


class ModelWorld:
    """All processes, the clock and the history."""

    def __init__(self) -> None:
        """An empty world at time 0."""
        self.now = 0.0
        self.history: dict[str, list[str]] = {}
        self.outcomes: dict[str, tuple[float, str]] = {}
        self.births: Counter[str] = Counter()
        self.cast: dict[str, ModelProcess] = {}
        self.processes: list[ModelProcess] = []
        self.supervisors: list[Any] = []
        self.races: list[str] = []
        self._events: list[tuple[float, int, Callable[[], bool], str, Callable[[], None]]] = []
        self._order = count()
        self._ready: deque[Callable[[], None]] = deque()
        self._last: tuple[float, str] | None = None
        self._born_at: dict[str, tuple[float, ModelProcess | None]] = {}
        self._graves: deque[ModelProcess] = deque()
        self._names: dict[str, ModelProcess] = {}
        self._taken: dict[str, float] = {}

    # --- time

    def at(self, when: float, what: str, then: Callable[[], None], matters: Callable[[], bool] = _always) -> None:
        """Schedule an event. One that does not `matter` changes nothing in the tree, and cannot race."""
        heapq.heappush(self._events, (when, next(self._order), matters, what, then))

    def soon(self, then: Callable[[], None]) -> None:
        """Schedule an event for now, after the current one."""
        self._ready.append(then)

    def run(self, until: float | None = None) -> None:
        """Run until that time; without one, until nothing is left to happen."""
        self._settle()
        while self._events and (until is None or self._events[0][0] < until):
            self.now, _, matters, what, then = heapq.heappop(self._events)
            if matters():
                self._note_race(what)
            then()
            self._settle()
        if until is not None:
            self.now = until

    def step(self, what: str, then: Callable[[], None]) -> None:
        """Do something now from outside the tree."""
        self._note_race(what)
        then()
        self._settle()

    def _note_race(self, what: str) -> None:
        """Note a race with events of the same moment, past or scheduled: this one may affect them."""
        if self._last is not None and self._last[0] == self.now:
            self.races.append(f"{self.now}: {self._last[1]} and {what}")
        elif self._events and self._events[0][0] == self.now:
            others = [other for when, _, matters, other, _ in self._events if when == self.now and matters()]
            self.races += [f"{self.now}: {what} and {other}" for other in others]
        self._last = (self.now, what)

    def _settle(self) -> None:
        while self._ready:
            self._ready.popleft()()

    @property
    def at_rest(self) -> bool:
        """Whether nothing will happen by itself, except for callers' deadlines."""
        self._settle()
        return not any(matters() for _, _, matters, _, _ in self._events)

    # --- history

    def note(self, process: ModelProcess | None, line: str) -> None:
        """Append a line about a child of that process."""
        self.history.setdefault(str(process) if process else "-", []).append(f"{self.now:.6f} {line}")

    # --- starts and exits

    def create(
        self,
        role: str,
        parent: ModelProcess | None,
        code: Callable[[ModelProcess], Code],
        *,
        named: bool,
        traps: bool,
        stubborn: bool,
    ) -> ModelProcess:
        """Start a process, linked to its parent, and run it until it first waits."""
        self.births[role] += 1
        process = ModelProcess(role, self.births[role], parent, traps, stubborn)
        self.processes.append(process)
        self.cast[role] = process
        if named:
            self._names[role] = process
        born = self._born_at.get(role)
        if born is not None and born[0] == self.now and born[1] is not parent and born[1] and born[1].life != GONE:
            self.races.append(f"{self.now}: two of {role}")
        self._born_at[role] = (self.now, parent)
        if parent is not None:
            self.join(parent, process)
        self.note(parent, f"start {process}")
        process.code = code(process)
        self._advance(process, None)
        return process

    def begun(self, process: ModelProcess, outcome: str | None) -> None:
        """The process finished its init, successfully if the outcome is None."""
        if process.started is not WAITING:
            return
        process.started = outcome
        if outcome is None:
            self.note(process.parent, f"ready {process}")
        parent = process.parent
        if parent is not None and isinstance(parent.wish, Begun) and parent.wish.process is process:
            self._resume(parent, outcome)

    def _resume(self, process: ModelProcess, value: object = None) -> None:
        turn = process.turn = process.turn + 1
        process.wish = None
        self.soon(lambda: self._advance(process, value) if process.turn == turn else None)

    def _advance(self, process: ModelProcess, value: object) -> None:
        if not process.alive():
            return
        code = process.code
        assert code is not None
        while True:
            try:
                wish = code.send(value)
            except StopIteration as end:
                process.slowly = True
                process.wish = None
                self.condemn(process, end.value)
                return
            if not process.alive():
                return
            process.wish = wish
            process.turn += 1
            match wish:
                case Receive():
                    if not process.mailbox:
                        return
                    value = process.mailbox.popleft()
                case Sleep(seconds=seconds):
                    process.until = None if seconds is None else self.now + seconds
                    if process.until is not None:
                        self._later(process, process.until, "wakes")
                    return
                case Gone(processes=processes, seconds=seconds):
                    if not self._await_gone(process, processes, seconds):
                        return
                    value = True
                case Begun(process=child):
                    if child.started is WAITING:
                        return
                    value = child.started
            process.wish = None

    def _later(self, process: ModelProcess, when: float, what: str, value: object = None) -> None:
        turn = process.turn

        def resume() -> None:
            if self._still(process, turn):
                self._resume(process, value)

        self.at(when, f"{process} {what}", resume, lambda: self._still(process, turn))

    def _still(self, process: ModelProcess, turn: int) -> bool:
        return process.alive() and process.turn == turn

    def _await_gone(self, process: ModelProcess, others: tuple[ModelProcess, ...], seconds: float | None) -> bool:
        turn = process.turn
        left = {other for other in others if other.life != GONE}
        if not left:
            return True

        def waiter(other: ModelProcess) -> Callable[[str], None]:
            def gone(_: str) -> None:
                left.discard(other)
                if not left and self._still(process, turn):
                    self._resume(process, value=True)

            return gone

        for other in left.copy():
            other.waiters.append(waiter(other))
        if seconds is not None:
            self._later(process, self.now + seconds, "loses patience", value=False)
        return False

    def condemn(self, process: ModelProcess, reason: str) -> None:
        """End the process; the first reason counts. Stubborn code gets the grace period."""
        if not process.alive():
            return
        process.life = DYING
        process.reason = reason
        process.mailbox.clear()
        wish, process.wish = process.wish, None
        if isinstance(wish, Begun):
            # No process will ever know of that child.
            self.condemn(wish.process, KILLED)
        left = self._unwinding(process, wish)
        if left is not None:
            leaked = left >= GRACE
            self.at(self.now + min(left, GRACE), f"{process} is gone", lambda: self._bury(process, leaked=leaked))
        elif process.tasks or is_busy(wish):
            process.slowly = True
            self.soon(lambda: self._bury(process))
        else:
            self._bury(process)

    def _unwinding(self, process: ModelProcess, wish: WaitCondition | None) -> float | None:
        """How long its code, and a task that it started, run on after cancellation; None if they end at once."""
        if process.straggler:
            return math.inf
        if isinstance(wish, Sleep) and process.stubborn and not wish.lightly:
            return math.inf if process.until is None else process.until - self.now
        return None

    def _bury(self, process: ModelProcess, *, leaked: bool = False) -> None:
        """Bury processes one after the other: one that dies of a death comes after it."""
        process.life = GONE
        process.ended_at = self.now
        self._graves.append(process)
        if len(self._graves) > 1:
            return
        while self._graves:
            self._last_rites(self._graves[0], leaked=leaked)
            self._graves.popleft()
            leaked = False

    def _last_rites(self, process: ModelProcess, *, leaked: bool) -> None:
        if self._taken.get(process.role) == self.now:
            self.races.append(f"{self.now}: {process} gives its name back, and its successor wants it")
        self.note(process.parent, f"end {process}: {process.reason}{' (leaked)' if leaked else ''}")
        if process.started is WAITING:
            if process.parent is not None:
                self.part(process.parent, process)
            self.begun(process, process.refused or process.reason)
        waiters, process.waiters = process.waiters, []
        for waiter in waiters:
            waiter(process.reason)
        for other in tuple(process.links):
            self.part(process, other)
            alive = other.alive()
            self.signal(other, process, process.reason)
            if alive and other.slowly and other.parent is process.parent and not other.alive():
                self.races.append(f"{self.now}: {other} dies with {process}, and their supervisor")

    # --- names

    def holder(self, role: str, asker: ModelProcess) -> ModelProcess | None:
        """The process with that name."""
        process = self._names.get(role)
        if process is None or process.life == GONE:
            if process is not None and process.ended_at == self.now and not self._at_once(process, asker):
                self.races.append(f"{self.now}: {process} has given its name back, and its successor wants it")
            return None
        self._taken[role] = self.now
        return process

    def _at_once(self, process: ModelProcess, asker: ModelProcess) -> bool:
        """Whether the process was gone before the call could be made: its supervisor stopped it, or it died with its supervisor."""
        return process.parent is asker or (process.reason == KILLED and not process.slowly)

    # --- signals and messages

    def join(self, one: ModelProcess, other: ModelProcess) -> None:
        """Link two processes."""
        one.links[other] = None
        other.links[one] = None

    def part(self, one: ModelProcess, other: ModelProcess) -> None:
        """Unlink two processes."""
        one.links.pop(other, None)
        other.links.pop(one, None)

    def signal(self, process: ModelProcess, source: ModelProcess | None, reason: str) -> None:
        """Send an exit signal: a message for those that trap it, the end of others unless it is `normal`."""
        if process.traps:
            self.send(process, ("exit", source, reason))
        elif reason != NORMAL:
            self.condemn(process, reason)

    def send(self, process: ModelProcess, message: tuple[Any, ...]) -> bool:
        """Put a message into the mailbox; False if the process will not read it."""
        if not process.alive():
            return False
        if isinstance(process.wish, Receive):
            self._resume(process, message)
        else:
            process.mailbox.append(message)
        return True

    def call(
        self,
        label: str,
        process: ModelProcess,
        message: Callable[[ModelCall], tuple[Any, ...]],
        *,
        wanted: str | None = None,
    ) -> ModelCall:
        """Call a process: its reply, or its exit, settles the call."""
        call = ModelCall(self, label, wanted)
        if process.life == GONE:
            call.on_exit(NO_PROCESS)
            return call
        process.waiters.append(call.on_exit)
        self.send(process, message(call))
        return call
