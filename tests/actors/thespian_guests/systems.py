"""Thespian systems as a guest has them: the simple one in this process, and a real one, which a child program has started and left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
import uuid
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.free_ports import free_port

from greenroom.thespian import new_key_file

if TYPE_CHECKING:
    from collections.abc import Generator

    ActorExitRequest: Any  # Thespian ships no types
    ActorSystem: Any
else:
    from thespian.actors import ActorExitRequest, ActorSystem

PROGRAMS = Path(__file__).parent / "programs"
MARK = "GREENROOM_GUESTS_MARK"
PATIENCE = 20.0


@contextlib.contextmanager
def simple() -> Generator[Any]:
    """The simple system, which runs actors in the calling thread."""
    system = ActorSystem("simpleSystemBase", logDefs=False, transientUnique=True)
    try:
        yield system
    finally:
        for actor in tuple(system._systemBase.actorRegistry.values()):  # its shutdown ends none of them
            if actor is not None:
                system.tell(actor.address, ActorExitRequest())
        system.shutdown()


@contextlib.contextmanager
def processes(folder: Path) -> Generator[Any]:
    """A system of processes. It is an error if a process of it is left afterwards."""
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


class NodeProgram:
    """A node in a program of its own, which can be killed and restarted at the same address."""

    def __init__(self, folder: Path, address: str | None = None) -> None:
        self.key = new_key_file(folder / "guests.key")
        self.address = address or f"unix:@greenroom-test-{uuid.uuid4().hex}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Wait until it listens."""
        command = [sys.executable, str(PROGRAMS / "host.py"), self.address, str(self.key)]
        self._process = process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert process.stdout is not None
        self.address = process.stdout.readline().decode().strip()
        assert self.address
        return self

    def revive(self) -> None:
        """Start it unless it runs, and forget its notes."""
        if self._process is None:
            self.start()
        for note in self.key.parent.glob(f"{self.key.name}.*"):
            note.unlink()

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it, and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


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
    """Wait until no process carries the mark; returns those that still do when the time is over."""
    until = time.monotonic() + PATIENCE
    while (left := marked(mark)) and time.monotonic() < until:
        time.sleep(0.02)
    return left
