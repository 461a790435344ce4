"""The processes that are left: all that carry a test's mark in their environment, whatever their parent is by now."""

from __future__ import annotations

import os
import time
from pathlib import Path

MARK = "GREENROOM_TEST_MARK"
PATIENCE = 20.0


def marked_processes(mark: str) -> dict[int, str]:
    """The processes with the mark, and their commands; zombies have no environment and are found elsewhere."""
    found: dict[int, str] = {}
    wanted = f"{MARK}={mark}".encode()
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid():
            try:
                if wanted in (place / "environ").read_bytes().split(b"\0"):
                    found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
    return found


def child_processes() -> dict[int, str]:
    """Our child processes, zombies included."""
    found: dict[int, str] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                stat = (place / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            name, _, rest = stat.rpartition(") ")
            if int(rest.split()[1]) == os.getpid():
                found[int(place.name)] = f"{name}) {rest[0]}"
    return found


def wait_until_gone(mark: str, seconds: float = PATIENCE) -> dict[int, str]:
    """Wait until no process carries the mark; returns those that still do when the time is over."""
    until = time.monotonic() + seconds
    while (left := marked_processes(mark)) and time.monotonic() < until:
        time.sleep(0.02)
    return left


def runs(mark: str, name: str, seconds: float = PATIENCE) -> bool:
    """Wait until a process with the mark runs that program: a forked process has its id before it has its environment."""
    until = time.monotonic() + seconds
    while not (found := any(name in what for what in marked_processes(mark).values())) and time.monotonic() < until:
        time.sleep(0.02)
    return found
