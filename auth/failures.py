"""Who has failed too often of late, in bounded memory. A pure book; the gate keeps two, by source and by whom it claims to be."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable

MOST: Final = 10_000


class _Count(NamedTuple):
    failures: float
    at: float


class Failures:
    """A bucket for each source that leaks: `allowed` at once, and one more after every `seconds / allowed`."""

    def __init__(self, allowed: int = 20, seconds: float = 60.0, most: int = MOST) -> None:
        """Of more than `most` sources, the one that failed longest ago is forgotten."""
        self.allowed = allowed
        self.seconds = seconds
        self._most = most
        self._counts: OrderedDict[Hashable, _Count] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def wait(self, source: Hashable, now: float) -> float:
        """For how many seconds nothing of it is looked at; 0 when it may try."""
        left = self._left(source, now)
        return 0.0 if left < self.allowed else (left - self.allowed + 1) * self.seconds / self.allowed

    def failed(self, source: Hashable, now: float, weight: float = 1.0) -> None:
        """It has failed once more, which counts for so much."""
        self._counts[source] = _Count(self._left(source, now) + weight, now)
        self._counts.move_to_end(source)
        while len(self._counts) > self._most:
            self._counts.popitem(last=False)

    def _left(self, source: Hashable, now: float) -> float:
        count = self._counts.get(source)
        if count is None:
            return 0.0
        left = max(0.0, count.failures - (now - count.at) * self.allowed / self.seconds)
        if not left:
            del self._counts[source]
        return left
