"""Who listens to a task: the session that it was asked for in, the calls that wait for its end, and the handler's questions on their way.

It is the part of the collector's process that knows where a word or a question can go. A call that waits comes first, since its stream is
open; the session as it is comes last, and may not be reachable just now: then the question waits, and is tried again from time to time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.supervision import monitor

from .outbound import NoStream
from .task_voice import Way
from .task_words import Decided
from .voice import Withdrawn

if TYPE_CHECKING:
    from greenroom.supervision import Caller, Monitor, Pid, Ref

    from .task_voice import Need, TaskVoice
    from .task_words import Unwait, Wait


class Listeners:
    """One task's."""

    __slots__ = ("_asked", "_count", "_id", "_needs", "_shut", "_waiters", "_watched", "origin", "voice")

    def __init__(self, id: str, origin: Ref[Any] | None) -> None:
        """Nobody waits yet."""
        self.origin = origin
        self.voice: TaskVoice | None = None
        self._id = id
        self._shut = False  # the origin could not be asked just now
        self._waiters: list[Wait] = []
        self._needs: dict[int, Caller[Any] | None] = {}
        self._asked: dict[int, Ref[Any]] = {}
        self._count = 0
        self._watched: dict[Monitor, Pid | None] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    # --- sessions come and go

    def begin(self) -> None:
        """Hear of the origin's end."""
        if self.origin is not None:
            self._watch(self.origin)

    def wait(self, wait: Wait) -> None:
        """One more call waits."""
        if wait.pid not in self._watched.values():
            self._watch(wait.session)
        self._waiters.append(wait)
        self.point()
        self.ask()

    def unwait(self, word: Unwait) -> None:
        """It does not any more."""
        self._waiters = [each for each in self._waiters if (each.pid, each.key) != (word.pid, word.key)]
        self.point()

    def gone(self, ref: Monitor) -> bool:
        """A session is gone; whether it was the origin."""
        who = self._watched.pop(ref, None)
        if who is None:
            return False
        was = self.origin is not None and self.origin.pid == who
        if was:
            self.origin = None
        self._waiters = [each for each in self._waiters if each.pid != who]
        self.point()
        return was

    def _watch(self, session: Ref[Any]) -> None:
        self._watched[monitor(session)] = session.pid

    # --- words

    def point(self) -> None:
        """Have what is said go where somebody listens."""
        voice, way = self.voice, self._way()
        if voice is not None and voice.way != way:
            if voice.way is None or way is None or voice.way.session != way.session:
                voice.ahead = 0
            voice.way = way

    def _way(self) -> Way | None:
        """To whoever waits, the newest of the origin first; else to that session as it is."""
        origin = None if self.origin is None else self.origin.pid
        waiting = sorted(self._waiters, key=lambda each: each.pid == origin)  # stable: the newest stay last
        if waiting:
            return Way(waiting[-1].session, waiting[-1].key)
        return None if self.origin is None else Way(self.origin, None)

    # --- questions

    @property
    def asking(self) -> bool:
        """Whether any question is open."""
        return bool(self._needs)

    def need(self, need: Need, caller: Caller[Any]) -> bool:
        """A question wants a way; whether the origin has to be tried again later."""
        number, failed = need
        if number is None:
            self._count += 1
            number = self._count
        self._needs[number] = caller
        later = failed is not None and self._lost(failed)
        self.ask()
        return later

    def _lost(self, way: Way) -> bool:
        """That way led nowhere."""
        if way.key is None:
            self._shut = True
            return True
        self._waiters = [each for each in self._waiters if (each.session, each.key) != (way.session, way.key)]
        self.point()
        return False

    def try_again(self) -> None:
        """The origin may be reachable by now."""
        self._shut = False
        self.ask()

    def ask(self) -> None:
        """Let those ask who want to, if there is a way."""
        way = self._way()
        if way is None or (way.key is None and self._shut):
            return
        for number, caller in self._needs.items():
            if caller is not None:
                self._needs[number] = None
                self._asked[number] = way.session
                caller.reply((number, way))

    def met(self, number: int) -> None:
        """That question is over."""
        self._needs.pop(number, None)
        self._asked.pop(number, None)

    # --- the end

    def drop_questions(self) -> None:
        """Nobody needs an answer any more."""
        for caller in self._needs.values():
            if caller is not None:
                caller.fail(NoStream("the task is over"))
        for session in {session.pid: session for session in self._asked.values()}.values():
            session.send(Withdrawn(self._id))
        self._needs.clear()
        self._asked.clear()

    def tell_all(self) -> None:
        """Whoever waits can be answered."""
        for waiter in self._waiters:
            waiter.session.send(Decided(waiter.key))
        self._waiters.clear()
