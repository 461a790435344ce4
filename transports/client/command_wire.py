"""The wire to a child process: one message a line on its standard input, and back on its standard output.

The wire's process starts the child, waits for the first event that ends the wire, and then ends the child, too. Messages are written
directly to the pipe, and items go directly to the connection: neither passes this process's mailbox. The end has one reason: the exit
status, if there is one, even if a pipe ended a moment earlier. A child that closes its output and runs on is ended, and so is one that
sends no MCP messages. A grandchild that holds the pipes open delays nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections import deque
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, NamedTuple

from greenroom.event_types import ServerWrote
from greenroom.protocol.jsonrpc import OversizedMessage
from greenroom.protocol.sse import LineFramer
from greenroom.supervision import (
    ActorError,
    CallTimeout,
    Exit,
    Quit,
    Shutdown,
    Wakeup,
    current_node,
    receive,
    send,
    spawn,
    spawn_link,
    tracebacks,
    trap_exit,
)
from greenroom.supervision.event_bus import bus

from .child_process import ChildProcess
from .errors import ConnectFailed, ConnectionLost, NotMcp, ProcessDied, TransportError, WireFull
from .interfaces import READ_TURN, Inbound, InvalidMessage, UnansweredRequest, parse_inbound, process_of, unread_mails

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.supervision import ExitReason, Pid

    from .interfaces import Headers, InboundItem
    from .server_command import Command

CHUNK: Final = 64 * 1024
READ_AFTER_EXIT: Final = 1024 * 1024
"""How much is read after the child has exited: more than a pipe holds, and a limit to what a grandchild goes on writing."""
EOF_GRACE: Final = 0.5
"""How long after the end of a pipe the exit status may come."""
UNREAD_MAILS: Final = 16
"""With so many of our mails unread in the connection's mailbox, nothing more is read until it has caught up."""
RETRY_DELAY: Final = 0.005
STDERR_PAUSE: Final = 0.005
"""How long reading pauses for a child that floods its stderr."""


class ChildExited(NamedTuple):
    """The child has exited, and all of its output was delivered."""


class PipeClosed(NamedTuple):
    """One of the child's pipes has ended: it sends nothing more, or reads nothing more."""

    what: str


class GiveUp(NamedTuple):
    """The wire has to end: the child is not an MCP server."""

    error: TransportError


