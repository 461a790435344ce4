"""Reports of a node as structured events, and the bus that delivers them.

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
    """The level at which a log without a better rule records it."""

    pid: Pid
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport(Report):
    """Code of a process raised, or asked to stop with a reason that is not orderly.

    `client` is the caller of the call that crashed, or the process that started the task; `client_stack` is where that client waits,
    as far as is known. `kind` is the class or the function that runs.
    """

    kind: str = ""
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

    kind: str = ""
    reason: ExitReason
    stack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopBlocked(Report):
    """A handler blocks the event loop; `stack` is where it is right now. `kind` is empty for code outside of processes."""

    kind: str = ""
    seconds: float
    stack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unexpected(Report):
    """A server got a message that it has no handler for, and went on."""

    kind: str
    message: str


DEFAULT_SUBSCRIBERS: list[Callable[[Report], object]] = []
"""The subscribers of every node. `report_events` adds itself here, since this package must not import it."""
LOG_SUBSCRIBERS: list[Callable[[Report], object]] = []
"""The subscribers of every node, but of those with `log=False`. `logs` adds itself."""


@dataclass(slots=True)
class Reports:
    """The report bus of one node."""

    _subscribers: list[Callable[[Report], object]] = field(default_factory=list["Callable[[Report], object]"])

    def subscribe(self, subscriber: Callable[[Report], object]) -> Callable[[], None]:
        """Call `subscriber` with each report from now on; the returned function unsubscribes.

        It is called synchronously, often in the middle of a process's exit: it must be quick and must not raise, so it
        should pass the report on (`subscribe(ref.send)`). `LoopBlocked` comes from the watchdog's own thread.
        """
        self._subscribers.append(subscriber)

        def unsubscribe() -> None:
            if subscriber in self._subscribers:
                self._subscribers.remove(subscriber)

        return unsubscribe

    def emit(self, report: Report) -> None:
        """Call all subscribers. An error of one is logged and does not affect the others."""
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(report)
            except BaseException:  # noqa: BLE001 - it is logged, and must not affect the code that reports
                log_error(_log, "a subscriber of reports raised on %r", report)
