"""Reading and writing descriptors shared with other processes, without blocking the loop or changing the descriptors.

`O_NONBLOCK` is a property of the open file, not of the process that opened it: set on one end of a terminal or of a shared pipe, it makes
the `print` of every other holder fail. So nothing here sets it. A descriptor that the loop can poll is read when it is readable, and
written in pieces that certainly fit (`PIPE_BUF`); the others (files, some devices, everything on Windows) get a daemon thread.

Sources and sinks keep partial data themselves: the process that reads or writes through them may be killed at any moment, and the next one
continues in the middle of a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import stat
import threading
from abc import ABC, abstractmethod
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING

from greenroom.supervision import DirectWakeup, Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable

    Serve = Callable[[Callable[[], object]], object]

CHUNK = 64 * 1024
SURE_TO_FIT = 512 if not hasattr(select, "PIPE_BUF") else select.PIPE_BUF
"""How much a pipe that polls as writable accepts without blocking."""
BYTES_PER_TURN = 1024 * 1024
"""How much is written before the loop gets a turn, to a reader that takes everything at once."""


def _call_directly(step: Callable[[], object]) -> None:
    step()


class ByteSink(ABC):
    """Writes to one descriptor."""

    def __init__(self) -> None:
        """Made in the running loop, whose tasks wait for it."""
        self._loop = asyncio.get_running_loop()
        self._progress = Wakeup()
        self.reader_gone = False
        """Whether the reader is gone: everything written then is dropped."""
        self.written = 0
        """Grows with whatever is written: a number that stays the same means a reader that does not read."""

    @property
    @abstractmethod
    def has_unwritten(self) -> bool:
        """Whether data is still to be written, to a reader that may take it."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Queue data and start writing. A writer awaits `wait_drained` before the next write: that bounds the queue."""

    async def wait_drained(self) -> None:
        """Wait until everything is written, or the reader is gone."""
        while self.has_unwritten:
            await self._progress.wait()

    @abstractmethod
    def close(self) -> None:
        """Stop writing for good; unwritten data is dropped."""


def open_source(descriptor: int, serve: Serve = _call_directly) -> Source:
    """Open a source for a descriptor; readers resume within `serve`."""
    return PolledSource(descriptor, serve) if _pollable(descriptor) else ThreadSource(descriptor)


def open_sink(descriptor: int) -> ByteSink:
    """Open a sink for a descriptor."""
    kind = os.fstat(descriptor).st_mode
    if _pollable(descriptor) and (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        return PolledSink(descriptor, is_socket=stat.S_ISSOCK(kind))
    return ThreadSink(descriptor)  # a stopped terminal reports that it can be written, and then accepts nothing


def _pollable(descriptor: int) -> bool:
    """Whether the running loop can watch the descriptor."""
    if not hasattr(select, "poll"):
        return False
    loop = asyncio.get_running_loop()
    try:
        loop.add_reader(descriptor, lambda: None)
    except (NotImplementedError, OSError, ValueError):
        return False
    loop.remove_reader(descriptor)
    return True


class PolledSource:
    """Reads when the loop reports that there is input."""

    def __init__(self, descriptor: int, serve: Serve = _call_directly) -> None:
        """For a pipe, a socket or a terminal. The reader resumes within `serve`, in the loop's callback."""
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._serve = serve
        # Resumes the reader within the loop's callback; a future would resume it in the next turn of the loop.
        self._readable = DirectWakeup(self._loop)
        self._poll = select.poll()
        self._poll.register(
            descriptor, getattr(select, "POLLRDHUP", 0)
        )  # POLLRDHUP is for sockets; a pipe reports POLLHUP unasked
        self.is_watching = False
        self._ended = False

    async def read(self) -> bytes:
        """The next input, as soon as there is any; empty at the end and ever after. Cancelling loses nothing."""
        # Nothing is awaited between the readiness and the read, so a cancelled reader loses no input.
        while not self._ended:
            self._watch(wanted=True)
            try:
                await self._readable
            except BaseException:
                self._watch(wanted=False)
                raise
            try:
                chunk = os.read(self._descriptor, CHUNK)
            except BlockingIOError:
                continue
            except OSError:  # a terminal that hung up, a connection that was reset
                chunk = b""
            if not chunk:
                self.close()
            return chunk
        return b""

    @property
    def hung_up(self) -> bool:
        """Whether the other end is closed, as far as the kernel tells while unread input is left."""
        return self._ended or bool(self._poll.poll(0))

    def _on_readable(self) -> None:
        # The watch stays on while the reader keeps up: adding and removing it for each read costs as much as the read itself.
        if self._readable.has_waiter:
            self._serve(self._readable.wake)
        else:
            self._watch(wanted=False)

    def _watch(self, *, wanted: bool) -> None:
        if wanted and not self.is_watching:
            self._loop.add_reader(self._descriptor, self._on_readable)
        elif self.is_watching and not wanted:
            self._loop.remove_reader(self._descriptor)
        self.is_watching = wanted

    def close(self) -> None:
        """Stop reading for good."""
        self._ended = True
        self._watch(wanted=False)


class ThreadSource:
    """Reads in its own thread, at most one chunk ahead."""

    def __init__(self, descriptor: int) -> None:
        """For any readable descriptor."""
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._read_requests = threading.Semaphore(0)
        self._is_requested = False
        self._chunk: bytes | None = None
        self._chunk_arrived = Wakeup()
        self._ended = False
        self._thread: threading.Thread | None = None

    async def read(self) -> bytes:
        while not self._ended and self._chunk is None:
            if not self._is_requested:
                self._is_requested = True
                self._read_requests.release()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="greenroom-reader", daemon=True)
                    self._thread.start()
            await self._chunk_arrived.wait()
        chunk, self._chunk = self._chunk or b"", None
        self._ended = self._ended or not chunk
        return chunk

    @property
    def hung_up(self) -> bool:
        """Whether the input has ended: a closed other end shows only when all input is read."""
        return self._ended

    def _run(self) -> None:
        chunk = b"?"
        while chunk:
            self._read_requests.acquire()
            if self._ended:
                return
            chunk = _blocking_read(self._descriptor)
            if not _call_in_loop(self._loop, self._on_chunk, chunk):
                return

    def _on_chunk(self, chunk: bytes) -> None:
        self._is_requested = False
        self._chunk = chunk
        self._chunk_arrived.wake()

    def close(self) -> None:
        """As for `PolledSource`. A thread inside a read stays there until input comes; it is a daemon."""
        self._ended = True
        self._read_requests.release()


