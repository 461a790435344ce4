"""How many requests may be under way at one upstream, which wait, and which is next: pure book-keeping.

The principals for which they are made take turns, and where the queue is full the one with most waiting makes room (`FairQueue`); else the newcomer is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from greenroom.supervision.fair_queue import FairQueue

from .errors import UpstreamBusy

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

T = TypeVar("T")

WEIGHT: Final = 0.2
"""How much the latest request counts in the estimate of how long one takes."""


class Entry(NamedTuple, Generic[T]):
    """What became of a request that came: it may go, or waits; `displaced` had to make room for it."""

    granted: bool
    displaced: T | None = None


class FanOut(Generic[T]):
    """The book of one upstream. `T` is a request: anything hashable."""

    __slots__ = ("_seconds", "_since", "_waiting", "is_open", "limit", "name", "queue")

    def __init__(self, name: str, limit: int, queue: int) -> None:
        """At most `limit` under way, and `queue` waiting. It is not open yet: all wait."""
        if limit < 1 or queue < 0:
            raise ValueError(f"an upstream has room for 1 or more, and 0 or more may wait, not {limit!r} and {queue!r}")
        self.name = name
        self.limit = limit
        self.queue = queue
        self.is_open = False
        """Whether any may go at all."""
        self._since: dict[T, float] = {}
        self._waiting: FairQueue[T] = FairQueue()
        self._seconds: float | None = None

    @property
    def under_way(self) -> int:
        """How many are."""
        return len(self._since)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def going(self) -> tuple[T, ...]:
        """Those that are under way."""
        return tuple(self._since)

    def __iter__(self) -> Iterator[T]:
        """Those that wait."""
        return iter(self._waiting)

    def enter(self, who: Hashable, request: T, now: float) -> Entry[T]:
        """A request comes. Raises `UpstreamBusy` when there is no room for it."""
        if self.is_open and len(self._since) < self.limit and not self._waiting:
            self._since[request] = now
            return Entry(granted=True)
        displaced = None
        if len(self._waiting) >= self.queue:
            displaced = self._waiting.displace(who)
            if displaced is None:
                raise self.refusal()
        self._waiting.add(who, request)
        return Entry(granted=False, displaced=displaced)

    def refusal(self) -> UpstreamBusy:
        """What is said to whoever finds no room."""
        text = f"{self.name}: {len(self._since)} requests are under way, and {len(self._waiting)} wait"
        return UpstreamBusy(text, self.retry_after())

    def retry_after(self) -> float | None:
        """In about how many seconds there is room for one more to wait."""
        return None if self._seconds is None else self._seconds / self.limit

    def leave(self, request: T, now: float) -> bool:
        """A request that went has ended; False when it had not gone."""
        began = self._since.pop(request, None)
        if began is None:
            return False
        took = max(0.0, now - began)
        self._seconds = took if self._seconds is None else self._seconds + WEIGHT * (took - self._seconds)
        return True

    def give_up(self, request: T) -> bool:
        """A request does not wait any more; False when it did not."""
        return self._waiting.remove(request)

    def next(self, now: float) -> T | None:
        """The one whose turn it is, which goes; None when none waits, or may."""
        if not self.is_open or len(self._since) >= self.limit:
            return None
        request = self._waiting.take()
        if request is not None:
            self._since[request] = now
        return request
