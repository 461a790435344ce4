"""Thespian systems as a guest has them: the simple one in this process, and a real one, which a child program has started and left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Generator

    ActorSystem: Any  # Thespian ships no types
else:
    from thespian.actors import ActorSystem

PROGRAMS = Path(__file__).parent / "programs"
MARK = "GREENROOM_GUESTS_MARK"
PATIENCE = 20.0


@contextlib.contextmanager
def simple() -> Generator[Any]:
    """The one that runs in the thread that asks."""
    system = ActorSystem("simpleSystemBase", logDefs=False, transientUnique=True)
    try:
        yield system
    finally:
        system.shutdown()


@contextlib.contextmanager
def processes(folder: Path) -> Generator[Any]:
    """A real one. Afterwards nothing of it is left, or that is the error."""
    mark = uuid.uuid4().hex
    environment = {**os.environ, MARK: mark, "THESPLOG_FILE": str(folder / "thespian.log")}
    port = free_port()
    command = [sys.executable, str(PROGRAMS / "start_system.py"), str(port)]
    null = subprocess.DEVNULL
    try:
        subprocess.run(command, env=environment, stdin=null, stdout=null, stderr=null, check=True, timeout=60)
        with attached(port) as system:
            yield system
    finally:
        left = gone(mark)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert left == {}


@contextlib.contextmanager
def attached(port: int) -> Generator[Any]:
    """The system on that port, which is shut down in the end. Thespian leaves its sockets to the garbage collector; we do not."""
    system = ActorSystem("multiprocTCPBase", {"Admin Port": port}, transientUnique=True)
    transport: Any = system._systemBase.transport
    try:
        yield system
    finally:
        system.shutdown()
        for idle in tuple(transport._openSockets.values()):
            idle.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def free_port() -> int:
    """One that nobody listens on just now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        number: int = found.getsockname()[1]
        return number


def marked(mark: str) -> dict[int, str]:
    """The processes that carry it in their environment, and what they are."""
    found: dict[int, str] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):
                if f"{MARK}={mark}".encode() in (place / "environ").read_bytes().split(b"\0"):
                    found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def gone(mark: str) -> dict[int, str]:
    """Wait until nobody carries the mark; who still does when the time is over."""
    until = time.monotonic() + PATIENCE
    while (left := marked(mark)) and time.monotonic() < until:
        time.sleep(0.02)
    return left
