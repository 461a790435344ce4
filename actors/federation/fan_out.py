"""How many requests may be under way at one upstream, who waits, and whose turn is next: pure book-keeping.

Who waits is served in turn by who asked, so that somebody with a thousand requests does not keep out somebody with one. What may wait is
bounded too. When there is no room, whoever has most waiting makes room for whoever has less; else the newcomer is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

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

    __slots__ = ("_asked_by", "_seconds", "_since", "_waiting", "is_open", "limit", "name", "queue")

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
        self._waiting: dict[Hashable, dict[T, None]] = {}
        self._asked_by: dict[T, Hashable] = {}
        self._seconds: float | None = None

    @property
    def under_way(self) -> int:
        """How many are."""
        return len(self._since)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._asked_by)

    @property
    def going(self) -> tuple[T, ...]:
        """Those that are under way."""
        return tuple(self._since)

    def __iter__(self) -> Iterator[T]:
        """Those who wait, in no particular order."""
        return iter(tuple(self._asked_by))

    def enter(self, who: Hashable, request: T, now: float) -> Entry[T]:
        """A request comes. Raises `UpstreamBusy` when there is no room for it."""
        if self.is_open and len(self._since) < self.limit and not self._asked_by:
            self._since[request] = now
            return Entry(granted=True)
        displaced = None
        if len(self._asked_by) >= self.queue:
            displaced = self._displaced_by(who)
        self._waiting.setdefault(who, {})[request] = None
        self._asked_by[request] = who
        return Entry(granted=False, displaced=displaced)

    def _displaced_by(self, who: Hashable) -> T:
        """The latest of whoever has most waiting, if that is more than the newcomer would have."""
        mine = len(self._waiting.get(who, ()))
        greedy = max(self._waiting, key=lambda each: len(self._waiting[each]), default=None)
        if greedy is None or len(self._waiting[greedy]) <= mine + 1:
            raise self.refusal()
        last = next(reversed(self._waiting[greedy]))
        self.give_up(last)
        return last

    def refusal(self) -> UpstreamBusy:
        """What is said to whoever finds no room."""
        text = f"{self.name}: {len(self._since)} requests are under way, and {len(self._asked_by)} wait"
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
        who = self._asked_by.pop(request, _NOBODY)
        if who is _NOBODY:
            return False
        waiting = self._waiting[who]
        del waiting[request]
        if not waiting:
            del self._waiting[who]
        return True

    def next(self, now: float) -> T | None:
        """The one whose turn it is, which goes; None when nobody waits, or may."""
        if not self.is_open or len(self._since) >= self.limit or not self._waiting:
            return None
        who = next(iter(self._waiting))
        waiting = self._waiting.pop(who)
        request = next(iter(waiting))
        del waiting[request]
        if waiting:
            self._waiting[who] = waiting  # behind the others
        del self._asked_by[request]
        self._since[request] = now
        return request


_NOBODY: Final = object()
