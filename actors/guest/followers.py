"""Who in a Thespian program follows which resource: several may follow one, and the node is asked once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.supervision.cluster.thespian_door import Address

    Key = tuple[str, str]


class Follower(NamedTuple):
    """Who has subscribed, by which request."""

    sender: Address
    ticket: str


class Followers:
    """All of one guest, by server and URI. Addresses of Thespian can be compared and not hashed."""

    def __init__(self) -> None:
        """Nobody."""
        self._all: dict[Key, list[Follower]] = {}
        self.restoring: dict[int, Key] = {}
        """What is asked for again after a new connection, by the number it is asked under."""

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Iterator[Key]:
        return iter(tuple(self._all))

    def of(self, server: str, uri: str) -> list[Follower]:
        """Who follows it."""
        return self._all.get((server, uri), [])

    def add(self, server: str, uri: str, sender: Address, ticket: str) -> None:
        """One more, who hears by its latest request."""
        self.forget(server, uri, sender)
        self._all.setdefault((server, uri), []).append(Follower(sender, ticket))

    def forget(self, server: str, uri: str, sender: Address) -> bool:
        """One less. Whether others still follow it."""
        left = [each for each in self._all.pop((server, uri), ()) if each.sender != sender]
        if left:
            self._all[server, uri] = left
        return bool(left)

    def end(self, server: str, uri: str) -> list[Follower]:
        """Nobody follows it any more: who did."""
        return self._all.pop((server, uri), [])
