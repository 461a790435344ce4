"""Fair queues for a shared limit, whose owners take turns: used for threads, pools of processes and upstream servers.

A principal with 1,000 waiting calls delays another's first call by one call, and not by 1,000. When the queue is full, the newest item of the
owner with most waiting items is displaced by an owner with fewer.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Hashable, Iterator

T = TypeVar("T")
_NO_OWNER: Final = object()


class FairQueue(Generic[T]):
    """A queue in which owners take turns. Items are hashable, and an item can be in it once."""

    __slots__ = ("_owners", "_waiting")

    def __init__(self) -> None:
        """Make an empty queue."""
        self._waiting: dict[Hashable, dict[T, None]] = {}
        """By owner, in the order of their turns; owners without items are not kept."""
        self._owners: dict[T, Hashable] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def __contains__(self, item: T) -> bool:
        return item in self._owners

    def __iter__(self) -> Iterator[T]:
        """All items, in no particular order."""
        return iter(tuple(self._owners))

    def count(self, owner: Hashable) -> int:
        """The number of an owner's items."""
        return len(self._waiting.get(owner, ()))

    def add(self, owner: Hashable, item: T) -> None:
        """Add an item behind the owner's others."""
        self._waiting.setdefault(owner, {})[item] = None
        self._owners[item] = owner

    def add_first(self, owner: Hashable, item: T) -> None:
        """Put an item back that was taken before, as the next one."""
        others = self._waiting.pop(owner, {})
        self._waiting = {owner: {item: None, **others}, **self._waiting}
        self._owners[item] = owner

    def take(self, may: Callable[[T], bool] | None = None) -> T | None:
        """Take the first item of the next owner for which `may` is true; None when there is none.

        Only the first item of each owner is examined: `may` has to be the same for all items of an owner.
        """
        for owner, waiting in self._waiting.items():
            item = next(iter(waiting))
            if may is None or may(item):
                self._remove(owner, item)
                if waiting:  # behind the other owners
                    self._waiting[owner] = self._waiting.pop(owner)
                return item
        return None

    def remove(self, item: T) -> bool:
        """Remove an item; False when it is not in the queue."""
        owner = self._owners.get(item, _NO_OWNER)
        if owner is _NO_OWNER:
            return False
        self._remove(owner, item)
        return True

    def _remove(self, owner: Hashable, item: T) -> None:
        waiting = self._waiting[owner]
        del waiting[item], self._owners[item]
        if not waiting:
            del self._waiting[owner]

    def displace(self, owner: Hashable, more: int = 1) -> T | None:
        """Remove and return the newest item of the owner with most items, if that has more than `owner` would have with `more`; else None."""
        greedy = max(self._waiting.values(), key=len, default=None)
        if greedy is None or len(greedy) <= self.count(owner) + more:
            return None
        last = next(reversed(greedy))
        self.remove(last)
        return last


class QueueFull(Exception):
    """The queue is full."""


class QueuedTurn(NamedTuple):
    """A waiting task's entry in the queue: its owner, and the future it waits for."""

    owner: Hashable
    begins: asyncio.Future[None]


class FairSemaphore:
    """A semaphore for tasks of one loop, fair between owners: waiting owners take turns, and an owner holds at most half of the permits that the others leave (one in any case)."""

    def __init__(self, most: int, queue: int) -> None:
        """At most `most` tasks run at a time, and at most `queue` wait."""
        self._most = most
        self._queue = queue
        self._taken: dict[Hashable, int] = {}
        self._total = 0
        self._waiting: FairQueue[QueuedTurn] = FairQueue()

    @asynccontextmanager
    async def turn(self, owner: Hashable) -> AsyncGenerator[None]:
        """Hold a permit for the block. Raises `QueueFull` when the queue is full, or when an owner with fewer items displaces this one."""
        await self._enter(owner)
        try:
            yield
        finally:
            self._leave(owner)

    async def _enter(self, owner: Hashable) -> None:
        if self._may(owner):  # every runnable waiter was started already, so this one cannot jump the queue
            self._take(owner)
            return
        if len(self._waiting) >= self._queue:
            displaced = self._waiting.displace(owner)
            if displaced is None:
                raise QueueFull
            if not displaced.begins.done():
                displaced.begins.set_exception(QueueFull())
        mine = QueuedTurn(owner, asyncio.get_running_loop().create_future())
        self._waiting.add(owner, mine)
        try:
            await mine.begins
        except asyncio.CancelledError:
            if mine.begins.done() and not mine.begins.cancelled() and mine.begins.exception() is None:
                self._leave(owner)  # the permit was given in the moment of the cancellation
            else:
                self._waiting.remove(mine)
            raise

    def _may(self, owner: Hashable) -> bool:
        own = self._taken.get(owner, 0)
        return self._total < self._most and own < max(1, (self._most - self._total + own) // 2)

    def _take(self, owner: Hashable) -> None:
        self._taken[owner] = self._taken.get(owner, 0) + 1
        self._total += 1

    def _leave(self, owner: Hashable) -> None:
        self._total -= 1
        self._taken[owner] -= 1
        if not self._taken[owner]:
            del self._taken[owner]
        # Check the total first: with all permits taken, `take` would examine each waiting owner in vain.
        while self._total < self._most and (turn := self._waiting.take(lambda turn: self._may(turn.owner))) is not None:
            if not turn.begins.done():
                self._take(turn.owner)
                turn.begins.set_result(None)
