"""Server processes: pinned to a core, with CPU time and memory read from the system, and reliably ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

TICKS = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).parents[2]


class NotServing(Exception):
    """The program ended or did not listen in time; the text is its last output."""


class Served:
    """A server's process."""

    def __init__(self, command: Sequence[str], port: int, said: IO[bytes], *, core: int | None) -> None:
        """Start it, pinned to its core from the start."""
        pin = ["taskset", "--cpu-list", str(core)] if core is not None else []
        self.port = port
        self.process = subprocess.Popen(  # noqa: S603 - our own table of programs
            [*pin, *command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )

    @property
    def pid(self) -> int:
        """The server's pid: `taskset` replaces itself by the command."""
        return self.process.pid

    def wait_until_it_listens(self, seconds: float = 30.0) -> None:
        """Wait until the server accepts connections on the port."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise NotServing

    def processor_time(self) -> float:
        """The CPU seconds of all its threads, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident(self) -> int:
        """The resident memory in bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def end(self, seconds: float = 5.0) -> int:
        """Stop it, forcibly if needed. Returns the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                return self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, signal.SIGKILL)
        return self.process.wait()


@contextmanager
def serving(command: Sequence[str], log: Path, *, core: int | None = None) -> Generator[Served]:
    """Run a server on a free port (`PORT` in the command) during the block."""
    port = free_port()
    with log.open("wb") as said:
        served = Served([str(port) if word == "PORT" else word for word in command], port, said, core=core)
        try:
            try:
                served.wait_until_it_listens()
            except NotServing:
                last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
                raise NotServing(*last) from None
            yield served
        finally:
            served.end()


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cores() -> tuple[int | None, int | None]:
    """The cores of the server and the generator; none if there is only one, or no pinning."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    ours = sorted(os.sched_getaffinity(0))
    return (ours[0], ours[-1]) if len(ours) > 1 else (None, None)


@contextmanager
def on_core(core: int | None) -> Generator[None]:
    """Pin this process to a core."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
