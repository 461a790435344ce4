"""What may be given back when a crowd of sessions has gone.

CPython gives memory back by the megabyte, and one small thing that stays keeps a whole one. Its cache of methods is made of such things: it
holds on to the names by which methods were looked up, and C code makes a new text for such a name each time (`result`, when a task goes on).
Those that were made among the sessions are all over their memory. To forget them takes microseconds, and the cache is full again as soon.

Nothing more is done: no collection of garbage, which would hold up everybody (sessions end without cycles, and Python collects by itself),
and no `malloc_trim`: little of what stays is on the heap that it could give back.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision import self_pid, send_after

if TYPE_CHECKING:
    from collections.abc import Callable

CROWD: Final = 100
"""How many have to have gone."""
SOON: Final = 2.0
"""Seconds in which others may go as well."""

_forget: Callable[[], Any] | None = getattr(sys, "_clear_internal_caches", None) or getattr(
    sys, "_clear_type_cache", None
)


class Tidy:
    """The message to oneself that it is time."""


class Tidying:
    """One supervisor's: told of everybody who goes, and by whoever gets its message that it came."""

    __slots__ = ("_due", "_gone")

    def __init__(self) -> None:
        """Nobody has gone."""
        self._gone = 0
        self._due = False

    def went(self) -> None:
        """Somebody has gone."""
        self._gone += 1
        if self._gone >= CROWD and not self._due:
            self._due = True
            send_after(SOON, self_pid(), Tidy())

    def tidy(self) -> None:
        """It is time."""
        self._gone = 0
        self._due = False
        if _forget is not None:
            _forget()
