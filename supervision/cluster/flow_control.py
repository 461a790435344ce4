"""Calls between processes whose parties send each other events meanwhile, with credit.

The call itself is the kernel's, between two nodes as within one: it has one end, which is the answer, the caller's leaving or the death of
either party, and what comes later is dropped. This module adds the two things that a long call needs. `answer_in_task` gives the answer from a task,
which ends when the caller leaves. `Credit` and `Receipts` bound the events that are on their way: the sender spends credit, and
the receiver tells now and then how much it has taken. Neither of them waits for each single event.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from greenroom.supervision.kernel.errors import ActorError
from greenroom.supervision.kernel.process_lookup import current

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextvars import Context

    from greenroom.supervision.behaviours.replies import Caller


class CalleeEnded(ActorError):
    """What was to answer a call has ended without an answer."""


def answer_in_task(
    caller: Caller[Any], work: Coroutine[Any, Any, Any], context: Context | None = None
) -> asyncio.Task[Any]:
    """Answer `caller` with what comes of `work`, in a task of the process whose `context` it is: the calling one, by default.

    Called by the process that was asked. An exception is an answer, too. The task is cancelled when the caller leaves; when it is cancelled
    otherwise, the caller gets `CalleeEnded`, unless the process that was asked is at its end, which is told by itself.
    """
    callee = current.get()

    def settle(task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            if callee is None or not callee.life:
                caller.fail(CalleeEnded("what was to answer this has ended"))
        elif (error := task.exception()) is not None:
            caller.fail(error)
        else:
            caller.reply(task.result())

    task = asyncio.get_running_loop().create_task(work, context=context)
    task.add_done_callback(settle)
    caller.on_over(task.cancel)
    return task


class Credit:
    """The sender's: how much more may be sent before the receiver has taken some of what is on its way.

    Spent by one thread and earned by another: each writes its own counters.
    """

    __slots__ = ("_ended", "_most", "_most_size", "_sent", "_sent_size", "_taken", "_taken_size", "_waiting")

    def __init__(self, most: int, most_size: int | None = None) -> None:
        """So many events may be on their way, and so many bytes; a larger event goes alone."""
        self._most = most
        self._most_size = most_size
        self._sent = self._sent_size = self._taken = self._taken_size = 0
        self._ended = False
        self._waiting: asyncio.Future[None] | None = None

    @property
    def events(self) -> int:
        """How many are on their way."""
        return self._sent - self._taken

    @property
    def size(self) -> int:
        """Their bytes."""
        return self._sent_size - self._taken_size

    def has_room(self, size: int = 0) -> bool:
        """Whether one more of that size may be sent. After the end, anything may."""
        if self._ended or not self.events:
            return True
        return self.events < self._most and (self._most_size is None or self.size + size <= self._most_size)

    def spend(self, size: int = 0) -> None:
        """One more is on its way."""
        self._sent += 1
        self._sent_size += size

    async def wait(self, size: int = 0) -> None:
        """Spend it as soon as there is room. One task at a time waits here."""
        while not self.has_room(size):
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        self.spend(size)

    def earn(self, events: int, size: int = 0) -> None:
        """The receiver has told that it took these."""
        self._taken += events
        self._taken_size += size
        self._wake()

    def end(self) -> None:
        """Nothing is taken any more, so nothing waits for that."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Receipts:
    """The receiver's: what it has taken and not told yet."""

    __slots__ = ("_events", "_often", "_often_size", "_size")

    def __init__(self, often: int, often_size: int | None = None) -> None:
        """It is time to tell after so many events, or so many bytes: fewer than the sender's credit, or both would wait."""
        self._often = often
        self._often_size = often_size
        self._events = self._size = 0

    def take(self, size: int = 0) -> bool:
        """One more was taken. Whether it is time to tell."""
        self._events += 1
        self._size += size
        return self._events >= self._often or (self._often_size is not None and self._size >= self._often_size)

    def told(self) -> tuple[int, int]:
        """What to tell now, events and bytes; it counts from nothing again."""
        taken = self._events, self._size
        self._events = self._size = 0
        return taken
