"""The stdio transport: one message a line on standard input and output, one peer, for as long as the program runs.

The process (`StdioProcess`) owns two helper processes: one reads lines and passes them to the channel, one writes replies. Everything that must survive them is
in the `StdioWire`, which belongs to the code that made the child spec: a restarted process continues in the middle of a line, with the same session. Reading
waits until replies are written, so a peer that does not read its replies is not read from and costs no memory. If it has closed its input and reads no output
for a grace period, it counts as gone.

At the end of the input, running calls get a grace period, then the session ends, and the process stays idle, since a permanent child would be
restarted. A caller that waits for the end waits for `StdioWire.finished`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

from greenroom.protocol.jsonrpc import OversizedMessage, too_long_error
from greenroom.protocol.sse import LineFramer
from greenroom.supervision import (
    NORMAL,
    Exit,
    GenServer,
    Normal,
    Quit,
    Shutdown,
    Stop,
    child,
    clock,
    current_node,
    kill,
    self_pid,
    send_after,
    spawn_link,
    wait_down,
)

from .descriptor_io import open_sink, open_source
from .interfaces import Peer
from .session_channel import SessionChannel

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from greenroom.supervision import ChildSpec, ExitReason, Pid, Ref

    from .descriptor_io import ByteSink, Source
    from .interfaces import SessionRouter

LINE_LIMIT = 4 * 1024 * 1024
GRACE = 5.0
PARENT_CHECKS = 2.0
"""How often to check whether the parent process is alive, which a pipe held open by other processes does not tell, and whether the peer is."""
_LINES_PER_TURN = 32
"""How many lines are processed before other tasks get a turn."""
_COPY_LIMIT = 256 * 1024
"""Up to this size messages are joined into one write."""
_SHORTEST_WATCH = 0.05
"""The shortest time for which a peer that may be gone is watched, since the grace may be 0."""
_FINAL_REPLIES = 0.2
"""How long ending the session may take to answer pending requests."""

_CHECK_PEER = "is the peer still there?"


class StdioWire:
    """Two descriptors and the channel behind them: all state that a restarted process continues with."""

    source: Source
    sink: ByteSink
    _busy_poll: BusyPoll

    def __init__(self, router: SessionRouter, input: int, output: int, *, line_limit: int = LINE_LIMIT) -> None:  # noqa: A002
        """`input` and `output` remain the caller's: they are not closed here."""
        self._descriptors = input, output
        self._opened = False
        self._lines = LineFramer(line_limit)
        self._unread_lines: deque[bytes | OversizedMessage] = deque()
        self.channel = SessionChannel(router, Peer("stdio"), self.write, line_limit)
        self.input_ended = False
        self.ending = asyncio.Event()
        self.finished = asyncio.Event()

    def open(self) -> None:
        """Open source and sink in the running loop, once."""
        if not self._opened:
            self.source = open_source(self._descriptors[0], current_node().serve)
            self.sink = open_sink(self._descriptors[1])
            self._busy_poll = BusyPoll(asyncio.get_running_loop())
            self._opened = True

    def close(self) -> None:
        """Close source and sink."""
        if self._opened:
            self.source.close()
            self.sink.close()

    async def write(self, messages: Sequence[bytes]) -> None:
        """Write messages and wait until they are written. Ends the calling process when the reader is gone."""
        if sum(map(len, messages)) <= _COPY_LIMIT:
            self.sink.write(b"\n".join((*messages, b"")))
        else:  # copying a long message would hold up every other task
            for message in messages:
                self.sink.write(message)
                self.sink.write(b"\n")
        if not self.channel.pending:
            self._busy_poll.on_all_answered()
        if self.sink.has_unwritten:
            await self.sink.wait_drained()
        if self.sink.reader_gone:
            raise Quit(NORMAL)

    async def read(self) -> None:
        """Process line after line until the input ends."""
        sink, unread = self.sink, self._unread_lines
        left = _LINES_PER_TURN
        while True:
            while unread:
                if sink.has_unwritten:
                    await sink.wait_drained()
                line = unread.popleft()
                if isinstance(line, OversizedMessage):
                    await asyncio.sleep(0)  # errors of earlier lines are reported first
                    await self.channel.refuse(too_long_error(line, self._lines.limit))
                elif line.strip():
                    await self.channel.receive(line)
                left -= 1
                if not left:  # a peer that sends without a pause must not starve other tasks
                    left = _LINES_PER_TURN
                    await asyncio.sleep(0)
            if self.input_ended:
                return
            chunk = await self.source.read()
            self._busy_poll.on_input()
            if chunk:
                unread.extend(self._lines.feed(chunk))
                continue
            self.input_ended = True
            last = self._lines.end()
            if last is not None:
                unread.append(last)

    async def finish(self, grace: float) -> None:
        """The input has ended: let running calls be answered, and end the session."""
        deadline = asyncio.get_running_loop().time() + grace
        if not self.sink.reader_gone:
            await self.channel.wait_settled(grace)
        await self.channel.end()
        # Ending the session answers what is still pending. That takes a moment, even if the grace is over.
        deadline = max(deadline, asyncio.get_running_loop().time() + _FINAL_REPLIES)
        if not self.sink.reader_gone:
            await self.channel.wait_settled(deadline - asyncio.get_running_loop().time())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self.sink.wait_drained()

    async def finish_for_good(self, grace: float) -> None:
        """Finish, and mark the wire as finished: the peer is gone, or will send nothing more."""
        self.ending.set()
        await self.finish(grace)
        self.finished.set()


