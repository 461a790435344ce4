"""The application's handle on its daemon: the process, the socket to it, and the death pipe. It uses the event loop, and no actors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from greenroom.supervision.private_files import anonymous_file

from . import os_processes
from .bootstrap import DeathPipe, encoded_paths
from .daemon_protocol import DaemonMessage, MessageUnpacker, pack
from .node_records import EngineFailed

if TYPE_CHECKING:
    from collections.abc import Callable

_PROGRAM: Final = """
import os, socket, sys
control = socket.socket(fileno=int(sys.argv[1]))
size = int.from_bytes(control.recv(4, socket.MSG_WAITALL), "big")
sys.path[:] = os.fsdecode(control.recv(size, socket.MSG_WAITALL)).split("\\0")
from greenroom.supervision.cluster.daemon_main import main
main(control, int(sys.argv[2]))
"""
_CHUNK: Final = 1 << 16
_MOST_ERROR_TEXT: Final = 4_000
_MARK: Final = "GREENROOM_DAEMON"
"""An environment variable of the daemon that everything below inherits, also programs that nodes execute: it tells which daemon they belong to."""
_SWEEP_AGAIN: Final = (0.1, 1.0)
"""After a disorderly end, processes with that variable are killed, and again after these seconds: one may have forked in between."""
_UNREAPED: Final = 1.0
"""How long the process may take to exit once it has closed the socket."""


class DaemonHandle:
    """One daemon process. `on_message` is called in the loop with each of its messages, and with None when it has ended."""

    def __init__(self, on_message: Callable[[DaemonMessage | None], object]) -> None:
        """Start the process. Raises `EngineFailed`, and leaves nothing behind then."""
        if not sys.executable:
            raise EngineFailed("processes are started with sys.executable, which is not known here: set it to a Python")
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._unpacker = MessageUnpacker()
        self._out = bytearray()
        self.status: int | None = None
        self.over = False
        """Whether the process has ended, or was released."""
        self.ended = asyncio.Event()
        self._end_timer: asyncio.TimerHandle | None = None
        self._mark = secrets.token_hex(16)
        with contextlib.ExitStack() as undone:
            try:
                self.death_pipe = DeathPipe()
                undone.callback(self.death_pipe.cut)
                self._sock, theirs = socket.socketpair()
                undone.callback(self._sock.close)
                with theirs:
                    # Its standard error, for failures before it can use its socket. A file and not a pipe: the writer never waits for a reader.
                    self._errors = undone.enter_context(anonymous_file())
                    # An executed program and not a fork: a fork of the application would hold its memory, its descriptors and whatever locks its threads
                    # held at that moment, and could not fork safely itself. -P keeps the working directory out of the path until the real path is sent. The
                    # new session keeps the terminal's SIGINT away, so that the application alone decides when the daemon ends.
                    self._process = subprocess.Popen(  # noqa: S603 - our own words
                        [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno()), str(self.death_pipe.reading)],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=self._errors,
                        env={**os.environ, _MARK: self._mark},
                        pass_fds=(theirs.fileno(), self.death_pipe.reading),
                        start_new_session=True,
                    )
            except OSError as error:
                raise EngineFailed(f"cannot start {sys.executable}: {error}") from error
            undone.pop_all()  # from here on all of it lives as long as the process
        self.death_pipe.handed_over()
        self.pid = self._process.pid
        self._process.returncode = (
            0  # this class reaps the process: Popen must not, nor warn of a child that was not waited for
        )
        self._pidfd = os_processes.open_pidfd(self.pid)
        self._sock.setblocking(False)  # noqa: FBT003 - socket's own word
        self._loop.add_reader(self._sock.fileno(), self._readable)
        path = b"\0".join(encoded_paths(sys.path))
        self._write(len(path).to_bytes(4, "big") + path)

    def __repr__(self) -> str:
        return f"<DaemonHandle {self.pid}{', over' if self.over else ''}>"

    # --- out

    def send(self, message: DaemonMessage) -> None:
        """Send a message; no-op when the daemon is gone."""
        if not self.over:
            self._write(pack(message))

    def _write(self, data: bytes) -> None:
        waits = bool(self._out)
        self._out += data
        if not waits:
            self._writable()

    def _writable(self) -> None:
        try:
            del self._out[: self._sock.send(self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self._out.clear()  # the reader notices the end
        if self._out:
            self._loop.add_writer(self._sock.fileno(), self._writable)
        else:
            self._loop.remove_writer(self._sock.fileno())

    # --- in

    def _readable(self) -> None:
        try:
            data = self._sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_closed()
            return
        try:
            for message in self._unpacker.feed(data):
                self._on_message(message)
        except ValueError:
            self.kill()

    def _on_closed(self) -> None:
        """The daemon has closed its socket, as it does when it ends. Wait a moment for the exit status."""
        self.release()
        if self.ended.is_set():
            self._on_message(None)
        else:
            self._end_timer = self._loop.call_later(_UNREAPED, self._report_end)

    def _report_end(self) -> None:
        self._end_timer = None
        self._on_message(None)

    # --- the end

    def kill(self) -> None:
        """Kill the daemon and every process below it, at once."""
        self.death_pipe.cut()
        if self.ended.is_set():
            return
        os_processes.send_signal(signal.SIGKILL, self.pid, self._pidfd)

    def release(self) -> None:
        """Close the death pipe and the socket, and reap the process when it exits. Calling it again is a no-op."""
        self.death_pipe.cut()
        if self.over:
            return
        self.over = True
        if not self._loop.is_closed():
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        if not self._reap() and not self._loop.is_closed():
            if self._pidfd is not None:
                self._loop.add_reader(self._pidfd, self._reap)
            else:
                self._loop.call_later(0.01, self._poll_exit)

    def _poll_exit(self) -> None:
        if not self._reap():
            self._loop.call_later(0.01, self._poll_exit)

    def _reap(self) -> bool:
        try:
            found, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # other code has reaped it
            found, status = self.pid, 0
        if not found:
            return False
        self.status = os.waitstatus_to_exitcode(status)
        if self._pidfd is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        if self.status != 0:  # a daemon that died disorderly has not killed what its nodes' code had started
            self._end_all()
            if not self._loop.is_closed():
                for seconds in _SWEEP_AGAIN:
                    self._loop.call_later(seconds, self._end_all)
        self.ended.set()
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._report_end()
        return True

    def _end_all(self) -> None:
        for pid in os_processes.started_with(_MARK, self._mark):
            os_processes.send_signal(signal.SIGKILL, pid)

    def error_output(self) -> str:
        """The process's standard error, such as Python's own message when it could not start."""
        if self._errors.closed:
            return ""
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")[-_MOST_ERROR_TEXT:].strip()
        self._errors.close()
        return text
