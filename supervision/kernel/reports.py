"""What a node has to tell about itself: structured events, and the bus that carries them.

Nothing here formats or logs. `logging` is one subscriber (`greenroom.supervision.logs`), a test is another.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from .tracebacks import log_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from .process_messages import ExitReason, Pid

_log = logging.getLogger("greenroom.supervision")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Something happened to a process."""

    level: ClassVar[int] = logging.WARNING
    """How loud a log tells it that knows nothing more of it."""

    pid: Pid
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport(Report):
    """Code of a process raised, or asked to stop with a reason that is not orderly.

    `client` is the caller in the call that it died of, or the one that asked for the task, and `client_stack` where that client waits, as
    far as can be known.
    """

    reason: ExitReason
    last_message: str | None = None
    state: str | None = None
    ancestors: tuple[str, ...] = ()
    during: str = "handler"
    client: str | None = None
    client_stack: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaked(Report):
    """A process did not unwind within its kill grace and was abandoned; `stack` is where its code hangs."""

    reason: ExitReason
    stack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked(Report):
    """A handler keeps the event loop from turning; `stack` is where it is right now."""

    seconds: float
    stack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unexpected(Report):
    """A server got something that it has no handler for, and went on."""

    kind: str
    message: str


DEFAULT_SUBSCRIBERS: list[Callable[[Report], object]] = []
"""The subscribers of every node that is not told otherwise: `logging`, whose subscriber is above this package."""


@dataclass(slots=True)
class Reports:
    """The bus of one node."""

    _subscribers: list[Callable[[Report], object]] = field(default_factory=list["Callable[[Report], object]"])

    def subscribe(self, subscriber: Callable[[Report], object]) -> Callable[[], None]:
        """Call `subscriber` with each report from now on; the returned function ends that.

        It is called on the spot, often in the middle of a death: it must be quick, must not raise, and does its
        real work elsewhere (`send` the report to a process: `subscribe(ref.send)`). That of a blocked loop comes from
        the watchdog's own thread.
        """
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return unsubscribe

    def emit(self, report: Report) -> None:
        """Tell all subscribers. One that raises is reported to `logging` and hurts no other."""
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(report)
            except BaseException:  # noqa: BLE001 - it is logged whole, and must not hurt whatever was being reported
                log_error(_log, "a subscriber of reports raised on %r", report)
