"""Requests of a guest that have no answer yet, by the numbers they are asked under."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.supervision.cluster.thespian_door import Address

    from .messages import Request


class Waiting(NamedTuple):
    """One, whose it is, and until when."""

    request: Request
    sender: Address
    until: float


class Pending:
    """All of one guest but its `Connect`. Whatever leaves is answered by who has taken it out, and by nobody else."""

    def __init__(self) -> None:
        """None."""
        self._all: dict[int, Waiting] = {}
        self._unsent: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._all.values())

    def __getitem__(self, id: int) -> Waiting:
        return self._all[id]

    def add(self, id: int, one: Waiting, *, sent: bool) -> None:
        """One more; what is not sent waits for a link as well."""
        self._all[id] = one
        if not sent:
            self._unsent[id] = None

    def pop(self, id: int) -> Waiting | None:
        """Take it out, if it is there."""
        self._unsent.pop(id, None)
        return self._all.pop(id, None)

    def to_send(self) -> list[int]:
        """What waited for a link, which there is now."""
        unsent, self._unsent = list(self._unsent), {}
        return unsent

    def take_all(self) -> list[tuple[Waiting, bool]]:
        """Take out all, each with whether it was sent."""
        found = [(one, id not in self._unsent) for id, one in self._all.items()]
        self._all, self._unsent = {}, {}
        return found

    def take_overdue(self, now: float) -> list[tuple[int, Waiting, bool]]:
        """Take out those whose time is over, each with whether it was sent."""
        found = [(id, one, id not in self._unsent) for id, one in self._all.items() if now >= one.until]
        for id, _, _ in found:
            self.pop(id)
        return found

    def take(self, request: Request) -> bool:
        """Take out that very request; whether it was there."""
        found = next((id for id, one in self._all.items() if one.request is request), None)
        return found is not None and self.pop(found) is not None
