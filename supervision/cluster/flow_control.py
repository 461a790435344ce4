"""Long calls between processes that send each other events in the meantime: replying from a task, and credit for the events.

The call is an ordinary call, within a node or between two. It ends once: by the reply, by the caller's leaving, or by the death of either process; events that come
later are dropped. `answer_in_task` replies from a task that is cancelled when the caller leaves. `Credit` and `Receipts` bound the events in flight: the sender
spends credit, and the receiver reports from time to time how much it has taken, so neither waits for each single event.
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
    """The task that was to reply to a call was cancelled."""


def answer_in_task(
    caller: Caller[Any], work: Coroutine[Any, Any, Any], context: Context | None = None
) -> asyncio.Task[Any]:
    """Reply to `caller` with the result of `work`, which runs in a task with the `context` of the called process (by default the current one).

    An exception is a reply as well. The task is cancelled when the caller leaves. When it is cancelled otherwise, the caller gets `CalleeEnded`, unless the called
    process is about to end, which the caller learns anyway.
    """
    callee = current.get()

    def settle(task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            if callee is None or not callee.life:
                caller.fail(CalleeEnded("the task that was to reply has ended"))
        elif (error := task.exception()) is not None:
            caller.fail(error)
        else:
            caller.reply(task.result())

    task = asyncio.get_running_loop().create_task(work, context=context)
    task.add_done_callback(settle)
    caller.on_over(task.cancel)
    return task


class Credit:
    """The sender's side: how much more may be sent before the receiver has taken something.

    One thread may spend while another earns: each writes its own counters.
    """

    __slots__ = ("_ended", "_most", "_most_size", "_sent", "_sent_size", "_taken", "_taken_size", "_waiting")

    def __init__(self, most: int, most_size: int | None = None) -> None:
        """At most so many events, and so many bytes, are in flight; an event larger than that goes alone."""
        self._most = most
        self._most_size = most_size
        self._sent = self._sent_size = self._taken = self._taken_size = 0
        self._ended = False
        self._waiting: asyncio.Future[None] | None = None

    @property
    def events(self) -> int:
        """Events in flight."""
        return self._sent - self._taken

    @property
    def size(self) -> int:
        """Bytes in flight."""
        return self._sent_size - self._taken_size

    def has_room(self, size: int = 0) -> bool:
        """Whether an event of that size may be sent now. Always true after `end`."""
        if self._ended or not self.events:
            return True
        return self.events < self._most and (self._most_size is None or self.size + size <= self._most_size)

    def spend(self, size: int = 0) -> None:
        """Count an event as sent."""
        self._sent += 1
        self._sent_size += size

    async def wait(self, size: int = 0) -> None:
        """Wait for room, then spend. One task at a time may wait."""
        while not self.has_room(size):
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        self.spend(size)

    def earn(self, events: int, size: int = 0) -> None:
        """Count events that the receiver has taken."""
        self._taken += events
        self._taken_size += size
        self._wake()

    def end(self) -> None:
        """The receiver takes nothing any more: nothing waits for it."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Receipts:
    """The receiver's side: what it has taken and not reported yet."""

    __slots__ = ("_events", "_often", "_often_size", "_size")

    def __init__(self, often: int, often_size: int | None = None) -> None:
        """Report after so many events or bytes: fewer than the sender's credit, or both sides would wait."""
        self._often = often
        self._often_size = often_size
        self._events = self._size = 0

    def take(self, size: int = 0) -> bool:
        """Count a taken event. Returns whether it is time to report."""
        self._events += 1
        self._size += size
        return self._events >= self._often or (self._often_size is not None and self._size >= self._often_size)

    def drain(self) -> tuple[int, int]:
        """The events and bytes to report now; the counters start again at zero."""
        taken = self._events, self._size
        self._events = self._size = 0
        return taken
