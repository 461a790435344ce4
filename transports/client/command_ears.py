"""What a child writes to stderr: always read, since who fills that pipe stops; of it the end is kept, and each line told to who wants it."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from greenroom.protocol.lines import Lines, Overlong
from greenroom.supervision.kernel.tracebacks import log_error

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("greenroom.command")

CHUNK: Final = 64 * 1024
LINE: Final = 16 * 1024


class Errors:
    """The end of it."""

    def __init__(self, limit: int, sink: Callable[[str], None] | None) -> None:
        """`limit` is how many bytes are kept."""
        self._limit = limit
        self._sink = sink
        self._tail = b""
        self._cut = False
        self._lines = Lines(LINE)
        self.over = False
        """Whether it has ended."""

    def text(self) -> str:
        """What is kept, from the beginning of a line on where there is one."""
        tail = self._tail
        if self._cut and b"\n" in tail[:-1]:
            tail = tail[tail.index(b"\n") + 1 :]
        return tail.decode(errors="replace").strip()

    def take(self, descriptor: int) -> bool:
        """Something is there to read, or the end; whether it is better to look away for a while."""
        chunk = _read(descriptor)
        if chunk is None:
            return False
        self.over = not chunk
        self._keep(chunk)
        return len(chunk) in (
            0,
            CHUNK,
        )  # a full one means that there is more, and more may come for as long as it likes

    def rest(self, descriptor: int) -> None:
        """It has ended: what is in the pipe still. No more than a pipe holds, should others go on writing."""
        for _ in range(16):
            chunk = _read(descriptor)
            if not chunk:
                break
            self._keep(chunk)
        last = self._lines.end()
        if last is not None:
            self._tell(last)

    def _keep(self, chunk: bytes) -> None:
        tail = self._tail + chunk[-self._limit :]
        self._cut = self._cut or len(self._tail) + len(chunk) > self._limit
        self._tail = tail[-self._limit :]
        if self._sink is not None:
            for line in self._lines.feed(chunk):
                self._tell(line)

    def _tell(self, line: bytes | Overlong) -> None:
        sink = self._sink
        if sink is None:
            return
        text = line.head.decode(errors="replace") + "…" if isinstance(line, Overlong) else line.decode(errors="replace")
        try:
            sink(text)
        except Exception:  # noqa: BLE001 - whatever is raised is answered, and logged
            log_error(
                log,
                "the callback for what a server process writes to stderr has raised, and is not called any more",
            )
            self._sink = None


def _read(descriptor: int) -> bytes | None:
    """What there is; nothing at the end; None when nothing is there just now."""
    try:
        return os.read(descriptor, CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""