class CommandWire:
    """The wire to one child process, from its start to its end."""

    def __init__(self, command: Command, owner: Pid) -> None:
        """Made by `Command.open`, in the owner's process."""
        self.description = command.description
        self._command = command
        self._owner = process_of(owner)
        self._lines = LineFramer(command.limits.line)
        self._limits = command.limits.messages
        self._backlog: deque[bytes | OversizedMessage] = deque()  # lines that wait for their turn
        self._invalid_in_a_row = 0
        self._given_up = False
        """Set after too many invalid lines: nothing more is delivered."""
        self._stdin = ChildStdin(command.limits.queue, self._on_stdin_closed)
        self._stderr = ChildStderr(command.limits.stderr, command.sink, self._report_stderr)
        self._child: ChildProcess  # set at the start of the process, and so before any callback
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self.pid: Pid = spawn_link(self._run)

    def __repr__(self) -> str:
        return f"<CommandWire {self.description}, process {self.process_id}>"

    @property
    def process_id(self) -> int | None:
        """The child's process id; None before it is started."""
        child: ChildProcess | None = getattr(self, "_child", None)
        return None if child is None else child.pid

    @property
    def stderr(self) -> str:
        """The end of its stderr output."""
        return self._stderr.text()

    # --- the ClientWire interface

    is_http = False

    def send(
        self,
        frame: bytes,
        id: RequestId | None = None,
        *,
        ordered: bool = False,  # noqa: ARG002 - messages are always in order
        mirrored: Headers = (),  # noqa: ARG002 - a pipe has no headers
    ) -> None:
        """Write a message, or queue it. Raises `WireFull`."""
        self._stdin.send(frame, id)

    def forget(self, id: RequestId) -> None:
        """A no-op: nothing is held for a reply."""

    def on_negotiated(self, version: str) -> None:
        """A no-op: the server may send messages at any time."""

    # --- the process

    async def _run(self) -> None:
        trap_exit()
        command = self._command
        try:
            self._child = child = ChildProcess(command.words, command.environment(), command.cwd, command.shown[0])
        except ConnectFailed as error:
            raise Quit(Shutdown(error)) from None
        reason: ExitReason | None = None
        try:
            child.watch(partial(self._guarded, self._on_exit))
            self._stdin.open(child.input, self._loop)
            self._watch_stderr()
            self._resume_reading()
            reason = await self._wait_for_end(child)
        except asyncio.CancelledError:  # killed: kill the child as well, and end only after it
            self._close_pipes(child)
            await child.kill()
            raise
        except NotImplementedError:
            loopless = ConnectFailed(
                "an event loop that cannot watch pipes cannot talk to a child process: use another"
            )
            raise Quit(Shutdown(loopless)) from None
        finally:
            self._stdin.close()
            if reason is None or not child.group_exists():
                child.destroy()
        if child.group_exists():
            _end_in_background(child, command.limits.grace)
        assert reason is not None
        raise Quit(reason)

    async def _wait_for_end(self, child: ChildProcess) -> ExitReason:
        """Wait for the first event that ends the wire, and return the reason."""
        end = await receive(_is_end)
        if isinstance(end, GiveUp):
            return Shutdown(end.error)
        if isinstance(end, PipeClosed):
            try:
                end = await receive(_is_exit, timeout=EOF_GRACE)
            except CallTimeout:
                return self._report_unsent(
                    ConnectionLost(f"the server process ({self.description}) {end.what}, and runs on")
                )
        if isinstance(end, Exit):
            await self._close(child)
            return end.reason
        assert child.status is not None
        return self._report_unsent(ProcessDied(self.description, child.status, self._stderr.text()))

    def _report_unsent(self, error: TransportError) -> Shutdown:
        self._deliver([UnansweredRequest(id, error, resend=True, ending=True) for id in self._stdin.unsent()])
        return Shutdown(error)

    async def _close(self, child: ChildProcess) -> None:
        """Close in order: flush messages, close the input, and read until the child ends, so that its last messages are delivered."""
        grace = self._command.limits.grace
        await self._stdin.wait_drained(grace)
        self._stdin.close()
        await child.end(grace)

    # --- input

    def _guarded(self, function: Callable[[], None]) -> None:
        """Run a callback so that an exception crashes this process, instead of leaving a line in the loop's log and a call that hangs."""
        try:
            function()
        except BaseException as error:
            process = current_node().process(self.pid)
            if process is None:
                raise
            process.crash(error)

    def _resume_reading(self) -> None:
        child = self._child
        if not self._reading and child.is_open(child.output):
            self._reading = True
            self._loop.add_reader(child.output, self._guarded, self._on_output)

    def _pause_reading(self, child: ChildProcess) -> None:
        self._reading = False
        self._loop.remove_reader(child.output)

    def _on_output(self) -> None:
        child = self._child
        chunk = _read(child.output)
        if chunk is None:
            return
        if not chunk:
            self._pause_reading(child)
            self._deliver_rest()
            send(self.pid, PipeClosed("has closed its output"))
            return
        self._backlog.extend(self._lines.feed(chunk))
        self._deliver_backlog()

    def _deliver_backlog(self) -> None:
        """Deliver queued lines for at most one turn; nothing more is read before all are delivered."""
        child = self._child
        self._deliver_lines(perf_counter() + READ_TURN)
        if not child.is_open(child.output):
            return
        if self._given_up:
            self._pause_reading(child)
        elif self._owner_is_behind():
            self._pause_reading(child)
            self._loop.call_later(RETRY_DELAY, self._retry_delivery)
        elif self._backlog:
            self._pause_reading(child)
            self._loop.call_soon(self._guarded, self._deliver_backlog)
        else:
            self._resume_reading()

    def _retry_delivery(self) -> None:
        if self._owner_is_behind():
            self._loop.call_later(RETRY_DELAY, self._retry_delivery)
        else:
            self._guarded(self._deliver_backlog)

    def _owner_is_behind(self) -> bool:
        return unread_mails(self._owner) > UNREAD_MAILS

    def _deliver_lines(self, until: float = math.inf) -> None:
        items: list[InboundItem] = []
        behind = self._backlog
        while behind:
            if self._given_up:
                behind.clear()  # a chunk may hold thousands of lines, and the connection needs none of them
                break
            self._parse_line(behind.popleft(), items)
            if perf_counter() > until:
                break
        self._deliver(items)

    def _parse_line(self, line: bytes | OversizedMessage, items: list[InboundItem]) -> None:
        if type(line) is bytes and (not line or line.isspace()):
            return
        message = parse_inbound(line, self._limits)
        items.append(message)
        if type(message) is not InvalidMessage:
            self._invalid_in_a_row = 0
            return
        self._invalid_in_a_row += 1
        if self._invalid_in_a_row == self._command.limits.quarantine:
            what = f"{self.description} is no MCP server: {self._invalid_in_a_row} lines in a row were invalid messages, the last was {message.sample!r}"
            self._given_up = True
            send(self.pid, GiveUp(NotMcp(what)))

    def _deliver_rest(self) -> None:
        """Deliver what is queued, and a last line without a line end."""
        last = self._lines.end()
        if last is not None:
            self._backlog.append(last)
        self._deliver_lines()

    def _deliver(self, items: list[InboundItem]) -> None:
        if items:
            self._owner.send(Inbound(self.pid, items))

    def _report_stderr(self, text: str) -> None:
        if bus.detail_listener is not None:
            bus.detail_listener(ServerWrote(process=self._child.pid, command=self.description, text=text))

    def _on_stderr(self) -> None:
        child = self._child
        if child.is_open(child.errors) and self._stderr.read(child.errors):
            self._loop.remove_reader(child.errors)
            self._loop.call_later(STDERR_PAUSE, self._watch_stderr)

    def _watch_stderr(self) -> None:
        child = self._child
        if child.is_open(child.errors) and not self._stderr.has_ended:
            self._loop.add_reader(child.errors, self._guarded, self._on_stderr)

    def _on_stdin_closed(self) -> None:
        send(self.pid, PipeClosed("has closed its input"))

    def _on_exit(self) -> None:
        """The child has exited: what is left in the pipes is all of its output."""
        child = self._child
        if child.is_open(child.output):
            left = READ_AFTER_EXIT
            while left > 0 and (chunk := _read(child.output)):
                left -= len(chunk)
                self._backlog.extend(self._lines.feed(chunk))
                self._deliver_lines()
            self._deliver_rest()
            self._stderr.read_rest(child.errors)
        self._close_pipes(child)
        send(self.pid, ChildExited())

    def _close_pipes(self, child: ChildProcess) -> None:
        """Close the pipes, the written one first: its number may soon belong to another file."""
        self._stdin.close()
        child.close_pipes()


