"""What a process says when a fatal signal ends it: where each of its threads was, kept where it can be read when the process is gone.

Python writes that by itself (`faulthandler`) into memory that the warden holds as well; no process can be made to wait by it, and it is of one size. What
is read of it is about the code that ran there, and not about Thespian, the loop and this package, which stand below all of that: a log would be
full of them.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import io
import logging
import os
import re
import signal
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from .bootstrap import InheritedState, NodeOutput
from .daemon_protocol import CrashMemory, encode_message

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from greenroom.supervision.behaviours.refs import Ref

ROOM: Final = 16 * 1024
_THREAD: Final = re.compile(r"(?:Current t|T)hread 0x")
_FRAME: Final = "  File "
_LONGEST: Final = 512
"""Of a line that is looked at closely: paths are cut there, and a process that has the memory may write what it likes."""
_MACHINERY: Final = re.compile(
    r'  File "(?:<string>|.*/(?:thespian|multiprocessing|asyncio|uvloop|greenroom/supervision)/[^"]*|.*/threading\.py)", '
)


def install_crash_stacks() -> None:
    """In a node's process: have them written, and give the warden where. Nothing where the system cannot do that."""
    if not hasattr(os, "memfd_create") or InheritedState.notes is None:
        return
    memory = os.memfd_create("last words", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, ROOM)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    with contextlib.suppress(OSError):
        socket.send_fds(InheritedState.notes, [encode_message(CrashMemory(InheritedState.node))], [memory])
        faulthandler.enable(memory)
        faulthandler.register(signal.SIGTERM, memory, chain=True)  # shows what a process that is told to end was doing


def read_stacks(memory: int) -> str:
    """What was written, as far as it is of use to a reader."""
    try:
        return shorten_stacks(os.pread(memory, ROOM, 0).rstrip(b"\0").decode(errors="replace").strip())
    except OSError:
        return ""


def shorten_stacks(text: str) -> str:
    """Without the frames that every thread of a node has at its bottom, and without threads that have no others, unless it was one of these."""
    return "\n\n".join(filter(None, map(_shorten_thread, text.split("\n\n"))))


def _shorten_thread(block: str) -> str:
    if not _THREAD.match(block):
        return block
    lines = block.splitlines()
    end = len(lines)
    while _MACHINERY.match(lines[end - 1][:_LONGEST]):
        end -= 1
    if not any(line.startswith(_FRAME) for line in lines[:end]):
        return block if block.startswith("C") else ""
    return "\n".join((*lines[:end], *["  …"][: len(lines) - end]))


def close_memories(memories: Iterable[int]) -> None:
    """They are of no use any more."""
    for memory in memories:
        with contextlib.suppress(OSError):
            os.close(memory)


# --- What code in a node prints and logs: it goes home as lines for the log, so many at a time, and never makes its writer wait.
# `sys.stdout` and `sys.stderr` are replaced; the descriptors below them lead nowhere. There is room for so many lines; of those that find
# none, the number is told.

PRINTED: Final = "greenroom.node"
"""The logger of what was printed."""
ACCESS: Final = "greenroom.access"
"""The logger whose records have data that home wants: it may write them as JSON."""
LINE: Final = 4_000
MOST_LINES: Final = 1_000
BATCH: Final = 200
PAUSE: Final = 0.05


class CapturedOutput:
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

        sys.stdout = _CapturedStream(self, logging.INFO)
        sys.stderr = _CapturedStream(self, logging.WARNING)
        root = logging.getLogger()
        root.handlers[:] = [_CapturedLog(self)]
        root.setLevel(self._level)

    def begin(self, engine: Ref[Any], loop: asyncio.AbstractEventLoop) -> None:
        """There is an engine to send it to."""
        self._engine = engine
        self._loop = loop
        self._wake()

    def add(self, logger: str, level: int, line: str, data: dict[str, Any] | None = None) -> None:
        """From any thread. `data` is plain, and small."""
        with self._lock:
            if len(self._lines) >= MOST_LINES:
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
            self._engine.send(NodeOutput(self._name, batch, dropped))
            self._loop.call_later(PAUSE, self._send)

    def flush(self) -> None:
        """The node ends: what is there, as much as one batch takes."""
        if self._loop is not None and self._engine is not None:
            self._send()


class _CapturedStream(io.TextIOBase):
    """A stream for text that is told line by line."""

    encoding = "utf-8"

    def __init__(self, output: CapturedOutput, level: int) -> None:
        super().__init__()
        self._output = output
        self._level = level
        self._rest = threading.local()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, rest = (getattr(self._rest, "text", "") + text).split("\n")
        for line in lines:
            if line:
                self._output.add(PRINTED, self._level, line)
        if len(rest) > LINE:
            self._output.add(PRINTED, self._level, rest)
            rest = ""
        self._rest.text = rest
        return len(text)

    def flush(self) -> None:
        """A line is told when it ends."""

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        """A descriptor that leads nowhere: for code that hands it to a program."""
        return 1 if self._level == logging.INFO else 2


class _CapturedLog(logging.Handler):
    """The root logger's."""

    def __init__(self, output: CapturedOutput) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        try:
            data: Any = getattr(record, "greenroom", None) if record.name == ACCESS else None
            self._output.add(record.name, record.levelno, self.format(record), data)
        except Exception:  # noqa: BLE001 - as every handler of logging does it
            self.handleError(record)