if TYPE_CHECKING:
    Source = PolledSource | ThreadSource


class PolledSink(ByteSink):
    """Writes as much as certainly fits whenever the loop reports room."""

    def __init__(self, descriptor: int, *, is_socket: bool) -> None:
        """For a pipe or a socket."""
        super().__init__()
        self._descriptor = descriptor
        self._socket = socket.socket(fileno=os.dup(descriptor)) if is_socket else None
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._queue: deque[memoryview] = deque()
        self._watching = False

    @property
    def has_unwritten(self) -> bool:
        return bool(self._queue)

    def write(self, data: bytes) -> None:
        if self.reader_gone or not data:
            return
        self._queue.append(memoryview(data))
        if not self._watching:
            self._write_queued()

    def close(self) -> None:
        self._on_reader_gone()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _write_queued(self) -> None:
        budget = BYTES_PER_TURN
        try:
            while self._queue and budget > 0:
                written = self._write(self._queue[0])
                if not written:
                    break
                budget -= written
                self.written += written
                rest = self._queue[0][written:]
                if rest:
                    self._queue[0] = rest
                else:
                    self._queue.popleft()
        except OSError:  # a broken pipe, a connection that was reset: the reader is gone
            self._on_reader_gone()
            return
        self._watch(wanted=bool(self._queue))
        if not self._queue:
            self._progress.wake()

    def _write(self, data: memoryview) -> int:
        try:
            if self._socket is not None:
                return self._socket.send(data, socket.MSG_DONTWAIT)
            if not self._poll.poll(0):
                return 0
            return os.write(self._descriptor, data[:SURE_TO_FIT])
        except BlockingIOError:  # another holder has set O_NONBLOCK, or filled the pipe
            return 0

    def _watch(self, *, wanted: bool) -> None:
        if wanted and not self._watching:
            self._loop.add_writer(self._descriptor, self._write_queued)
        elif self._watching and not wanted:
            self._loop.remove_writer(self._descriptor)
        self._watching = wanted

    def _on_reader_gone(self) -> None:
        self.reader_gone = True
        self._queue.clear()
        self._watch(wanted=False)
        self._progress.wake()


class ThreadSink(ByteSink):
    """Writes in its own thread."""

    def __init__(self, descriptor: int) -> None:
        """For any writable descriptor."""
        super().__init__()
        self._descriptor = descriptor
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._unwritten = 0
        self._thread: threading.Thread | None = None

    @property
    def has_unwritten(self) -> bool:
        return self._unwritten > 0 and not self.reader_gone

    def write(self, data: bytes) -> None:
        if self.reader_gone or not data:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="greenroom-writer", daemon=True)
            self._thread.start()
        self._unwritten += 1
        self._queue.put(data)

    def close(self) -> None:
        """As for `ByteSink`. A thread inside a write stays there until the other end reads; it is a daemon."""
        self._on_reader_gone()
        self._queue.put(None)

    def _run(self) -> None:
        while (data := self._queue.get()) is not None and not self.reader_gone:
            if not _blocking_write(self._descriptor, data):
                _call_in_loop(self._loop, self._on_reader_gone)
                return
            if not _call_in_loop(self._loop, self._written):
                return

    def _written(self) -> None:
        self._unwritten -= 1
        self.written += 1
        if not self._unwritten:
            self._progress.wake()

    def _on_reader_gone(self) -> None:
        self.reader_gone = True
        self._progress.wake()


def _blocking_read(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, CHUNK)
        except BlockingIOError:
            select.select([descriptor], [], [])
        except OSError:
            return b""


def _blocking_write(descriptor: int, data: bytes) -> bool:
    """Write everything; False when the reader is gone."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
        except OSError:
            return False
    return True


def _call_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: bytes) -> bool:
    """Call a function in the loop; False when the loop is closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)
        return True
    return False
