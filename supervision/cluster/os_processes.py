"""Processes of the operating system by pid: which descends from which, how one ended, and signals that cannot hit a reused pid."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

_SET_NAME: Final = 15
_SET_CHILD_SUBREAPER: Final = 36
_NAME_BYTES: Final = 15
_BEGAN: Final = 19
"""The index of a field in /proc/PID/stat, counted from the state on."""
_EXIT_CODE: Final = 49
_libc: Final = ctypes.CDLL(None)


class OsProcess(NamedTuple):
    """One process, as it was when it was looked up."""

    pid: int
    parent: int
    state: str
    name: str


def all_processes() -> dict[int, OsProcess]:
    """All processes of the machine by pid."""
    found: dict[int, OsProcess] = {}
    proc = Path("/proc")
    if (proc / "self" / "stat").exists():
        for place in proc.iterdir():
            if place.name.isdigit():
                with contextlib.suppress(OSError, ValueError, IndexError):  # gone meanwhile
                    before, _, after = (place / "stat").read_text(errors="replace").rpartition(") ")
                    state, parent, *_ = after.split()
                    found[int(place.name)] = OsProcess(int(place.name), int(parent), state, before.partition("(")[2])
        return found
    listed = subprocess.run(["/bin/ps", "-axo", "pid=,ppid=,stat=,ucomm="], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        pid, parent, state, name = line.split(None, 3)
        found[int(pid)] = OsProcess(int(pid), int(parent), state[0], name)
    return found


def read_proc(pid: int, what: str) -> bytes:
    """The bytes of /proc/PID/`what`; empty when the process is gone, or the file cannot be read."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on."""
    return read_proc(pid, "stat").decode(errors="replace").rpartition(") ")[2].split()


def descendants(of: int, but: frozenset[int] = frozenset(), named: str = "") -> list[int]:
    """The living descendants of a process, without those in `but` and their descendants; with `named`, only those whose name begins so."""
    seen = all_processes()
    children: dict[int, list[int]] = {}
    for each in seen.values():
        children.setdefault(each.parent, []).append(each.pid)
    found: list[int] = []
    looked = [of]
    while looked:
        for pid in children.get(looked.pop(), ()):
            if pid not in but:
                looked.append(pid)
                if seen[pid].state not in ("Z", "X") and seen[pid].name.startswith(named):
                    found.append(pid)
    return found


def children() -> list[int]:
    """The children of this process, including adopted ones."""
    me = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()]
    except OSError:  # there is no such list
        return [seen.pid for seen in all_processes().values() if seen.parent == me]


def name_of(pid: int) -> str:
    """The name that `ps` shows; empty when the process is gone."""
    if Path("/proc/self").exists():
        return read_proc(pid, "comm").decode(errors="replace").rstrip("\n")
    seen = all_processes().get(pid)
    return "" if seen is None else seen.name


def was_started_with(pid: int, variable: str, value: str) -> bool:
    """Whether its program was executed with that environment variable, where the system tells."""
    return f"{variable}={value}".encode() in read_proc(pid, "environ").split(b"\0")


def started_with(variable: str, value: str) -> list[int]:
    """All processes with that environment variable, where the system tells; forks included."""
    return [pid for pid in all_processes() if was_started_with(pid, variable, value)]


def start_tick(pid: int) -> int:
    """When the process started, in ticks since the machine's start; 0 when it is gone."""
    fields = _stat(pid)
    return int(fields[_BEGAN]) if fields else 0


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    fields = _stat(pid)
    return fields[0] not in ("Z", "X") if fields else not Path("/proc/self").exists()


def open_pidfd(pid: int) -> int | None:
    """A pidfd, which is readable when the process has ended; None without pidfds, or when there is no such process."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def send_signal(number: int, pid: int, pidfd: int | None = None) -> bool:
    """Send a signal; False when the process is gone. Through the pidfd if there is one, since the pid may have been reused."""
    try:
        if pidfd is not None:
            signal.pidfd_send_signal(pidfd, number)
        else:
            os.kill(pid, number)
    except OSError:
        return False
    return True


def reap() -> tuple[int, int] | None:
    """Reap a child: its pid and exit status; None when none has ended."""
    try:
        found, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (found, os.waitstatus_to_exitcode(status)) if found else None


def status_of_dead(pid: int) -> int | None:
    """The exit status of a zombie; None where the system does not tell."""
    fields = _stat(pid)
    return os.waitstatus_to_exitcode(int(fields[_EXIT_CODE])) if fields[:1] == ["Z"] else None


def has_ended(pid: int, pidfd: int | None) -> bool:
    """Whether the process has ended; by its pidfd if there is one."""
    if pidfd is None:
        return not is_alive(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def adopt_orphans() -> None:
    """Become the subreaper of all descendants, so that orphans become children of this process instead of init's."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def set_process_name(name: str) -> None:
    """Set the process name that `ps` and `top` show."""
    _prctl(_SET_NAME, ctypes.create_string_buffer(truncated_name(name).encode()))


def truncated_name(name: str) -> str:
    """The name cut to the 15 bytes that the system keeps."""
    return name.encode()[:_NAME_BYTES].decode(errors="ignore")


def _prctl(option: int, value: object) -> None:
    if sys.platform == "linux":
        _libc.prctl(option, value, 0, 0, 0)
