"""An asyncio event loop whose clock jumps instead of waiting.

`VirtualLoop.time()` begins at 0 and stands still while code runs. When nothing is ready and only timers are left, it
jumps to the next of them, so a test of a whole day takes no time, and always takes the same. All that asks the loop
moves with it: `asyncio.sleep`, `asyncio.timeout`, anyio, deadlines of calls, restart windows.

What may come from outside the loop sets the rule:

- Nobody outside: the clock jumps. If there is no timer either, nothing can ever happen, and that is a `Deadlock`.
- A thread is at work (a job of an executor, `asyncio.to_thread`, `anyio.to_thread`, a thread that was started since
  the loop was made): the clock stands, so no deadline fires because a machine was slow. A thread that works for
  longer than `PATIENCE` has the clock go on, by real time.
- Threads that wait themselves (for a lock, a queue, a future that the loop has to settle), or sockets both ends of
  which this loop has: after a short real pause in which nobody moves, as if nobody were outside.
- A descriptor whose other end is elsewhere, or a child process: the clock goes by real time.

Three things are beyond it: a thread that blocks in C code (a raw lock, a socket) looks as if it worked; one that was
there before the loop counts only while a job is out, and before a deadlock is called; and a signal that is yet to come
(`signal.alarm`) is not seen coming.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

from .outside import Hold, Look, Outside
from .waits import describe

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from types import FrameType

    Events = list[tuple[selectors.SelectorKey, int]]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PATIENCE: Final = 5.0  # real seconds that a thread may work while the clock stands
PAUSE: Final = 0.05  # real seconds in which a thread that could go on would have
POLL: Final = 0.02  # real seconds between two looks at who works
ROUNDS: Final = 1_000_000  # jumps during which the main task waits for one and the same thing
_NANOSECOND: Final = 1e-9  # what asyncio takes for the resolution of any clock


_ASYNCIO: Final = str(Path(asyncio.__file__).parent)
_made: WeakKeyDictionary[asyncio.Future[Any], str] = WeakKeyDictionary()


def made_at(task: asyncio.Task[Any]) -> str | None:
    """The line that made a task, if its loop was a virtual one or in debug mode."""
    traced = getattr(task, "_source_traceback", None)
    return f"{traced[-1].filename}:{traced[-1].lineno}" if traced else _made.get(task)


class Deadlock(Exception):
    """Everybody waits and nothing can ever happen: no timer, nothing ready, nobody outside."""


class Endless(Deadlock):
    """Timers go round and round, and the main task waits for something that they do not bring."""


class _Selector(selectors.BaseSelector):
    """The real selector, never asked to wait: whether to wait is the loop's to say."""

    def __init__(self, real: selectors.BaseSelector) -> None:
        self.real = real
        self.idle: Callable[[], Events] = list

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self.real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self.real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self.real.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> Events:
        events = self.real.select(0)
        return events if events or (timeout is not None and timeout <= 0) else self.idle()

    def close(self) -> None:
        self.real.close()

    def get_map(self) -> Any:
        return self.real.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. `run` makes one; `asyncio.Runner(loop_factory=VirtualLoop)` works as well."""

    def __init__(self, *, patience: float = PATIENCE, rounds: int = ROUNDS) -> None:
        """It is 0 o'clock."""
        self._now = 0.0
        self._forced = -math.inf
        self._jobs = {False: 0, True: 0}
        self._patience = patience
        self._worked_since: float | None = None
        self._rounds = rounds
        self._round = 0
        self._waiting_for: object = None
        self.main: asyncio.Task[Any] | None = None
        """The task for which all this is done: a deadlock cancels it, so that it is told where it waits."""
        self.deadlock: Deadlock | None = None
        selector = _Selector(selectors.DefaultSelector())
        super().__init__(selector)
        self._real = selector.real
        self._outside = Outside(self, self._real)
        selector.idle = self._idle

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """As in any loop; the clock stands while the job is done."""
        future = super().run_in_executor(executor, func, *args)
        if not future.done():
            far = executor is not None and not isinstance(executor, ThreadPoolExecutor)  # in another OS process
            self._jobs[far] += 1
            future.add_done_callback(lambda _: self._job_done(far=far))
        return future

    def _job_done(self, *, far: bool) -> None:
        self._jobs[far] -= 1

    def create_task(self, coro: Any, **options: Any) -> Any:
        """As in any loop; where it was made is kept for the leak check."""
        task = super().create_task(coro, **options)
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to it
        while frame is not None and frame.f_code.co_filename.startswith(_ASYNCIO):
            frame = frame.f_back
        if frame is not None:
            _made[task] = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return task

    async def advance(self, seconds: float) -> None:
        """Let so much time pass, whatever holds the clock."""
        self._forced = max(self._forced, self._now + seconds)
        await asyncio.sleep(seconds)

    # --- when nothing is ready

    def _idle(self) -> Events:
        upcoming = self._upcoming()
        if upcoming is not None and upcoming <= self._forced:
            self._at(upcoming)
            return []
        seen = self._look(upcoming)
        if seen.hold == Hold.NOBODY:
            return self._jump(upcoming)
        if seen.hold == Hold.WAITING:
            if events := self._real.select(PAUSE):
                return events
            return self._jump(upcoming) if self._look(upcoming) == seen else []
        if seen.hold == Hold.WORKING:
            now = time.monotonic()
            if self._worked_since is None:
                self._worked_since = now
            if now - self._worked_since < self._patience:
                return self._real.select(POLL)
        return self._pass(upcoming)

    def _look(self, upcoming: float | None) -> Look:
        if self._jobs[True]:
            return Look(Hold.WORKING)
        return self._outside.look(self._jobs[False], everybody=upcoming is None)

    def _upcoming(self) -> float | None:
        """When the next timer is due. The base class has just dropped cancelled ones from the front of its heap."""
        scheduled: list[asyncio.TimerHandle] = getattr(self, "_scheduled")  # noqa: B009 - a private of the base class
        if not scheduled or math.isinf(scheduled[0].when()):
            return None
        return scheduled[0].when()

    def _pass(self, upcoming: float | None) -> Events:
        """Time goes by as it really does."""
        began = time.monotonic()
        events = self._real.select(POLL if upcoming is None else min(POLL, upcoming - self._now))
        later = self._now + time.monotonic() - began
        if upcoming is None or later < upcoming:
            self._now = later
        else:
            self._at(upcoming)
        return events

    def _jump(self, upcoming: float | None) -> Events:
        # Whoever ended before we looked had its say before that: now, and not before the look, it must have arrived.
        if events := self._real.select(0):
            return events
        self._worked_since = None
        if upcoming is None:
            return self._stuck(Deadlock("nothing can ever happen: no timer, no thread, no I/O, and everybody waits"))
        waiting_for = None if self.main is None else getattr(self.main, "_fut_waiter", None)
        if waiting_for is None or waiting_for is not self._waiting_for:
            self._waiting_for = waiting_for
            self._round = 0
        self._round += 1
        if self._round > self._rounds:
            return self._stuck(Endless(f"after {self._rounds} timers the main task still waits for the same"))
        self._at(upcoming)
        return []

    def _at(self, upcoming: float) -> None:
        self._now = upcoming
        # A timer is due when it lies before now plus this. A nanosecond is nothing after half a year: that sum would be now.
        self._clock_resolution = max(_NANOSECOND, 2 * math.ulp(upcoming))

    def _stuck(self, error: Deadlock) -> Events:
        self._round = 0
        lines = [str(error), *describe(self), *self._outside.threads()]
        error.args = ("\n  ".join(lines),)
        if self.deadlock is None and self.main is not None and self.main.cancel(str(error)):
            self.deadlock = error
            return []
        raise error


async def advance(seconds: float) -> None:
    """Let so much virtual time pass, whatever holds the clock: for a thread that is stuck on purpose."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        message = f"advance() moves a virtual clock, and the one of {loop!r} is real"
        raise TypeError(message)
    await loop.advance(seconds)