async def end_child(child: ChildProcess, grace: float) -> None:
    """A process that ends what is left of a child after its wire has ended, so that nothing has to wait for it."""
    try:
        child.close_pipes()
        await child.end(grace, politely=False)
    except asyncio.CancelledError:
        await child.kill()
        raise
    finally:
        child.destroy()


def _end_in_background(child: ChildProcess, grace: float) -> None:
    try:
        spawn(end_child, child, grace)
    except ActorError:  # the node is closing and starts no processes
        child.destroy()


def _is_end(message: object) -> bool:
    return isinstance(message, Exit | ChildExited | PipeClosed | GiveUp)


def _is_exit(message: object) -> bool:
    return isinstance(message, Exit | ChildExited)


# --- The child's stderr: always read, since a full pipe would block the child; its end is kept, and each line passed to the callback and to listeners of details.

log = logging.getLogger("greenroom.command")

STDERR_LINE: Final = 16 * 1024


class ChildStderr:
    """The end of the child's stderr output."""

    def __init__(self, limit: int, sink: Callable[[str], None] | None, report: Callable[[str], None]) -> None:
        """`limit` is how many bytes are kept. `report` gets each line while a listener of details is there, and `sink`, which is user code, always."""
        self._limit = limit
        self._sink = sink
        self._report = report
        self._tail = b""
        self._cut = False
        self._lines = LineFramer(STDERR_LINE)
        self.has_ended = False
        """Whether it has ended."""

    def text(self) -> str:
        """The output that is kept, from the start of a line where possible."""
        tail = self._tail
        if self._cut and b"\n" in tail[:-1]:
            tail = tail[tail.index(b"\n") + 1 :]
        return tail.decode(errors="replace").strip()

    def read(self, descriptor: int) -> bool:
        """Read what is available, or the end; returns whether to pause reading."""
        chunk = _read(descriptor)
        if chunk is None:
            return False
        self.has_ended = not chunk
        self._append(chunk)
        return len(chunk) in (
            0,
            CHUNK,
        )  # a full chunk means that more is there, and a child could write for ever

    def read_rest(self, descriptor: int) -> None:
        """Read the rest after the child has exited: no more than a pipe holds, since grandchildren may go on writing."""
        for _ in range(16):
            chunk = _read(descriptor)
            if not chunk:
                break
            self._append(chunk)
        last = self._lines.end()
        if last is not None:
            self._deliver(last)

    def _append(self, chunk: bytes) -> None:
        tail = self._tail + chunk[-self._limit :]
        self._cut = self._cut or len(self._tail) + len(chunk) > self._limit
        self._tail = tail[-self._limit :]
        if self._sink is not None or bus.detail_listener is not None:
            for line in self._lines.feed(chunk):
                self._deliver(line)

    def _deliver(self, line: bytes | OversizedMessage) -> None:
        text = (
            line.head.decode(errors="replace") + "…"
            if isinstance(line, OversizedMessage)
            else line.decode(errors="replace")
        )
        self._report(text)
        sink = self._sink
        if sink is None:
            return
        try:
            sink(text)
        except Exception:  # noqa: BLE001 - the callback is user code: its errors are logged
            tracebacks.log_error(
                log,
                "the stderr callback of a server process raised an exception and is not called again",
            )
            self._sink = None


