"""How many bytes of request bodies are read at once, over all connections: a budget that no caller can use up alone.

One caller may hold as much as is free. So one alone gets half of the budget, two get a third each, and a newcomer always finds as much left as
any of them has. A fixed share would either be small for one caller or leave nothing for others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from .sources import host_in, source_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from .seam import Peer


def _caller(peer: Peer) -> Hashable:
    """The principal; without one the address, a proxy's too: what it brings has half of the budget."""
    return ("address", source_of(host_in(peer.address))) if peer.principal is None else ("principal", peer.principal)


class BodyBudget:
    """One endpoint's."""

    def __init__(self, size: int) -> None:
        """So many bytes."""
        self.size = size
        self.used = 0
        self.held: dict[Hashable, int] = {}
        """How many bytes of it each caller has."""

    def body(self, peer: Peer) -> BodyShare:
        """For one body of a caller's. Used as a context manager, it gives back what was taken, once."""
        return BodyShare(self, _caller(peer))


class BodyShare:
    """What one body has of a budget."""

    __slots__ = ("_budget", "_caller", "size")

    def __init__(self, budget: BodyBudget, caller: Hashable) -> None:
        """Nothing yet."""
        self._budget = budget
        self._caller = caller
        self.size = 0

    def take(self, size: int) -> bool:
        """So many bytes more are in memory. False if they must not be; then nothing was taken."""
        if not size:
            return True  # else a caller would be remembered who holds nothing
        budget = self._budget
        held = budget.held.get(self._caller, 0) + size
        if held > budget.size - budget.used - size:
            return False
        budget.held[self._caller] = held
        budget.used += size
        self.size += size
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        budget, size = self._budget, self.size
        if size:
            self.size = 0
            budget.used -= size
            budget.held[self._caller] -= size
            if not budget.held[self._caller]:
                del budget.held[self._caller]
