"""Time and waiting: the clock, the deadlines of calls, and the wakeups of tasks.

This is the one file that reads a clock. All time comes from the event loop, so a loop on virtual time
(`greenroom.supervision.testing`) moves deadlines, timers, restart windows and the sleeps of user code together.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Generator
    from contextvars import Context

    from .node import Node


def now(loop: AbstractEventLoop) -> float:
    """Seconds on the loop's clock: monotonic, with an origin of its own."""
    return loop.time()


def real_seconds() -> float:
    """Monotonic real time, for the watchdog: a blocked loop cannot be asked for its own time."""
    return time.monotonic()


_lock = threading.Lock()
_last = 0


def incarnation() -> int:
    """A number that is unique for each start of a node, across threads and within one tick of the clock."""
    global _last  # noqa: PLW0603 - unique in the operating system's process, so kept once in it
    with _lock:
        _last = max(_last + 1, time.time_ns())
        return _last


def check_seconds(seconds: object) -> None:
    """Raise `ValueError` for an impossible timeout, before anything waits for it."""
    if seconds is not None and not (isinstance(seconds, int | float) and seconds >= 0):
        raise ValueError(f"give 0 or more seconds, or None for no limit, not {seconds!r}")


# --- Deadlines of calls, in lanes.
# Nearly every call has a deadline and nearly none reaches it, so arming one must cost next to nothing. Calls that wait
# equally long fall due in the order they were made: one queue per duration keeps them sorted for free, answered calls
# are dropped when they reach the front, and the loop has one timer for the lane instead of one per call.


_SWEEP_FROM = 256  # a lane shorter than this is not worth sweeping
_LANES_KEPT = 64  # with more lanes than this, lanes without a waiting call are dropped


class Expiring(Protocol):
    """A pending answer with a deadline."""

    _future: asyncio.Future[Any]
    """Done when the call was answered, or its caller stopped waiting."""

    def expire(self, seconds: float) -> None:
        """The deadline has passed."""
        ...


class _Lane:
    __slots__ = ("handle", "queue", "seconds", "sweep_at")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.queue: deque[tuple[float, Expiring]] = deque()
        self.handle: asyncio.TimerHandle | None = None
        self.sweep_at = _SWEEP_FROM


class Deadlines:
    """All deadlines of one node."""

    __slots__ = ("_lanes", "_node", "_sweep_at")

    def __init__(self, node: Node) -> None:
        """A node has one of these."""
        self._node = node
        self._lanes: dict[float, _Lane] = {}
        self._sweep_at = _LANES_KEPT

    def __len__(self) -> int:
        """The number of entries, including answered ones that were not dropped yet."""
        return sum(len(lane.queue) for lane in self._lanes.values())

    def add(self, seconds: float, item: Expiring) -> None:
        """Call `item.expire` in so many seconds, unless it was answered by then."""
        lane = self._lanes.get(seconds)
        if lane is None:
            lane = self._open(seconds)
        queue = lane.queue
        while queue and queue[0][1]._future.done():
            queue.popleft()
        if len(queue) >= lane.sweep_at:
            # A pending call at the front keeps the answered calls behind it; sweep when they may be the majority.
            lane.queue = queue = deque(entry for entry in queue if not entry[1]._future.done())
            lane.sweep_at = max(_SWEEP_FROM, 2 * len(queue))
        queue.append((self._node.loop.time() + seconds, item))
        if lane.handle is None:
            self._arm(lane)

    def _open(self, seconds: float) -> _Lane:
        if len(self._lanes) >= self._sweep_at:
            # Code that passes on the rest of a deadline makes a lane for each call, so a sweep is amortised over many.
            for key, lane in tuple(self._lanes.items()):
                if all(item._future.done() for _, item in lane.queue):
                    if lane.handle is not None:
                        lane.handle.cancel()
                    del self._lanes[key]
            self._sweep_at = max(_LANES_KEPT, 2 * len(self._lanes))
        lane = self._lanes[seconds] = _Lane(seconds)
        return lane

    def _arm(self, lane: _Lane) -> None:
        node = self._node
        lane.handle = node.loop.call_at(lane.queue[0][0], self._due, lane, context=node.context)

    def _due(self, lane: _Lane) -> None:
        lane.handle = None
        now = self._node.loop.time()
        queue = lane.queue
        while queue:
            deadline, item = queue[0]
            if not item._future.done():
                if deadline > now:
                    break
                queue.popleft()
                item.expire(lane.seconds)
            else:
                queue.popleft()
        if queue:
            self._arm(lane)

    def close(self) -> None:
        """Disarm everything."""
        for lane in self._lanes.values():
            if lane.handle is not None:
                lane.handle.cancel()
        self._lanes.clear()


# --- Objects that tasks wait for: a `Wakeup` resumes them in the loop's next turn, a `DirectWakeup` at once.
# `DirectWakeup` is a fake future. A real future resumes its task in the next turn of the loop, which costs another pass through the
# loop's ready queue and another `select` over all descriptors. Code that the loop itself calls, outside of any task (the node's pump,
# a readable descriptor), can resume a task immediately instead, by running the step that the task registered as its done callback.
# It relies only on what asyncio's Task asks of an awaited object: `_asyncio_future_blocking`, `get_loop`, `add_done_callback`,
# `cancel`, `result`. Calling `wake` inside a task would run one task inside another.


class DirectWakeup:
    """A fake future for one waiting task at a time, which `wake` resumes on the spot; reusable."""

    __slots__ = ("_asyncio_future_blocking", "_cancelled", "_context", "_loop", "_resume")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """No task waits."""
        self._asyncio_future_blocking = False
        self._loop = loop
        self._resume: Callable[[DirectWakeup], object] | None = None
        self._context: Context | None = None
        self._cancelled: asyncio.CancelledError | None = None

    def __await__(self) -> Generator[DirectWakeup, None, None]:
        self._cancelled = None
        self._asyncio_future_blocking = True
        yield self

    @property
    def has_waiter(self) -> bool:
        """Whether a task waits for this."""
        return self._resume is not None

    @property
    def is_cancelled(self) -> bool:
        """Whether the waiting task was cancelled and has not resumed yet."""
        return self._cancelled is not None

    @property
    def task(self) -> Any:
        """The waiting task, if any."""
        return getattr(self._resume, "__self__", None)

    def wake(self) -> bool:
        """Run the waiting task until it waits again or ends. Call it outside of any task. False when no task waits."""
        resume, context = self._resume, self._context
        if resume is None or context is None:
            return False
        self._resume = self._context = None
        context.run(resume, self)
        return True

    # --- the future protocol, called by the task

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the waiting task."""
        return self._loop

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context) -> None:
        """Take the task's next step, and the context to run it in."""
        self._resume, self._context = callback, context

    def cancel(self, msg: object = None) -> bool:
        """Cancel the wait: the task resumes with `CancelledError` in the loop's next turn, as with a real future."""
        resume, context = self._resume, self._context
        if resume is None:
            return False
        self._resume = self._context = None
        self._cancelled = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        self._loop.call_soon(resume, self, context=context)
        return True

    def result(self) -> None:
        """Raise `CancelledError` if the wait was cancelled."""
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None:
            raise cancelled


class Wakeup:
    """Wakes any number of tasks that wait for a change of some state, as a condition variable does."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        """No task waits."""
        self._waiting: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        """Resume all waiting tasks in the loop's next turn. Tasks that wait afterwards wait for the next call."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until `wake` is called, or for so many seconds."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            if seconds is None:
                await future
            else:
                await asyncio.wait((future,), timeout=seconds)
        finally:
            if future in self._waiting:
                self._waiting.remove(future)
