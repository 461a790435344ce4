"""Tracebacks for logs that show the user's frames and count those of greenroom, asyncio and the import machinery in one line.

Of the 42 lines that a `ValueError` in a plain tool took, four were the tool's own; the rest was the engine, the same for each error.
A traceback without any user frame is a bug of ours, and is shown whole.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import sys
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ROOT: Final = Path(__file__).parents[2]
_ENGINE: Final = {
    f"{_ROOT}/": "greenroom",
    f"{Path(asyncio.__file__).parent}/": "asyncio",
    "<frozen importlib": "importlib",
    "<frozen runpy": "importlib",
}
_DEMO: Final = f"{_ROOT}/demo/"
"""Programs that use greenroom: their frames count as user frames."""
_GLUE: Final = (contextlib.__file__, threading.__file__, f"{Path(concurrent.futures.__file__).parent}/")
"""Library code between the engine and user code: left out there, and kept where user code calls it."""


class ForeignTraceback(Exception):
    """The cause of an error that was raised in another OS process: `text` is its formatted traceback there, which names the error too."""

    text: str


def format_traceback(error: BaseException) -> str:
    """Format the traceback of an error with all causes as the standard library does, without the engine's frames."""
    summary = traceback.TracebackException.from_exception(error)
    summaries = tuple(_all(summary))
    left_out: dict[str, int] = {}
    frames = [(each, _cut(each.stack, left_out)) for each in summaries]
    has_authors = any(kept for _, kept in frames)
    cause = error.__cause__
    if isinstance(cause, ForeignTraceback) and not has_authors:
        return cause.text.strip("\n") + "\n"
    if has_authors:
        for each, kept in frames:
            # The standard library prints no "Traceback (most recent call last)" line for a stack of None, which its types do not allow.
            each.stack = cast("Any", traceback.StackSummary.from_list(kept) if kept else None)
    else:
        left_out.clear()
    text = "".join(summary.format())
    if not left_out:
        return text
    count = sum(left_out.values())
    return f"{text}({count} frame{'s' if count > 1 else ''} of {_listed(sorted(left_out))} left out)\n"


def log_error(log: logging.Logger, message: str, *values: object, error: BaseException | None = None) -> None:
    """Log an error, by default the one being handled. Handlers that want the whole traceback find it in the record's `exc_info`."""
    if log.isEnabledFor(logging.ERROR):
        found = sys.exception() if error is None else error
        log.handle(make_record(log, logging.ERROR, message, values, found, depth=2))


def mark_logged(error: BaseException) -> None:
    """Mark an error as logged: if it also ends the program, one line replaces the same traceback."""
    with contextlib.suppress(AttributeError, TypeError):  # a user's exception class may refuse new attributes
        error._greenroom_logged = True  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def format_final_traceback(error: BaseException) -> str:
    """Format an error that ends the program: one line if its traceback is in the log already."""
    if getattr(error, "_greenroom_logged", False) is not True:
        return format_traceback(error)
    line = "".join(traceback.format_exception_only(error))
    return f"{line}(its traceback is in the log)\n"


def make_record(  # noqa: PLR0913 - the fields of a record
    log: logging.Logger,
    level: int,
    message: str,
    values: tuple[object, ...],
    error: BaseException | None,
    extra: dict[str, object] | None = None,
    *,
    depth: int = 1,
) -> logging.LogRecord:
    """Make a record with `exc_text` already set, which formatters of the standard library use instead of formatting `exc_info`."""
    caller = sys._getframe(depth)
    trace: Any = None if error is None else (type(error), error, error.__traceback__)
    record = log.makeRecord(
        log.name,
        level,
        caller.f_code.co_filename,
        caller.f_lineno,
        message,
        values,
        trace,
        caller.f_code.co_name,
        extra,
    )
    if error is not None:
        record.exc_text = format_traceback(error).rstrip("\n")
    return record


def _all(summary: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """Yield an error, its causes and the members of groups. A stack and no recursion, since a chain may be long."""
    left: list[traceback.TracebackException | None] = [summary]
    while left:
        each = left.pop()
        if each is not None:
            yield each
            left += [each.__cause__, each.__context__, *(each.exceptions or ())]


def _cut(stack: Iterable[traceback.FrameSummary], left_out: dict[str, int]) -> list[traceback.FrameSummary]:
    kept: list[traceback.FrameSummary] = []
    engine: str | None = "greenroom"
    for frame in stack:
        engine = _engine_of(frame.filename, engine)
        if engine is None:
            kept.append(frame)
        else:
            left_out[engine] = left_out.get(engine, 0) + 1
    return kept


def _engine_of(file: str, before: str | None) -> str | None:
    """The engine that a frame belongs to, or None for user code; `before` is the engine of the calling frame."""
    if before is not None and file.startswith(_GLUE):
        return before
    found = next((name for prefix, name in _ENGINE.items() if file.startswith(prefix)), None)
    return None if found == "greenroom" and file.startswith(_DEMO) else found


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
