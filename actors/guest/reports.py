"""What a reception reports: structured events on the node's bus, for logs, metrics and tests. Nothing in them is secret."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from greenroom.supervision import Report
from greenroom.supervision.cluster.peers import LinkOffence

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision import Pid

_PAUSE: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NameTaken(Report):
    """A reception waits for its turn at an address, and whoever has that is none of the same server: no guest is let in anywhere."""

    level: ClassVar[int] = logging.WARNING

    address: str
    why: str

    def __str__(self) -> str:
        return f"guests cannot be let in at {self.address}, which is somebody else's: {self.why}"


class Offences:
    """Tells of what came over the links of one doorman, once a second at most."""

    def __init__(self, label: str, now: Callable[[], float], tell: Callable[[Report], None]) -> None:
        """`now` is the clock, and `tell` hears of it."""
        self._label = label
        self._now = now
        self._tell = tell
        self._told_at: float | None = None
        self._more = 0

    def note(self, pid: Pid, what: str) -> None:
        """One more."""
        now = self._now()
        if self._told_at is not None and now - self._told_at < _PAUSE:
            self._more += 1
            return
        more, self._more, self._told_at = self._more, 0, now
        self._tell(LinkOffence(pid=pid, label=self._label, what=what, more=more))
