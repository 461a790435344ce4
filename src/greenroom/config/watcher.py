"""Who looks whether a configuration's files have changed, and reads them when they have come to rest.

Files are looked at by time, number and size, every second or so, on the node's clock: that works on every system and every file system, also when a
file is replaced by a rename, comes into being, or goes. A file that changes all the time is read now and then all the same; what is read while it
changes counts for nothing. A file that is wrong changes nothing, and is said to be wrong once.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from greenroom.supervision import GenServer, send_after
from greenroom.supervision.kernel import clock

from .reconciler import Reconciler

if TYPE_CHECKING:
    from .household import Household

    Look: TypeAlias = tuple[tuple[str, int, int, int, int] | None, ...]

_QUIET: Final = 0.2
"""For how long nothing may have changed before it is read,"""
_LONGEST: Final = 2.0
"""and when it is read even so."""


class _Time(NamedTuple):
    """To itself: look."""


class Watcher(GenServer):
    """One in a household that is to notice by itself."""

    def __init__(self, household: Household, every: float) -> None:
        """`every` is how many seconds are between two looks."""
        self._household = household
        self._every = every
        self._seen: Look = ()
        self._since: float | None = None
        """Since when it is known that something is different."""

    def init(self) -> None:
        """What a predecessor did not live to see is different: read at once, and everything is known."""
        self._seen = self._look()
        self._since = clock.now(self._otp_process.node.loop)
        send_after(0.0, self.pid, _Time())

    def _look(self) -> Look:
        found: list[tuple[str, int, int, int, int] | None] = []
        for path in self._household.files():
            try:
                told = os.stat(path)  # noqa: PTH116 - the same for whatever stands for a path
            except (OSError, ValueError):
                found.append(None)
            else:
                found.append((str(path), told.st_mtime_ns, told.st_ctime_ns, told.st_ino, told.st_size))
        return tuple(found)

    def handle_info(self, message: Any) -> Any:
        """It is time."""
        if not isinstance(message, _Time):
            return super().handle_info(message)
        now = clock.now(self._otp_process.node.loop)
        seen = self._look()
        changed = seen != self._seen
        self._seen = seen
        if changed and self._since is None:
            self._since = now
        if self._since is not None and (not changed or now - self._since >= _LONGEST):
            self._read()
        send_after(self._every if self._since is None else _QUIET, self.pid, _Time())
        return None

    def _read(self) -> None:
        household = self._household
        config = household.read()
        before, self._seen = self._seen, self._look()
        self._since = None
        if before != self._seen:  # it changed meanwhile
            self._since = clock.now(self._otp_process.node.loop)
            return
        if config != household.latest and household.accept(config):
            household.reconciler.cast(Reconciler.look)
        self._seen = self._look()  # what is to be watched may be something else now
