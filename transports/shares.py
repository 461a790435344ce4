"""How much each of several processes has that accept on one socket, where all of them see it: so that the next connection goes to who has least.

A page of memory that they share, with a place for each: how many connections and sessions are there, how many it has ever taken, and when it last said so. Whoever has
more than somebody else gives way for a moment; whoever has said nothing for a while is dead, or busy, and nobody gives way to it. Nothing is
locked: a number that is a moment old costs a connection its best place, and nothing else.
"""

from __future__ import annotations

import mmap
import os
import struct
from typing import TYPE_CHECKING, Final

from greenroom.supervision.kernel import clock
from greenroom.supervision.private_files import nameless_file

if TYPE_CHECKING:
    from collections.abc import Callable

_PLACE: Final = struct.Struct("=QQd")
FRESH: Final = 1.0
"""Seconds for which a number counts."""
BEAT: Final = 0.3


def shared_page(places: int) -> int:
    """The descriptor of such a page: in no file system, and gone with the last who has it."""
    with nameless_file() as made:
        made.truncate(places * _PLACE.size)
        return os.dup(made.fileno())


def _nothing() -> int:
    return 0


class Shares:
    """What one process sees of it, and says."""

    def __init__(self, page: int, place: int) -> None:
        """Its own place; the descriptor may be closed afterwards."""
        self._memory = mmap.mmap(page, 0)
        self._count = len(self._memory) // _PLACE.size
        self._place = place
        self.besides: Callable[[], int] = _nothing
        """What there is here besides connections, which stays when they are closed: sessions."""
        others = [taken for _, taken in self._others()]
        self._taken = min(others, default=0)  # or the others would give way to whoever comes until it has caught up

    def say(self, connections: int) -> int:
        """So many are open here; what it has together with what they have left behind."""
        here = connections + self.besides()
        _PLACE.pack_into(self._memory, self._place * _PLACE.size, here, self._taken, clock.real())
        return here

    def took(self, connections: int) -> None:
        """One more."""
        self._taken += 1
        self.say(connections)

    def gives_way(self, connections: int) -> bool:
        """Whether somebody else should have the next one."""
        mine = (self.say(connections), self._taken)
        return any(other < mine for other in self._others())

    def _others(self) -> list[tuple[int, int]]:
        since = clock.real() - FRESH
        places = _PLACE.iter_unpack(self._memory)
        return [(here, taken) for at, (here, taken, said) in enumerate(places) if at != self._place and said > since]

    def leave(self) -> None:
        """It takes no more, for now: nobody gives way to it."""
        _PLACE.pack_into(self._memory, self._place * _PLACE.size, 0, self._taken, 0.0)
