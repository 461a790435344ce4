"""Writes reports to `logging`: a subscriber of every node, unless the node is made with `log=False`.

All records go to the logger `greenroom.supervision`. The text of a record is one line with the process, the reason, the
message, the state and the place in the tree; the traceback is added once, where the code of a process or of a start
function has raised. `record.greenroom` holds the same as plain data, for handlers that write JSON.
"""

from __future__ import annotations

import json
import logging
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from .event_bus import bus
from .kernel import reports as kernel
from .kernel.process_messages import Crash
from .kernel.tracebacks import make_record, mark_logged
from .supervisors import supervisor_reports
from .supervisors.child_spec import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Callable

    from .kernel.node import Node
    from .kernel.reports import Report

log = logging.getLogger("greenroom.supervision")

_LONGEST = 300  # characters of an exception's text

_Told: TypeAlias = tuple[int, str, BaseException | None]


def attach(node: Node) -> Callable[[], None]:
    """Log the reports of a node from now on; the returned function stops it."""
    return node.reports.subscribe(log_report)


def log_report(report: Report) -> None:
    """Log one report, if its level is enabled."""
    if isinstance(report, supervisor_reports.ProgressReport) and not log.isEnabledFor(_progress_level(report)):
        return  # by far the most frequent report, and hardly ever enabled: not even formatted
    level, text, error = describe_report(report)
    if log.isEnabledFor(level):
        log.handle(make_record(log, level, "%s", (text,), error, {"greenroom": to_plain_data(report)}))
        if error is not None:
            mark_logged(error)


def describe_report(report: Report) -> _Told:
    """The level, the text and the error of the record of a report."""
    who = f"{report.label} {report.pid}"
    match report:
        case kernel.CrashReport():
            return logging.ERROR, _crash(report, who), _error(report.reason)
        case kernel.Leaked():
            text = f"{who} did not unwind in time after its end ({report.reason}), and was abandoned at\n{report.stack}"
            return logging.ERROR, text.rstrip(), None
        case kernel.LoopBlocked():
            text = f"{who} has kept the event loop from turning for {report.seconds:.1f} s, at\n{report.stack}"
            return logging.WARNING, text.rstrip(), None
        case kernel.Unexpected():
            return logging.WARNING, f"{who} got an unexpected {report.kind}: {report.message}", None
        case supervisor_reports.ProgressReport():
            return _progress_level(report), f"{report.supervisor} started {report.child}", None
        case supervisor_reports.ChildTerminated():
            # A crashed temporary child has its own crash report, and nothing follows from its exit: one error, one record.
            reported = report.child.restart == TEMPORARY and isinstance(report.reason, Crash)
            return (
                logging.DEBUG if reported else logging.ERROR,
                _about(report, f"{report.child} terminated: {report.reason}"),
                None,
            )
        case supervisor_reports.StartError():
            text = _about(report, f"{report.child} did not start: {report.reason}; it is {report.child.start}")
            return logging.ERROR, text, None if report.reported else _error(report.reason)
        case supervisor_reports.ShutdownError():
            text = f"{report.child} was told to stop, and ended otherwise: {report.reason}"
            return logging.ERROR, _about(report, text), None
        case supervisor_reports.ReachedMaxRestartIntensity():
            text = f"gives up on {report.child}: more than {report.intensity} restarts within {report.period:g} s"
            return logging.ERROR, _about(report, text), None
        case _:  # a report of another package: its own text, if it has one
            said = report if type(report).__str__ is not object.__str__ else to_plain_data(report)
            return report.level, f"{who}: {said}", None


def _crash(report: kernel.CrashReport, who: str) -> str:
    why = _line(str(report.reason).removeprefix("crash: "))
    parts = [f"{who} crashed in its {report.during}: {why}"]
    if report.last_message:
        parts.append(f"last message: {report.last_message}")
    if report.state:
        parts.append(f"state: {report.state}")
    if report.client:
        parts.append(f"asked by {report.client}")
    return "; ".join(parts) + _under(report.ancestors)


def _line(text: str) -> str:
    """The text of an exception, cut to one line; the traceback has all of it."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def _about(report: supervisor_reports.SupervisorReport, what: str) -> str:
    return f"{report.supervisor}: {what}{_under(report.ancestors)}"


def _under(ancestors: tuple[str, ...]) -> str:
    return f" (under {' < '.join(ancestors)})" if ancestors else ""


def _error(reason: object) -> BaseException | None:
    return reason.error if isinstance(reason, Crash) else None


def _progress_level(report: supervisor_reports.ProgressReport) -> int:
    return logging.DEBUG if report.asked_for else logging.INFO


class JsonLines(logging.Formatter):
    """Formats records as JSON, one object a line: time, level, logger, text, the data of `record.greenroom`, and the traceback, if any.

    Where calls are traced, a record of a call's code has `trace_id` and `span_id`.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line of ASCII."""
        data: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        found: Any = getattr(record, "greenroom", None)
        if isinstance(found, dict):
            data.update({key: value for key, value in cast("dict[str, Any]", found).items() if key not in data})
        if bus.tracer is not None and "trace_id" not in data and (ids := bus.tracer.ids_of(0)) is not None:
            data["trace_id"], data["span_id"] = ids
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            data["traceback"] = record.exc_text
        return json.dumps(data, default=str)


def to_plain_data(report: Report) -> dict[str, Any]:
    """A report as JSON-compatible data; `event` is the name of its class."""
    return {"event": type(report).__name__, **_plain_fields(report)}


def _plain_fields(value: Any) -> dict[str, Any]:
    return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, supervisor_reports.Offender):
        return _plain_fields(value)
    if value.__class__ is tuple:
        return [_plain(each) for each in value]
    return str(value)


kernel.LOG_SUBSCRIBERS.append(log_report)
