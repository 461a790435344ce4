"""A pseudo-terminal for tests: runs a program, renders its screen, and types keys.

The program leads a session with the pty as its controlling terminal, so Ctrl-C signals it alone. Its output is rendered on a screen of unlimited width: carriage
returns, erased lines and colours appear as a user would see them.

"""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import Path

CTRL_C: Final = "\x03"
CTRL_D: Final = "\x04"
WITHIN: Final = 60.0
_LEADER: Final = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)
_SEQUENCE: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class NotSeenError(AssertionError):
    """The expected text did not appear on the screen in time."""


class Terminal:
    """A program on a pseudo-terminal."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], size: tuple[int, int] = (24, 80)
    ) -> None:
        """Start the program. `size` is the number of lines and columns that it sees."""
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, size)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _LEADER, *command],
                cwd=folder,
                env=dict(environment),
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
            )
        finally:
            os.close(slave)
        self.written = ""
        """The raw output."""
        self._seen = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    # --- keys

    def type(self, text: str) -> None:
        """Type these keys."""
        os.write(self._master, text.encode())

    def enter(self, line: str = "") -> None:
        """Type a line and Enter."""
        self.type(f"{line}\n")

    # --- output

    @property
    def screen(self) -> str:
        """The screen: every line as it looks in the end."""
        return shown(self.written)

    @property
    def stream(self) -> str:
        """All output in order, including lines that were erased from the screen."""
        return _SEQUENCE.sub("", self.written.replace("\r\x1b[K", "\n").replace("\r", ""))

    def look(self, seconds: float) -> bool:
        """Read the next output. False if there was none in time, or the program has ended."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        try:
            got = os.read(self._master, 1 << 16)
        except OSError:  # the end of a pty on Linux
            got = b""
        self.written += self._decoder.decode(got)
        return bool(got)

    def see(self, text: str, within: float = WITHIN) -> None:
        """Wait for a text after the last one that was seen. Raises `NotSeenError`."""
        deadline = time.monotonic() + within
        while (found := self.stream.find(text, self._seen)) < 0:
            left = deadline - time.monotonic()
            if left <= 0 or (not self.look(left) and self.process.poll() is not None):
                raise NotSeenError(f"{text!r} does not come; what was written is\n{self.stream}")
        self._seen = found + len(text)

    def end(self, within: float = WITHIN) -> int:
        """Wait for the program's exit. Returns the exit code, or minus the signal."""
        deadline = time.monotonic() + within
        while (left := deadline - time.monotonic()) > 0 and self.look(left):
            pass
        return self.process.wait(max(0.0, deadline - time.monotonic()) + 1.0)

    def close(self) -> None:
        """Kill the program if it still runs."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._master)


@contextmanager
def at_terminal(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], size: tuple[int, int] = (24, 80)
) -> Generator[Terminal]:
    """A terminal that is closed at the end of the block."""
    terminal = Terminal(command, folder, environment, size)
    try:
        yield terminal
    finally:
        terminal.close()


def shown(written: str) -> str:
    """The screen after this output."""
    lines: list[str] = []
    line, column = "", 0
    for part in re.split(r"(\x1b\[[0-9;?]*[A-Za-z]|[\r\n\b])", written):
        if part == "\n":
            lines.append(line)
            line, column = "", 0
        elif part == "\r":
            column = 0
        elif part == "\b":
            column = max(0, column - 1)
        elif part == "\x1b[K":
            line = line[:column]
        elif not _SEQUENCE.fullmatch(part):
            line = line[:column] + part + line[column + len(part) :]
            column += len(part)
    return "\n".join(each.rstrip() for each in [*lines, line])
