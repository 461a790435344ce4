"""Bounded memory of what happened: counts over the last minutes, how long calls took lately, and logs in which each owner has a share.

Nothing here reads a clock: each method takes the time, in seconds, which may not go back by more than the length of a window.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from .view_rows import Curve, Spread

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

T = TypeVar("T")

STEP: Final = 5.0
"""The seconds of one point of a curve."""
POINTS: Final = 120
"""The points of a curve: ten minutes."""
MINUTE: Final = 60.0


class CountWindow:
    """Counts in steps of time, over the last ones."""

    __slots__ = ("_counts", "_first", "_last", "step")

    def __init__(self, step: float = STEP, points: int = POINTS) -> None:
        """`points` steps of `step` seconds are kept."""
        self.step = step
        self._counts = array("d", bytes(8 * points))
        self._last: int | None = None
        self._first = 0
        """The number of the first step: before it nothing was counted at all."""

    def add(self, now: float, amount: float = 1.0) -> None:
        """Count at this moment. A moment before the window counts as its newest."""
        place = self._advance(now)
        self._counts[place % len(self._counts)] += amount

    def raise_to(self, now: float, value: float) -> None:
        """Keep the highest value of this step."""
        place = self._advance(now) % len(self._counts)
        self._counts[place] = max(self._counts[place], value)

    def _advance(self, now: float) -> int:
        number, last, counts = int(now // self.step), self._last, self._counts
        if last is None:
            self._first = self._last = number
        elif number > last:
            for each in range(max(last + 1, number - len(counts) + 1), number + 1):
                counts[each % len(counts)] = 0.0
            self._last = number
        elif number <= last - len(counts):
            return last
        return number

    def values(self, now: float) -> list[float | None]:
        """The counts of all steps that are over, the newest last; None for those before the first count."""
        if self._last is None:
            return [None] * (len(self._counts) - 1)
        self._advance(now)
        newest = int(now // self.step)
        begin = newest - len(self._counts) + 1
        return [None if each < self._first else self._counts[each % len(self._counts)] for each in range(begin, newest)]

    def per_second(self, now: float, seconds: float = MINUTE) -> float:
        """The mean rate of the last `seconds`, or of the time since the first count where that is shorter."""
        if self._last is None:
            return 0.0
        self._advance(now)
        newest = int(now // self.step)
        steps = min(int(seconds // self.step), len(self._counts) - 1, newest - self._first)
        total = sum(self._counts[(newest - each) % len(self._counts)] for each in range(steps + 1))
        return total / max(1.0, steps * self.step + now % self.step)  # one call in the first moment is no high rate

    def highest(self, now: float, seconds: float = MINUTE) -> float:
        """The highest value of a step in the last `seconds`."""
        if self._last is None:
            return 0.0
        self._advance(now)
        newest = int(now // self.step)
        steps = min(int(seconds // self.step), len(self._counts) - 1)
        return max(self._counts[(newest - each) % len(self._counts)] for each in range(steps + 1))

    def curve(self, name: str, unit: str, now: float, *, is_rate: bool = False) -> Curve:
        """The window as a line; with `is_rate` for each second."""
        scale = self.step if is_rate else 1.0
        values = [None if each is None else round(each / scale, 6) for each in self.values(now)]
        return Curve(name=name, unit=unit, step=self.step, ends_at=now // self.step * self.step, values=values)


_BOUNDS: Final = tuple(0.0001 * 2 ** (number / 3) for number in range(66))
"""The upper ends of the buckets of durations: from 0.1 ms to 5 minutes, each 26 % longer than the one before."""
_PARTS: Final = 4
_PART: Final = MINUTE / _PARTS


class SpreadWindow:
    """How long calls took in the last minute, in buckets: its memory and its cost are the same for any number of calls."""

    __slots__ = ("_longest", "_newest", "_parts")

    def __init__(self) -> None:
        self._parts: dict[int, array[int]] = {}
        """The buckets of each quarter of a minute, by its number."""
        self._longest: dict[int, float] = {}
        self._newest = 0

    def add(self, now: float, seconds: float) -> None:
        """Note one call."""
        number = max(int(now // _PART), self._newest)
        part = self._parts.get(number)
        if part is None:
            part = self._parts[number] = array("L", bytes(array("L").itemsize * (len(_BOUNDS) + 1)))
            self._longest[number] = 0.0
            self._newest = number
            for old in [each for each in self._parts if each <= number - _PARTS]:
                del self._parts[old], self._longest[old]
        part[bisect_left(_BOUNDS, seconds)] += 1
        self._longest[number] = max(self._longest[number], seconds)

    def spread(self, now: float) -> Spread:
        """The percentiles of the last minute."""
        since = int(now // _PART) - _PARTS
        numbers = [each for each in self._parts if each > since]
        counts = [sum(column) for column in zip(*(self._parts[each] for each in numbers), strict=True)]
        count = sum(counts)
        if not count:
            return Spread()
        longest = max(self._longest[each] for each in numbers)
        ends: list[float] = []
        for part in (0.5, 0.95, 0.99):
            left = count * part
            place = 0
            while left > counts[place]:
                left -= counts[place]
                place += 1
            ends.append(min(longest, _BOUNDS[place] if place < len(_BOUNDS) else longest))
        return Spread(count=count, p50=ends[0], p95=ends[1], p99=ends[2], longest=longest)


class SharedLog(Generic[T]):
    """The newest entries of many owners. One that adds very many loses its own oldest, and not those of others."""

    __slots__ = ("_entries", "_most", "_number", "_share", "_size", "dropped")

    def __init__(self, most: int, share: int) -> None:
        """`most` entries in all, and `share` of one owner."""
        self._most = most
        self._share = share
        self._entries: OrderedDict[Hashable, deque[tuple[int, T]]] = OrderedDict()
        """By owner, the one that was silent for longest first."""
        self._size = 0
        self._number = 0
        self.dropped = 0

    def __len__(self) -> int:
        return self._size

    def add(self, owner: Hashable, entry: T) -> int:
        """Add an entry; returns its number."""
        self._number += 1
        own = self._entries.get(owner)
        if own is None:
            own = self._entries[owner] = deque()
        else:
            self._entries.move_to_end(owner)
        own.append((self._number, entry))
        if len(own) > self._share:
            own.popleft()
            self.dropped += 1
            return self._number
        self._size += 1
        if self._size > self._most:
            silent, oldest = next(iter(self._entries.items()))
            oldest.popleft()
            self._size -= 1
            self.dropped += 1
            if not oldest:
                del self._entries[silent]
        return self._number

    def __iter__(self) -> Iterator[T]:
        """All entries, the newest first."""
        return iter([entry for _, entry in sorted(self._numbered(), key=lambda each: -each[0])])

    def of(self, owner: Hashable) -> list[T]:
        """The entries of one owner, the newest first."""
        return [entry for _, entry in reversed(self._entries.get(owner, ()))]

    def _numbered(self) -> list[tuple[int, T]]:
        return [each for own in self._entries.values() for each in own]
