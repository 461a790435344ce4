"""Where tasks wait until something else wakes them: `Wakeup` in the loop's next turn, `Gate` at once.

A future makes its task go on in the next turn of the loop, which is another round of the loop's books and another look at all
descriptors. Code that the loop itself calls, and not inside of any task (the node's pump, a descriptor that can be read), may have
a task go on here and now. What asyncio asks of things that a task may wait for is all that this uses: `_asyncio_future_blocking`,
`get_loop`, `add_done_callback`, `cancel`, `result`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextvars import Context


class Gate:
    """For one task at a time; closed again as soon as that has passed."""

    __slots__ = ("_asyncio_future_blocking", "_cancelled", "_context", "_loop", "_resume")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """No task waits."""
        self._asyncio_future_blocking = False
        self._loop = loop
        self._resume: Callable[[Gate], object] | None = None
        self._context: Context | None = None
        self._cancelled: asyncio.CancelledError | None = None

    def __await__(self) -> Generator[Gate, None, None]:
        self._cancelled = None
        self._asyncio_future_blocking = True
        yield self

    @property
    def taken(self) -> bool:
        """Whether a task waits here."""
        return self._resume is not None

    @property
    def cancelled(self) -> bool:
        """Whether the task that waited here was cancelled, and has not gone on yet."""
        return self._cancelled is not None

    @property
    def task(self) -> Any:
        """The task that waits here, if any."""
        return getattr(self._resume, "__self__", None)

    def open(self) -> bool:
        """Have the task go on until it waits again, or ends; only from outside of any task. False when no task waits."""
        resume, context = self._resume, self._context
        if resume is None or context is None:
            return False
        self._resume = self._context = None
        context.run(resume, self)
        return True

    # --- for the task

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the task that waits."""
        return self._loop

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context) -> None:
        """What makes the task go on, and where."""
        self._resume, self._context = callback, context

    def cancel(self, msg: object = None) -> bool:
        """The task is cancelled: it goes on in the loop's next turn, as always."""
        resume, context = self._resume, self._context
        if resume is None:
            return False
        self._resume = self._context = None
        self._cancelled = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        self._loop.call_soon(resume, self, context=context)
        return True

    def result(self) -> None:
        """What the task goes on with."""
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None:
            raise cancelled


class Wakeup:
    """For any number of tasks that look at something else, and wait where it is not yet as they want it."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        """No task waits."""
        self._waiting: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        """All that wait now go on in the loop's next turn. A task that comes later waits for the next time."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until that, or until the time is over."""
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
