"""The TCP listeners of a process, from the system's own table."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_LISTENS = "0A"


def listeners(*pids: int) -> set[tuple[str, int]]:
    """The addresses and ports where these processes listen; without pids, where any process does."""
    return set(sockets(*pids).values())


def sockets(*pids: int) -> dict[str, tuple[str, int]]:
    """The same, by the socket's number, which no other has: a port that is free again may be taken by a program that runs beside a test."""
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    found: dict[str, tuple[str, int]] = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENS and (not pids or fields[9] in inodes):
                address, port = fields[1].split(":")
                found[fields[9]] = _address(address), int(port, 16)
    return found


def _address(text: str) -> str:
    if len(text) > 8:
        return "::" if not text.strip("0") else text
    return ".".join(str(each) for each in reversed(bytes.fromhex(text)))


def _sockets(pid: int) -> set[str]:
    found: set[str] = set()
    with suppress(OSError):  # it is gone
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    return found