def _read(descriptor: int) -> bytes | None:
    """The available input; empty at the end; None if nothing is available."""
    try:
        return os.read(descriptor, CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""


# --- The child's stdin: written at once where it fits, otherwise queued in order, with a limit.
# Our end of the pipe does not block. The messages of one turn of the loop are written one after the other.


class ChildStdin:
    """The writer of the child's standard input."""

    def __init__(self, limit: int, on_closed: Callable[[], None]) -> None:
        """`limit` is how many bytes may be queued. `on_closed` is called once when the child reads no more."""
        self._limit = limit
        self._on_stdin_closed = on_closed
        self._descriptor: int | None = None
        self._loop: asyncio.AbstractEventLoop
        self._frames: deque[tuple[bytes | memoryview, RequestId | None]] = deque()
        self._partly_written = False
        self._waiting = 0
        self._is_watching = False
        self._ended = False
        self._progress = Wakeup()

    def open(self, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
        """The pipe is open: write what was queued."""
        self._descriptor, self._loop = descriptor, loop
        self._flush()

    def send(self, frame: bytes, id: RequestId | None) -> None:
        """Write a message. Raises `WireFull`; ignores it if the pipe has no reader, since the wire ends then."""
        if self._ended:
            return
        data = frame if frame.endswith(b"\n") else frame + b"\n"
        if self._descriptor is None or self._frames:
            if self._waiting >= self._limit:
                raise WireFull(
                    f"{self._waiting:,} bytes are queued for a server that does not read; this message was not accepted"
                )
            self._waiting += len(data)
            self._frames.append((data, id))
            return
        try:
            written = os.write(self._descriptor, data)
        except BlockingIOError:
            written = 0
        except OSError:
            self._on_broken_pipe()
            return
        if written < len(data):
            self._partly_written = written > 0
            self._frames.append((memoryview(data)[written:], id))
            self._waiting = len(data) - written
            self._watch_writable()

    def unsent(self) -> list[RequestId]:
        """The ids of requests of which no byte was written."""
        frames = list(self._frames)[1 if self._partly_written else 0 :]
        return [id for _, id in frames if id is not None]

    async def wait_drained(self, seconds: float) -> None:
        """Wait until everything is written, or the time is up."""
        if self._frames and not self._ended:
            await self._progress.wait(seconds)

    def close(self) -> None:
        """Stop writing."""
        self._ended = True
        self._unwatch_writable()
        self._progress.wake()

    def _flush(self) -> None:
        assert self._descriptor is not None
        while self._frames:
            data, id = self._frames[0]
            try:
                written = os.write(self._descriptor, data)
            except BlockingIOError:
                self._watch_writable()
                return
            except OSError:
                self._on_broken_pipe()
                return
            self._waiting -= written
            if written < len(data):
                self._partly_written = True
                self._frames[0] = (memoryview(data)[written:], id)
                self._watch_writable()
                return
            self._partly_written = False
            self._frames.popleft()
        self._unwatch_writable()
        self._progress.wake()

    def _watch_writable(self) -> None:
        if not self._is_watching:
            assert self._descriptor is not None
            self._is_watching = True
            self._loop.add_writer(self._descriptor, self._flush)

    def _unwatch_writable(self) -> None:
        if self._is_watching and self._descriptor is not None:
            self._is_watching = False
            if not self._loop.is_closed():
                self._loop.remove_writer(self._descriptor)

    def _on_broken_pipe(self) -> None:
        self.close()
        self._on_stdin_closed()