class StdioProcess(GenServer):
    """The process that serves standard input and output."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, wire: StdioWire, grace: float = GRACE, parent_checks: float = PARENT_CHECKS) -> None:
        """`grace` is how long running calls may take after the end of the input, or when the program stops."""
        self._wire = wire
        self._grace = grace
        self._parent_checks = parent_checks
        self._parent = os.getppid()
        self._last_written = 0
        self._last_written_at = 0.0  # a loop time, which starts anywhere: `init` sets it
        self._reader: Pid | None = None
        self._writer: Pid | None = None
        self._finisher: Pid | None = None

    def init(self) -> None:
        """Start, or continue where a crashed predecessor stopped."""
        if self._wire.finished.is_set():
            return
        self._wire.open()
        self._last_written, self._last_written_at = self._wire.sink.written, asyncio.get_running_loop().time()
        self._writer = spawn_link(self._wire.channel.forward_replies)
        self._reader = spawn_link(self._wire.read)
        self._check_peer_later()

    def handle_info(self, message: object) -> Stop | None:
        """A helper has ended, or it is time to check the parent and the peer."""
        match message:
            case Exit(pid=pid) if self._finisher is not None and pid != self._finisher:
                pass  # the helpers are no longer needed
            case Exit(reason=Normal()):
                self._start_finishing()
            case Exit(reason=reason):
                return Stop(reason)
            case _ if message == _CHECK_PEER:
                if os.getppid() != self._parent:
                    self._start_finishing()
                elif self._is_abandoned() or self._wire.sink.reader_gone:
                    self._start_finishing(0.0)
                elif self._finisher is None:
                    self._check_peer_later()
            case _:
                return super().handle_info(message)  # type: ignore[return-value]
        return None

    def _check_peer_later(self) -> None:
        send_after(min(self._parent_checks, max(self._grace, _SHORTEST_WATCH)), self_pid(), _CHECK_PEER)

    def _is_abandoned(self) -> bool:
        """Whether the peer has closed its end of the input and read no output for the grace period."""
        wire, now = self._wire, asyncio.get_running_loop().time()
        if not wire.sink.has_unwritten or wire.sink.written != self._last_written or not wire.source.hung_up:
            self._last_written, self._last_written_at = wire.sink.written, now
        return now - self._last_written_at >= max(self._grace, _SHORTEST_WATCH)

    def _start_finishing(self, grace: float | None = None) -> None:
        """The input has ended, the output has no reader, or the parent is dead."""
        if self._finisher is None:
            self._finisher = spawn_link(self._wire.finish_for_good, self._grace if grace is None else grace)
            assert self._reader is not None
            kill(self._reader)

    async def terminate(self, reason: ExitReason) -> None:
        """Stop: read no more, but answer pending requests."""
        if isinstance(reason, Shutdown) and self._reader is not None and not self._wire.finished.is_set():
            kill(self._reader)
            await wait_down(self._reader)
            await self._wire.finish(self._grace)


def stdio_child(wire: StdioWire, *, name: Hashable | None = None, grace: float = GRACE) -> ChildSpec[Ref[StdioProcess]]:
    """The spec of a permanent child that serves `wire`."""
    return child(StdioProcess, wire, grace).but(id="stdio", name=name, shutdown=2 * grace + 1)


# --- Busy-poll: keep the loop running for a peer that sends its next request at once.
# An idle program is put to sleep, and waking it takes longer than many a call: scheduler time, and a processor whose caches are cold. A
# peer that sends one request after another, each right after the last reply, pays that every time. So after a reply that leaves nothing
# pending, the loop is kept turning for a moment, but only if the last request came within such a moment, too: a slow peer costs nothing,
# and a fast one costs one moment when it stops. No task is held up, since every turn of the loop serves what has arrived.

BUSY_POLL_WINDOW = 1e-4
"""A peer is fast if its next request comes within so many seconds of a reply."""
BUSY_POLL_TURNS = 32
"""For how many turns the loop is kept busy: at most a moment, and bounded independently of the clock."""


class BusyPoll:
    """The busy-poll for one peer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, processors: int | None = None) -> None:
        """`processors` is how many there are; with one, busy-polling would keep the peer from running."""
        self._loop = loop
        self._is_useful = (processors or os.cpu_count() or 1) > 1
        self._answered_at = -BUSY_POLL_WINDOW
        self._is_fast_peer = False
        self._left = 0

    @property
    def is_polling(self) -> bool:
        """Whether the loop is being kept busy."""
        return self._left > 0

    def on_input(self) -> None:
        """Input has arrived."""
        self._is_fast_peer = self._is_useful and clock.now(self._loop) - self._answered_at < BUSY_POLL_WINDOW

    def on_all_answered(self) -> None:
        """Every request of the peer is answered."""
        self._answered_at = clock.now(self._loop)
        if self._is_fast_peer:
            if not self._left:
                self._loop.call_soon(self._spin)
            self._left = BUSY_POLL_TURNS

    def _spin(self) -> None:
        self._left -= 1
        if self._left:
            self._loop.call_soon(self._spin)


