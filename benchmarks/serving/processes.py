"""Servers as processes: each on its core, its processor time and memory read from the system, ended for certain."""

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
    """The program ended, or did not listen in time; what it said last is the text."""


class Served:
    """A server's process."""

    def __init__(self, command: Sequence[str], port: int, said: IO[bytes], *, core: int | None) -> None:
        """Start it, on its core from its first instruction."""
        pin = ["taskset", "--cpu-list", str(core)] if core is not None else []
        self.port = port
        self.process = subprocess.Popen(  # noqa: S603 - our own table of programs
            [*pin, *command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )

    @property
    def pid(self) -> int:
        """Of the server itself: `taskset` becomes what it starts."""
        return self.process.pid

    def wait_until_it_listens(self, seconds: float = 30.0) -> None:
        """Return when the server accepts on the port."""
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
        """Seconds that all its threads have worked, in its own code and in the system's."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def resident(self) -> int:
        """Bytes of memory that it occupies now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def end(self, seconds: float = 5.0) -> int:
        """Ask it to stop, and see to it; its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                return self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, signal.SIGKILL)
        return self.process.wait()


@contextmanager
def serving(command: Sequence[str], log: Path, *, core: int | None = None) -> Generator[Served]:
    """A server that listens on a port of its own (`PORT` in the command), for as long as the block lasts."""
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
    """A port that no process listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cores() -> tuple[int | None, int | None]:
    """The server's core, and the generator's; none where there is only one, or nothing to pin with."""
    if not hasattr(os, "sched_getaffinity"):
        return None, None
    ours = sorted(os.sched_getaffinity(0))
    return (ours[0], ours[-1]) if len(ours) > 1 else (None, None)


@contextmanager
def on_core(core: int | None) -> Generator[None]:
    """This process on that core alone."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
