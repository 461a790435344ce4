"""Fair shares of a table that only grows: an owner that adds very many entries leaves places for those that come later."""

from __future__ import annotations

from typing import Final

_OWNERS: Final = 32
"""The owners for which places are kept; all further ones are one owner without."""
_LATER: Final = ""


class FairShares:
    """Says who may still add an entry to a table of `most`.

    Half of the places are kept for the first owners, as many for each. Of the other half, an owner gets at most half of what the others have not used: it alone
    gets a quarter of the table. Threads that ask at the same moment may exceed a bound by their number.
    """

    __slots__ = ("_counts", "_kept", "_rest", "_taken")

    def __init__(self, most: int) -> None:
        """`most` entries in all."""
        self._kept = most // (2 * _OWNERS)
        """The places of each owner."""
        self._rest = most // 2
        self._taken = 0
        self._counts = {_LATER: self._kept}

    def take(self, owner: str) -> bool:
        """Take a place for one more entry of this owner. False where it has its share."""
        counts = self._counts
        if owner not in counts and len(counts) > _OWNERS:
            owner = _LATER
        count = counts.get(owner, 0)
        beyond = count - self._kept
        if beyond >= 0:
            if beyond >= (self._rest - self._taken + beyond) // 2:
                return False
            self._taken += 1
        counts[owner] = count + 1
        return True
