"""How many slots Python looks at while a dict or a set is made of keys with given hashes: its table, with hashes only.

A key goes to the slot that the low bits of its hash say. Where that is taken, the next slot is 5 times this one, plus 1, plus what is left of the hash as it is
shifted to the right by 5 bits at a time (CPython's Objects/dictobject.c). With small hashes nothing is left soon, and all keys walk around on one circle.
A set looks at nine more slots behind each of these, unless the table ends before, and then goes on in the same way (Objects/setobject.c).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .meter import Meter

_WORD: Final = (1 << 64) - 1
_LEAST: Final = 8
_NEIGHBOURS: Final = 9
"""How many slots a set looks at behind each of those that it would look at as a dict does."""
_MANY: Final = 50_000
"""A set of more keys gets a table for twice as many, one of fewer a table for four times as many."""
_AT_A_STEP: Final = 7
"""One less than the probes that are charged as one step: a power of two. One takes a tenth of a microsecond."""


class DictTable:
    """The table of a dict: two thirds full at most, and moved, in the order in which keys came, before there is one more."""

    def __init__(self, meter: Meter) -> None:
        """It is empty. Probes are charged to the meter before they are taken."""
        self._meter = meter
        self._slots: list[int | None] = [None] * _LEAST
        self._order: list[int] = []

    @property
    def size(self) -> int:
        """How many slots there are."""
        return len(self._slots)

    def add(self, hashed: int, *, known: bool = False) -> int:
        """Put a key of that hash in, and tell how many taken slots were looked at.

        `known` says that keys of this kind with one hash are one key, which may be there. Others have to be new ones.
        """
        # A token is a hash as the machine has it, and for a key of which others may share the hash one bit more: such keys are never the same.
        token = hashed & _WORD if known else hashed & _WORD | _WORD + 1
        at, probes = self._find(token)
        if self._slots[at] is not None:
            return probes
        if len(self._order) >= len(self._slots) * 2 // 3:
            probes += self._grow()
            at, more = self._find(token)
            probes += more
        self._slots[at] = token
        self._order.append(token)
        return probes

    def _find(self, token: int) -> tuple[int, int]:
        """Where it is or belongs, and how many others were on the way."""
        slots = self._slots
        mask = len(slots) - 1
        rest = token & _WORD
        at = rest & mask
        probes = 0
        while (other := slots[at]) is not None and not other == token <= _WORD:
            if not probes & _AT_A_STEP:
                self._meter.spend(1)
            probes += 1
            rest >>= 5
            at = (at * 5 + rest + 1) & mask
        return at, probes

    def _grow(self) -> int:
        size = _LEAST
        while size < len(self._order) * 3:
            size *= 2
        self._meter.spend(len(self._order) + size // 64)
        self._slots = [None] * size
        found = 0
        for token in self._order:
            at, probes = self._find(token)
            self._slots[at] = token
            found += probes
        return found


class SetTable(DictTable):
    """The table of a set: three fifths full at most, and moved, in the order of its slots, when there are as many."""

    def __init__(self, meter: Meter) -> None:
        """It is empty. Probes are charged to the meter before they are taken."""
        super().__init__(meter)
        self._count = 0

    def add(self, hashed: int, *, known: bool = False) -> int:
        """Put a key of that hash in, and tell how many taken slots were looked at."""
        token = hashed & _WORD if known else hashed & _WORD | _WORD + 1
        at, probes = self._find(token)
        if self._slots[at] is not None:
            return probes
        self._slots[at] = token
        self._count += 1
        if self._count * 5 >= (len(self._slots) - 1) * 3:
            probes += self._grow()
        return probes

    def _find(self, token: int) -> tuple[int, int]:
        slots = self._slots
        mask = len(slots) - 1
        rest = token & _WORD
        at = rest & mask
        probes = 0
        while True:
            last = at + _NEIGHBOURS if at + _NEIGHBOURS <= mask else at
            self._meter.spend(1)
            for place in range(at, last + 1):
                other = slots[place]
                if other is None or other == token <= _WORD:
                    return place, probes
                probes += 1
            rest >>= 5
            at = (at * 5 + rest + 1) & mask

    def _grow(self) -> int:
        least = self._count * (2 if self._count > _MANY else 4)
        size = _LEAST
        while size <= least:
            size *= 2
        before = self._slots
        self._slots = [None] * size
        self._meter.spend(self._count + size // 64)
        found = 0
        for token in before:
            if token is not None:
                at, probes = self._find(token)
                self._slots[at] = token
                found += probes
        return found
