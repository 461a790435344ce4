"""What code in a node prints and logs: it goes home as lines for the log, so many at a time, and never makes anybody wait.

`sys.stdout` and `sys.stderr` are replaced; the descriptors below them lead nowhere. There is room for so many lines; of those that find
none, the number is told.
"""

from __future__ import annotations

import io
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from .boots import Said

if TYPE_CHECKING:
    import asyncio

    from greenroom.supervision.behaviours.calls import Ref

PRINTED: Final = "greenroom.node"
"""The logger of what was printed."""
ACCESS: Final = "greenroom.access"
"""The logger whose records have data that home wants: it may write them as JSON."""
LINE: Final = 4_000
ROOM: Final = 1_000
BATCH: Final = 200
PAUSE: Final = 0.05


class Utterances:
    """Of this process."""

    def __init__(self, name: str, level: int) -> None:
        """`level` is from where on the application's log wants to know."""
        self._name = name
        self._level = level
        self._lock = threading.Lock()
        self._lines: deque[tuple[str, int, str, dict[str, Any] | None]] = deque()
        self._dropped = 0
        self._engine: Ref[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = False

    def install(self) -> None:
        """From now on all of it comes here."""
        import sys  # noqa: PLC0415 - what is replaced

        sys.stdout = _Lines(self, logging.INFO)
        sys.stderr = _Lines(self, logging.WARNING)
        root = logging.getLogger()
        root.handlers[:] = [_Handler(self)]
        root.setLevel(self._level)

    def begin(self, engine: Ref[Any], loop: asyncio.AbstractEventLoop) -> None:
        """There is somebody to send it to."""
        self._engine = engine
        self._loop = loop
        self._wake()

    def add(self, logger: str, level: int, line: str, data: dict[str, Any] | None = None) -> None:
        """From any thread. `data` is plain, and small."""
        with self._lock:
            if len(self._lines) >= ROOM:
                self._dropped += 1
                return
            self._lines.append((logger, level, line[:LINE], data))
            if self._waiting:
                return
        self._wake()

    def _wake(self) -> None:
        loop = self._loop
        if loop is None:
            return
        self._waiting = True
        try:
            loop.call_soon_threadsafe(self._send)
        except RuntimeError:  # the loop is closed: it is too late for all of it
            self._loop = None

    def _send(self) -> None:
        assert self._loop is not None
        assert self._engine is not None
        with self._lock:
            batch = [self._lines.popleft() for _ in range(min(BATCH, len(self._lines)))]
            dropped, self._dropped = self._dropped, 0
            self._waiting = bool(batch)
        if batch:
            self._engine.send(Said(self._name, batch, dropped))
            self._loop.call_later(PAUSE, self._send)

    def flush(self) -> None:
        """The node ends: what is there, as much as one batch takes."""
        if self._loop is not None and self._engine is not None:
            self._send()


class _Lines(io.TextIOBase):
    """A stream for text that is told line by line."""

    encoding = "utf-8"

    def __init__(self, said: Utterances, level: int) -> None:
        super().__init__()
        self._said = said
        self._level = level
        self._rest = threading.local()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, rest = (getattr(self._rest, "text", "") + text).split("\n")
        for line in lines:
            if line:
                self._said.add(PRINTED, self._level, line)
        if len(rest) > LINE:
            self._said.add(PRINTED, self._level, rest)
            rest = ""
        self._rest.text = rest
        return len(text)

    def flush(self) -> None:
        """A line is told when it ends."""

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        """Where nothing is read: for those who hand it to a program."""
        return 1 if self._level == logging.INFO else 2


class _Handler(logging.Handler):
    """The root logger's."""

    def __init__(self, said: Utterances) -> None:
        super().__init__()
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        try:
            data: Any = getattr(record, "greenroom", None) if record.name == ACCESS else None
            self._said.add(record.name, record.levelno, self.format(record), data)
        except Exception:  # noqa: BLE001 - as every handler of logging does it
            self.handleError(record)
