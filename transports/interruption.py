"""A wait that somebody else may end, without being taken for a cancellation of the whole task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Interruption:
    """``with Interruption() as wait: await …``; whoever has `wait` may `interrupt()` it, and the block ends there.

    It is told apart from a real cancellation, which goes on, as `asyncio.timeout` does it.
    """

    __slots__ = ("_before", "_task", "fired")

    def __init__(self) -> None:
        """Nothing can be interrupted before the block is entered."""
        self.fired = False
        self._task: asyncio.Task[object] | None = None
        self._before = 0

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "it is a task's wait that is interrupted"
        self._task, self._before = task, task.cancelling()
        return self

    def interrupt(self) -> None:
        """End the block, unless it is over."""
        if self._task is not None and not self.fired:
            self.fired = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        task, self._task = self._task, None
        if not self.fired or task is None:
            return False
        return task.uncancel() <= self._before and kind is asyncio.CancelledError
