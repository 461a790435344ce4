"""Two kinds of output of a node's process: the stacks of its threads when a fatal signal ends it, and what its code prints and logs.

Python's `faulthandler` writes the stacks into a memory file that the daemon holds as well, so they can be read when the process is gone. A memory file has a fixed
size and needs no reader: a pipe would block the dying process when it is full. Frames of Thespian, the loop and this package, which are below every handler, are
left out.
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
"""Lines are cut there before they are matched: paths can be long, and the process can write anything into the memory."""
_MACHINERY: Final = re.compile(
    r'  File "(?:<string>|.*/(?:thespian|multiprocessing|asyncio|uvloop|greenroom/supervision)/[^"]*|.*/threading\.py)", '
)


def install_crash_stacks() -> None:
    """In a node's process: have the stacks written to a memory file, and send the daemon its descriptor. A no-op where the system has no memory files."""
    if not hasattr(os, "memfd_create") or InheritedState.notes is None:
        return
    memory = os.memfd_create("last words", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, ROOM)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    with contextlib.suppress(OSError):
        socket.send_fds(InheritedState.notes, [encode_message(CrashMemory(InheritedState.node))], [memory])
        faulthandler.enable(memory)
        faulthandler.register(signal.SIGTERM, memory, chain=True)  # shows what a process was doing that is told to end


def read_stacks(memory: int) -> str:
    """The stacks, shortened for a reader."""
    try:
        return shorten_stacks(os.pread(memory, ROOM, 0).rstrip(b"\0").decode(errors="replace").strip())
    except OSError:
        return ""


def shorten_stacks(text: str) -> str:
    """Drop the frames that every thread of a node starts with, and threads that have no others, except the one that crashed."""
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
    """Close these descriptors; invalid ones are skipped."""
    for memory in memories:
        with contextlib.suppress(OSError):
            os.close(memory)


# --- What code in a node prints and logs: sent to the application as lines for its log, in batches, without making the writer wait.
# `sys.stdout` and `sys.stderr` are replaced; the descriptors below them lead to /dev/null. When the buffer is full, further lines are counted and dropped.

PRINTED: Final = "greenroom.node"
"""The logger of printed lines."""
ACCESS: Final = "greenroom.access"
"""The logger whose records carry data: the application may write them as JSON."""
LINE: Final = 4_000
MOST_LINES: Final = 1_000
BATCH: Final = 200
PAUSE: Final = 0.05


class CapturedOutput:
    """The captured output of this process."""

    def __init__(self, name: str, level: int) -> None:
        """`level` is the lowest level that the application's log wants."""
        self._name = name
        self._level = level
        self._lock = threading.Lock()
        self._lines: deque[tuple[str, int, str, dict[str, Any] | None]] = deque()
        self._dropped = 0
        self._engine: Ref[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = False

    def install(self) -> None:
        """Replace the standard streams and the handlers of the root logger."""
        import sys  # noqa: PLC0415 - what is replaced

        sys.stdout = _CapturedStream(self, logging.INFO)
        sys.stderr = _CapturedStream(self, logging.WARNING)
        root = logging.getLogger()
        root.handlers[:] = [_CapturedLog(self)]
        root.setLevel(self._level)

    def begin(self, engine: Ref[Any], loop: asyncio.AbstractEventLoop) -> None:
        """Start sending to the engine."""
        self._engine = engine
        self._loop = loop
        self._wake()

    def add(self, logger: str, level: int, line: str, data: dict[str, Any] | None = None) -> None:
        """Add a line, from any thread. `data` is plain, and small."""
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
        except RuntimeError:  # the loop is closed: the rest is lost
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
        """Send one last batch before the node ends."""
        if self._loop is not None and self._engine is not None:
            self._send()


class _CapturedStream(io.TextIOBase):
    """A text stream whose lines are sent one by one."""

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
        """No-op: a line is sent when it ends."""

    def isatty(self) -> bool:
        return False

    def fileno(self) -> int:
        """A descriptor that leads to /dev/null, for code that passes it to a program."""
        return 1 if self._level == logging.INFO else 2


class _CapturedLog(logging.Handler):
    """The handler of the root logger."""

    def __init__(self, output: CapturedOutput) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        try:
            data: Any = getattr(record, "greenroom", None) if record.name == ACCESS else None
            self._output.add(record.name, record.levelno, self.format(record), data)
        except Exception:  # noqa: BLE001 - as every handler of logging does it
            self.handleError(record)
