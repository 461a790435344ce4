"""The access log of a program that serves: for people or as JSON lines, beside the program's own `logging` setup.

If the program has set a handler on the root logger, that handler gets the access log, and none is added. Otherwise it is written to stderr, which may be a pipe
that is never read (a host that starts servers need not read it): a line that does not fit at once is dropped and counted, since waiting would stop the server.
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
"""POSIX's PIPE_BUF on Linux: a writable pipe accepts this many bytes at once."""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Log options. If `access` is None, the program's own `logging` setup decides."""

    access: bool | None = None
    json: bool = False

    @contextmanager
    def applied(self) -> Generator[None]:
        """Configure the loggers for the block, and restore them afterwards."""
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
    """Writes to stderr and never waits for its reader."""

    def __init__(self) -> None:
        """`left_out` counts the records dropped since the last line."""
        super().__init__()
        self.left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record in pieces that fit into a pipe, or drop it."""
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
                # Begins with a line break: a part of the previous line may have been written.
                text = f"\n{self.format(_dropped_notice(self.left_out))}\n{text}"
            stream.flush()
            if _write_pieces(number, text.encode(errors="backslashreplace")):
                self.left_out = 0
            else:
                self.left_out += 1
        except Exception:  # noqa: BLE001 - as all logging handlers do
            self.handleError(record)


def _dropped_notice(count: int) -> logging.LogRecord:
    text = "%d records left out here: stderr was full"
    return access.makeRecord(access.name, logging.WARNING, __file__, 0, text, (count,), None)


def _write_pieces(number: int, data: bytes) -> bool:
    """Write in pieces as long as there is room. Returns whether all was written."""
    for start in range(0, len(data), _LINE):
        if not is_writable(number):
            return False
        os.write(number, data[start : start + _LINE])
    return True


def _descriptor(stream: Any) -> int | None:
    """The file descriptor of a stream; None for a replacement without one."""
    try:
        return int(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return None
