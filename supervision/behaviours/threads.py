"""A thread pool for blocking functions, with limits that count threads and not callers.

A slot is taken before a call begins and given back when the function has really ended, not when its caller was cancelled or killed: ten stuck calls under a
limit of ten hold all slots, and no eleventh thread starts. A thread cannot be killed. The threads are daemons, so a function that never returns does not keep
the program from exiting; asyncio's and anyio's own pools are joined at exit.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from greenroom.supervision.kernel import forks

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_LIMIT = 40
_IDLE_SECONDS = 10.0


class _ThreadCall:
    """One function call in a thread."""

    __slots__ = ("_done", "_program", "call", "error", "loop", "value")

    def __init__(
        self,
        call: Callable[[], Any],
        loop: asyncio.AbstractEventLoop,
        done: Callable[[_ThreadCall], None],
    ) -> None:
        self.call = call
        self.loop = loop
        self.value: Any = None
        self.error: BaseException | None = None
        self._done = done
        self._program = os.getpid()

    def run(self) -> None:
        """Called in the thread: run the function, and give the result to the loop, if it still runs."""
        try:
            self.value = self.call()
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            self.error = error
        if os.getpid() != self._program:
            forks.exit_child(self.error)
        try:
            self.loop.call_soon_threadsafe(self._done, self)
        except RuntimeError:
            return  # the loop is closed, so no caller waits


class _ThreadPool:
    """The threads of the OS process; idle ones are kept for a while, since a new thread costs as much as many calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_PoolThread] = []
        self._count = 0

    def run_call(self, job: _ThreadCall) -> None:
        """Run the call in an idle or a new thread."""
        with self._lock:
            thread = self._idle.pop() if self._idle else None
            if thread is None:
                self._count += 1
                thread = _PoolThread(self, self._count)
                is_new = True
            else:
                is_new = False
        thread.take(job)
        if is_new:
            thread.start()

    def add_idle(self, thread: _PoolThread) -> None:
        """Take back an idle thread."""
        with self._lock:
            self._idle.append(thread)

    def reset_after_fork(self) -> None:
        """Called in a forked child, which has none of these threads."""
        self._lock = threading.Lock()
        self._idle.clear()

    def remove_idle(self, thread: _PoolThread) -> bool:
        """Remove a thread that was idle for long enough. False when it was just given a call."""
        with self._lock:
            if thread not in self._idle:
                return False
            self._idle.remove(thread)
            return True


class _PoolThread(threading.Thread):
    """One thread of the pool. The code that takes it off the idle list gives it a call."""

    def __init__(self, pool: _ThreadPool, number: int) -> None:
        super().__init__(name=f"greenroom-thread-{number}", daemon=True)
        self._pool = pool
        # SimpleQueue is in C; a Condition costs several times as much, with the GIL held.
        self._jobs: SimpleQueue[_ThreadCall] = SimpleQueue()
        self._current: _ThreadCall | None = None

    def take(self, job: _ThreadCall) -> None:
        """Run this call next."""
        self._current = job
        self._jobs.put(job)

    @property
    def is_busy(self) -> bool:
        """Whether it runs a call, or was just given one."""
        return self._current is not None

    def is_working_for(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it runs a call of this loop, or was just given one."""
        job = self._current
        return job is not None and job.loop is loop

    def run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_SECONDS)
            except Empty:
                if self._pool.remove_idle(self):
                    return
                job = self._jobs.get()  # a call was assigned just now
            job.run()
            self._current = job = None  # type: ignore[assignment]  # an idle thread keeps nothing alive
            self._pool.add_idle(self)


_pool = _ThreadPool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.reset_after_fork)


def is_idle_pool_thread(thread: threading.Thread) -> bool:
    """Whether it is an idle thread of the pool, which leak checks need not wait for."""
    return isinstance(thread, _PoolThread) and thread in _pool._idle


def busy_threads() -> int:
    """How many threads of the pool run a function. Any thread may ask."""
    return sum(isinstance(each, _PoolThread) and each.is_busy for each in threading.enumerate())


def is_working_for(thread: threading.Thread, loop: asyncio.AbstractEventLoop) -> bool:
    """Whether it is a thread of the pool that runs a call of this loop; the thread may be older than the loop."""
    return isinstance(thread, _PoolThread) and thread.is_working_for(loop)


async def in_thread(ended: Callable[[], object], function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `function` in a thread. `ended` is called in the loop when it has really ended, also when its caller stopped waiting."""
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    answer: asyncio.Future[R] = loop.create_future()

    def done(job: _ThreadCall) -> None:
        ended()
        if answer.done():
            return
        if job.error is None:
            answer.set_result(job.value)
        elif isinstance(job.error, StopIteration):
            answer.set_exception(RuntimeError(f"the function raised {job.error!r}"))
        else:
            answer.set_exception(job.error)

    _pool.run_call(_ThreadCall(lambda: context.run(function, *args, **kwargs), loop, done))
    return await answer


class Threads:
    """A bulkhead: at most `limit` calls at a time, waiting in order for their turn."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        """With a bulkhead for each kind of work, slow work of one kind cannot starve another."""
        if limit < 1:
            message = f"limit must be at least 1 thread, not {limit!r}"
            raise ValueError(message)
        self.limit = limit
        self._running = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def running(self) -> int:
        """How many slots are taken, those of abandoned calls included."""
        return self._running

    @property
    def waiting(self) -> int:
        """How many calls wait for a slot."""
        return sum(not future.done() for future in self._queue)

    async def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` in a thread. After a cancellation the thread goes on, and keeps its slot."""
        await self._acquire(asyncio.get_running_loop())
        return await in_thread(self._release, function, *args, **kwargs)

    async def _acquire(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._running < self.limit and not self._queue:
            self._running += 1
            return
        turn = loop.create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # the slot was given in the moment of the cancellation: pass it on
            raise

    def _release(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)  # the slot goes from one to the next
                return
        self._running -= 1