# --- The standard streams, taken away from the rest of the program.
# Under stdio, descriptor 1 is the protocol, and one `print` in a tool, in a C library or in a child process would break a message. So both
# descriptors are duplicated to other numbers; then 1 leads to stderr and 0 to the null device. What Python has buffered by then goes to
# stderr, too. It stays so after the peer has gone. Replacing `sys.stdout` alone would miss C libraries and child processes.

STDIN, STDOUT, STDERR = 0, 1, 2


class StandardStreams:
    """The original standard streams, under descriptors that no other code knows and no child inherits."""

    def __init__(self) -> None:
        """Take both away."""
        self.input = _duplicate_above_stderr(STDIN)
        self.output = _duplicate_above_stderr(STDOUT)
        _redirect(STDIN, os.devnull, os.O_RDONLY)
        _redirect_stdout_to_stderr()
        _flush(sys.stdout)
        out: Any = sys.stdout
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(line_buffering=True)  # messages for people appear when they are printed

    def close(self) -> None:
        """Replace both by the null device. They are not closed, since a thread may still use the number, which must not become another file."""
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, self.input, inheritable=False)
        os.dup2(nothing, self.output, inheritable=False)
        os.close(nothing)

    def give_back(self) -> None:
        """Restore the standard streams, for a caller that knows that the output is not read as protocol."""
        _flush(sys.stdout)
        os.dup2(self.input, STDIN)
        os.dup2(self.output, STDOUT)
        os.close(self.input)
        os.close(self.output)


def _duplicate_above_stderr(descriptor: int) -> int:
    """Duplicate to a number above stderr's; the null device if the descriptor is closed."""
    low: list[int] = []
    try:
        moved = _duplicate(descriptor)
        while moved <= STDERR:  # a program started without one of the standard streams gets its number here
            low.append(moved)
            moved = _duplicate(descriptor)
        return moved
    finally:
        for each in low:
            os.close(each)


def _duplicate(descriptor: int) -> int:
    try:
        return os.dup(descriptor)
    except OSError:
        return os.open(os.devnull, os.O_RDWR)


def _redirect(descriptor: int, path: str, flags: int) -> None:
    there = os.open(path, flags)
    if there != descriptor:  # a program started without this stream gets that very number
        os.dup2(there, descriptor)
        os.close(there)


def _redirect_stdout_to_stderr() -> None:
    try:
        os.dup2(STDERR, STDOUT)
    except OSError:
        _redirect(STDOUT, os.devnull, os.O_WRONLY)


def _flush(stream: Any) -> None:
    with contextlib.suppress(
        AttributeError, OSError, ValueError
    ):  # None, broken or closed: nothing is lost that could be saved
        stream.flush()
