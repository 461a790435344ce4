"""Who holds the port that is wanted: processes of a former system whose warden is gone are ended, and anybody else is named.

The lifeline leaves nobody behind. But code in a node can close it, and where the system cannot kill by it a warden that was killed could not
either; and Thespian's own processes go on without each other for ever.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from . import pids
from .endings import EngineFailed

PROGRAM: Final = b"greenroom.supervision.cluster.warden_program"
"""What stands in the command line of a warden, and of all that are forked below it."""
_LISTENS: Final = "0A"
_SECONDS: Final = 2.0
_LOOK: Final = 0.01


def clear(bind: str, port: int) -> None:
    """Make sure that somebody can listen there. Raises `EngineFailed`, which says who does."""
    until = time.monotonic() + _SECONDS
    while (wrong := _taken(bind, port)) is not None:
        found = holders(port)
        if not found or any(not is_leftover(pid) for pid in found) or time.monotonic() > until:
            who = "; ".join(f"process {pid} ({_command(pid)}) has that port" for pid in found)
            raise EngineFailed(f"Thespian cannot listen at {bind}:{port}: {wrong}{'; ' if who else ''}{who}")
        for pid in found:
            pids.send_signal(signal.SIGKILL, pid)
        time.sleep(_LOOK)


def is_leftover(pid: int) -> bool:
    """Whether it is a process of ours, of a system without a warden."""
    everybody = pids.everybody()
    if PROGRAM not in _command_line(pid) or not pids.name_of(pid).startswith("gr-"):
        return False
    while (seen := everybody.get(pid)) is not None:
        if seen.name == "gr-warden" and seen.state not in ("Z", "X"):
            return False
        pid = seen.parent
    return True


def holders(port: int) -> list[int]:
    """The processes that listen there, as far as we may know."""
    inodes = {
        fields[9]
        for table in ("tcp", "tcp6")
        for fields in _rows(Path("/proc/net", table))
        if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port
    }
    return [pid for pid in pids.everybody() if pid != os.getpid() and _has_one(pid, inodes)]


def _taken(bind: str, port: int) -> str | None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except OSError as error:
            return error.strerror or str(error)
    return None


def _rows(table: Path) -> list[list[str]]:
    with suppress(OSError):
        return [line.split() for line in table.read_text(encoding="ascii").splitlines()[1:]]
    return []


def _has_one(pid: int, inodes: set[str]) -> bool:
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if str(entry.readlink()).removeprefix("socket:[").rstrip("]") in inodes:
                    return True
    return False


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _command(pid: int) -> str:
    return _command_line(pid).replace(b"\0", b" ").decode(errors="replace").strip()[:80] or pids.name_of(pid)
