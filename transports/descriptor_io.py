"""Reading and writing descriptors that others may hold as well, without blocking the loop and without changing them for the other holders.

`O_NONBLOCK` belongs to what is open, not to the process that opened it: set on the one end of a terminal or of a shared pipe, it turns the
`print` of every other holder into an error. So nothing here sets it. What the loop can poll is read when there is something, and
written in pieces that are sure to fit; what it cannot poll (files, some devices, everything on Windows) gets a daemon thread.

Both ends keep what is under way in themselves: the process that reads or writes through them may be killed at any moment, and
the next one goes on where it was, in the middle of a line if need be.
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
"""What a pipe that is ready for writing takes without blocking."""
BYTES_PER_TURN = 1024 * 1024
"""What is written before the loop gets its turn, to a reader that takes everything at once."""


def _call_directly(step: Callable[[], object]) -> None:
    step()


class ByteSink(ABC):
    """Where bytes go."""

    def __init__(self) -> None:
        """Of the running loop, whose tasks wait for it."""
        self._loop = asyncio.get_running_loop()
        self._progress = Wakeup()
        self.reader_gone = False
        """Whether their reader has reader_gone: whatever is put then is dropped."""
        self.written = 0
        """Grows with whatever is written: a number that stays is a reader that does not read."""

    @property
    @abstractmethod
    def has_unwritten(self) -> bool:
        """Whether anything is still to be written, to a reader that may take it."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Begin to write it, behind what is being written. A writer waits for `wait_drained` before the next: that is the bound."""

    async def wait_drained(self) -> None:
        """Wait until everything is written, or the reader has reader_gone."""
        while self.has_unwritten:
            await self._progress.wait()

    @abstractmethod
    def close(self) -> None:
        """End it: there will be no more writes, and what has not been written is dropped."""


def open_source(descriptor: int, serve: Serve = _call_directly) -> Source:
    """The way to read it; a reader that the loop wakes goes on within `serve`."""
    return PolledSource(descriptor, serve) if _pollable(descriptor) else ThreadSource(descriptor)


def open_sink(descriptor: int) -> ByteSink:
    """The way to write it."""
    kind = os.fstat(descriptor).st_mode
    if _pollable(descriptor) and (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        return PolledSink(descriptor, is_socket=stat.S_ISSOCK(kind))
    return ThreadSink(descriptor)  # a terminal that is stopped takes nothing, and polls as if it did


def _pollable(descriptor: int) -> bool:
    """Whether the running loop can watch it."""
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
    """Read when the loop says that there is something."""

    def __init__(self, descriptor: int, serve: Serve = _call_directly) -> None:
        """A pipe, a socket or a terminal; the reader goes on within `serve`, in the moment that there is something."""
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._serve = serve
        self._readable = DirectWakeup(self._loop)
        self._poll = select.poll()
        self._poll.register(descriptor, getattr(select, "POLLRDHUP", 0))  # a pipe hangs up, asked or not
        self.is_watching = False
        self._ended = False

    async def read(self) -> bytes:
        """What has come, as soon as anything has; empty at the end, and ever after. Cancelling it loses nothing."""
        # There is no wait between the readiness and the read, so nothing can be lost in between.
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
            except OSError:  # a terminal that was hung up, a connection that was reset
                chunk = b""
            if not chunk:
                self.close()
            return chunk
        return b""

    @property
    def hung_up(self) -> bool:
        """Whether the other end was closed, as far as can be told without reading what came before that."""
        return self._ended or bool(self._poll.poll(0))

    def _on_readable(self) -> None:
        # Watched for as long as it is read as fast as it comes, since to begin and to end that for each read costs as much as the read.
        if self._readable.taken:
            self._serve(self._readable.open)
        else:
            self._watch(wanted=False)

    def _watch(self, *, wanted: bool) -> None:
        if wanted and not self.is_watching:
            self._loop.add_reader(self._descriptor, self._on_readable)
        elif self.is_watching and not wanted:
            self._loop.remove_reader(self._descriptor)
        self.is_watching = wanted

    def close(self) -> None:
        """End it: there will be no more reads."""
        self._ended = True
        self._watch(wanted=False)


class ThreadSource:
    """Read in a thread of its own, one chunk ahead at the most."""

    def __init__(self, descriptor: int) -> None:
        """Anything that can be read."""
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._read_requests = threading.Semaphore(0)
        self._is_requested = False
        self._chunk: bytes | None = None
        self._chunk_arrived = Wakeup()
        self._ended = False
        self._thread: threading.Thread | None = None

    async def read(self) -> bytes:
        """As of `PolledSource`: what a cancelled reader has asked for is there for the next one."""
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
        """As of `PolledSource`."""
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
        """As of `PolledSource`. A thread that is inside a read stays there until something comes; it is a daemon."""
        self._ended = True
        self._read_requests.release()


if TYPE_CHECKING:
    Source = PolledSource | ThreadSource


class PolledSink(ByteSink):
    """Write what is sure to fit whenever the loop says that something does."""

    def __init__(self, descriptor: int, *, is_socket: bool) -> None:
        """A pipe or a socket."""
        super().__init__()
        self._descriptor = descriptor
        self._socket = socket.socket(fileno=os.dup(descriptor)) if is_socket else None
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._queue: deque[memoryview] = deque()
        self._watching = False

    @property
    def has_unwritten(self) -> bool:
        """As `ByteSink` says."""
        return bool(self._queue)

    def write(self, data: bytes) -> None:
        """As `ByteSink` says."""
        if self.reader_gone or not data:
            return
        self._queue.append(memoryview(data))
        if not self._watching:
            self._write_queued()

    def close(self) -> None:
        """As `ByteSink` says."""
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
        except OSError:  # a broken pipe, a connection that was reset: the peer is reader_gone
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
        except BlockingIOError:  # another holder has set O_NONBLOCK, or taken the room
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
    """Write in a thread of its own."""

    def __init__(self, descriptor: int) -> None:
        """Anything that can be written."""
        super().__init__()
        self._descriptor = descriptor
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._unwritten = 0
        self._thread: threading.Thread | None = None

    @property
    def has_unwritten(self) -> bool:
        """As `ByteSink` says."""
        return self._unwritten > 0 and not self.reader_gone

    def write(self, data: bytes) -> None:
        """As `ByteSink` says."""
        if self.reader_gone or not data:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="greenroom-writer", daemon=True)
            self._thread.start()
        self._unwritten += 1
        self._queue.put(data)

    def close(self) -> None:
        """As `ByteSink` says. A thread that is inside a write stays there until the other end reads; it is a daemon."""
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
    """Write all of it; False when the reader has reader_gone."""
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
    """Call it in the loop; False when there is none any more."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)
        return True
    return False
