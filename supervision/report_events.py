"""Makes events of the reports of every node, for the listeners of `event_bus`: crashes, children that end and start, supervisors that give up, and a late loop.

Reports say the same to code that knows processes; events are plain values for everything that watches a program. Without a listener nothing is made.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from .event_bus import bus
from .kernel import reports as kernel
from .kernel import watchdog
from .kernel.process_messages import Crash
from .kernel.tracebacks import format_traceback
from .kernel.visible_text import visible
from .supervisors import supervisor_reports

if TYPE_CHECKING:
    from greenroom.event_types import Event

    from .kernel.process_messages import ExitReason
    from .kernel.reports import Report

_LONGEST: Final = 300
"""Characters of a reason, as in the log."""
_LONGEST_STACK: Final = 8_000
_OUTSIDE: Final = "_outside"
"""The kind of code that blocks the loop outside of processes."""
_LAG_INTERVAL: Final = 0.4
"""Seconds between two `LoopLagged` of a node: a watchdog of a second measures twice in that time, and quicker ones do not send more events."""


def emit_report_event(report: Report) -> None:
    """Emit the event of a report, if there is one and a listener."""
    listener = bus.listener
    if listener is not None and (event := event_of(report)) is not None:
        listener(event)


def event_of(report: Report) -> Event | None:
    """The event of a report; None for reports that are not events."""
    from greenroom import event_types as events  # noqa: PLC0415 - a program without a listener does not load them

    node = report.pid.node
    match report:
        case kernel.CrashReport():
            return events.ProcessCrashed(
                node=node,
                label=report.label,
                kind=report.kind,
                pid=str(report.pid),
                reason=_reason(report.reason),
                during=report.during,
                last_message=report.last_message or "",
                state=report.state or "",
                stack=_stack(report.reason),
                ancestors=report.ancestors,
            )
        case kernel.Leaked():
            return events.ProcessLeaked(
                node=node,
                label=report.label,
                kind=report.kind,
                pid=str(report.pid),
                reason=_reason(report.reason),
                stack=report.stack[-_LONGEST_STACK:],
            )
        case kernel.LoopBlocked():
            return events.LoopBlocked(
                node=node,
                label=report.label,
                kind=report.kind or _OUTSIDE,
                pid=str(report.pid),
                seconds=report.seconds,
                stack=report.stack[-_LONGEST_STACK:],
            )
        case supervisor_reports.ProgressReport(child=child):
            return events.ChildStarted(
                node=node,
                supervisor=report.supervisor,
                child=visible(str(child.id), _LONGEST),
                kind=child.kind,
                pid="" if child.pid is None else str(child.pid),
                is_restart=report.is_restart,
            )
        case supervisor_reports.ReachedMaxRestartIntensity(child=child):
            return events.SupervisorGaveUp(
                node=node,
                supervisor=report.supervisor,
                kind=report.kind,
                child=visible(str(child.id), _LONGEST),
                reason=_reason(report.reason),
                intensity=report.intensity,
                period=report.period,
            )
        case (
            supervisor_reports.ChildTerminated(child=child, reason=reason)
            | supervisor_reports.StartError(child=child, reason=reason)
            | supervisor_reports.ShutdownError(child=child, reason=reason)
        ):
            return events.ChildEnded(
                node=node,
                supervisor=report.supervisor,
                child=visible(str(child.id), _LONGEST),
                kind=child.kind,
                pid="" if child.pid is None else str(child.pid),
                reason=_reason(reason),
                is_start=isinstance(report, supervisor_reports.StartError),
            )
        case _:
            return None


def _reason(reason: ExitReason) -> str:
    return visible(str(reason), _LONGEST)


def _stack(reason: ExitReason) -> str:
    """A crash's traceback without the engine's frames. Of a long one the middle is left out: its frames come first, and its error last."""
    if not isinstance(reason, Crash):
        return ""
    text = format_traceback(reason.error)
    half = _LONGEST_STACK // 2
    return text if len(text) <= _LONGEST_STACK else f"{text[:half]}\n…\n{text[-half:]}"


class _LagEvents:
    """The measurements of all watchdogs as events, of each node at most one in `_LAG_INTERVAL`: the longest since the last one."""

    def __init__(self) -> None:
        self._longest: dict[str, tuple[float, float]] = {}
        """By node: when its last event was emitted, and the longest lag since. Each node's own thread changes its own entry."""

    def measured(self, node: str, seconds: float) -> None:
        """Emit a measurement, or keep it for the next event."""
        listener = bus.listener
        if listener is None:
            self._longest.pop(node, None)
            return
        now = time.monotonic()
        emitted, longest = self._longest.get(node, (0.0, 0.0))
        longest = max(longest, seconds)
        if now - emitted < _LAG_INTERVAL:
            self._longest[node] = (emitted, longest)
            return
        from greenroom.event_types import LoopLagged  # noqa: PLC0415 - as above

        self._longest[node] = (now, 0.0)
        listener(LoopLagged(node=node, seconds=longest))


kernel.DEFAULT_SUBSCRIBERS.append(emit_report_event)
watchdog.LAG_SUBSCRIBERS.append(_LagEvents().measured)
