"""What a program that serves writes to stderr by itself: the access log, for people or as JSON lines, beside what the program has set up for `logging`.

A handler that the program has put on the root logger gets the access log, and nothing is added. Otherwise it goes to stderr, which may be a pipe that
is never read (a host that starts servers need not): a line that does not fit in at once is left out and counted, since waiting would stop the server.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision import logs, visible_text
from greenroom.transports.access_log import log as access

from .program_runner import is_writable

if TYPE_CHECKING:
    from collections.abc import Generator

_LINE: Final = 4096
"""POSIX's PIPE_BUF on Linux: a pipe that is ready for writing takes so many bytes at once."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What is wanted of the log. `access` is None where the program's own set-up of `logging` decides."""

    access: bool | None = None
    json: bool = False

    @contextmanager
    def applied(self) -> Generator[None]:
        """Set the loggers up for this process, and afterwards as they were."""
        root, before = logging.getLogger(), (access.level, access.propagate)
        added: list[tuple[logging.Logger, logging.Handler]] = []
        if self.json and not root.handlers:
            added.append((root, _handler(logs.JsonLines())))
        if self.access is not None:
            access.setLevel(logging.INFO if self.access else logging.CRITICAL)
        if self.access and not (root.handlers or added or access.handlers):
            formatter = logs.JsonLines() if self.json else visible_text.EscapingFormatter("%(asctime)s %(message)s")
            added.append((access, _handler(formatter)))
            access.propagate = False
        for logger, handler in added:
            logger.addHandler(handler)
        try:
            yield
        finally:
            for logger, handler in added:
                logger.removeHandler(handler)
            access.setLevel(before[0])
            access.propagate = before[1]


def _handler(formatter: logging.Formatter) -> logging.Handler:
    handler = NonBlockingHandler()
    handler.setFormatter(formatter)
    return handler


class NonBlockingHandler(logging.Handler):
    """Writes to stderr, and never waits for whatever reads it."""

    def __init__(self) -> None:
        """Nothing was left out yet."""
        super().__init__()
        self.left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, in pieces that a pipe takes, or leave it out."""
        try:
            stream: Any = sys.stderr
            if stream is None:
                return
            text = f"{self.format(record)}\n"
            number = _descriptor(stream)
            if number is None:
                stream.write(text)
                return
            if self.left_out:
                text = (
                    f"\n{self.format(_dropped_notice(self.left_out))}\n{text}"  # of the line before, a part may be out
                )
            stream.flush()
            if _write_pieces(number, text.encode(errors="backslashreplace")):
                self.left_out = 0
            else:
                self.left_out += 1
        except Exception:  # noqa: BLE001 - as every handler of logging does it
            self.handleError(record)


def _dropped_notice(count: int) -> logging.LogRecord:
    text = "%d records left out here: stderr was full, and was not waited for"
    return access.makeRecord(access.name, logging.WARNING, __file__, 0, text, (count,), None)


def _write_pieces(number: int, data: bytes) -> bool:
    """Write it in pieces, as long as there is room; whether it is all out."""
    for start in range(0, len(data), _LINE):
        if not is_writable(number):
            return False
        os.write(number, data[start : start + _LINE])
    return True


def _descriptor(stream: Any) -> int | None:
    """Where a stream writes to; None for one that a program has put in its place."""
    try:
        return int(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return None
