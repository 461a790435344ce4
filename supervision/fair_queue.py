"""What waits for a shared bound, with owners that take turns: pure book-keeping, used for threads, pools of processes and upstream servers.

A principal with 1,000 waiting calls delays another's first call by one call of its own, and not by 1,000. Where the queue is full, the owner with
most waiting makes room for one with less.
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
    """The queue. `T` is anything hashable, and waits once at most."""

    __slots__ = ("_owners", "_waiting")

    def __init__(self) -> None:
        """It is empty."""
        self._waiting: dict[Hashable, dict[T, None]] = {}
        """By owner, in the order in which they come next; owners of nothing are not kept."""
        self._owners: dict[T, Hashable] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def __contains__(self, item: T) -> bool:
        return item in self._owners

    def __iter__(self) -> Iterator[T]:
        """All that wait, in no particular order."""
        return iter(tuple(self._owners))

    def count(self, owner: Hashable) -> int:
        """How many of that owner's wait."""
        return len(self._waiting.get(owner, ()))

    def add(self, owner: Hashable, item: T) -> None:
        """It waits, behind the owner's others."""
        self._waiting.setdefault(owner, {})[item] = None
        self._owners[item] = owner

    def add_first(self, owner: Hashable, item: T) -> None:
        """It was taken before, and is to be the next."""
        others = self._waiting.pop(owner, {})
        self._waiting = {owner: {item: None, **others}, **self._waiting}
        self._owners[item] = owner

    def take(self, may: Callable[[T], bool] | None = None) -> T | None:
        """The next of the owner whose turn it is, and of which it may be taken now; None when there is none.

        Only the first of each owner is looked at: what keeps it from being taken has to hold for all of that owner's.
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
        """It does not wait any more; False when it did not."""
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
        """The latest of the owner with most waiting, which waits no more, if that is more than `owner` would have with `more`; else None."""
        greedy = max(self._waiting.values(), key=len, default=None)
        if greedy is None or len(greedy) <= self.count(owner) + more:
            return None
        last = next(reversed(greedy))
        self.remove(last)
        return last


class QueueFull(Exception):
    """No more may wait."""


class QueuedTurn(NamedTuple):
    """A task's place in a queue: whose it is, and what it waits for."""

    owner: Hashable
    begins: asyncio.Future[None]


class FairSemaphore:
    """So many at a time, for tasks of one loop. One owner has at most half of what the others do not use; owners that wait take turns."""

    def __init__(self, most: int, queue: int) -> None:
        """At most `most` at a time, and `queue` that wait."""
        self._most = most
        self._queue = queue
        self._taken: dict[Hashable, int] = {}
        self._total = 0
        self._waiting: FairQueue[QueuedTurn] = FairQueue()

    @asynccontextmanager
    async def turn(self, owner: Hashable) -> AsyncGenerator[None]:
        """Wait for a turn, and have it. Raises `QueueFull` when no more may wait, or when one with fewer needs the place."""
        await self._enter(owner)
        try:
            yield
        finally:
            self._leave(owner)

    async def _enter(self, owner: Hashable) -> None:
        if self._may(owner):  # every waiting turn that could begin has begun, so this one overtakes none
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
                self._leave(owner)  # it was given in the very moment in which the wait ended
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
        # The total first: with all turns taken, `take` would look at each waiting owner to find that none may begin.
        while self._total < self._most and (turn := self._waiting.take(lambda turn: self._may(turn.owner))) is not None:
            if not turn.begins.done():
                self._take(turn.owner)
                turn.begins.set_result(None)
