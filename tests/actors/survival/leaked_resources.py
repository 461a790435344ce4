"""What a server could leave behind: processes, descriptors, listening sockets, and files in shared folders."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from greenroom.supervision.cluster import os_processes

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARED = Path("/dev/shm")


def descendants() -> set[int]:
    """The processes below this one."""
    return set(os_processes.descendants(os.getpid()))


def held(folder: Path) -> Counter[str]:
    """What there is now, by kind; `folder` is the one for temporary files while this is looked at."""
    found = Counter(_kind(descriptor) for descriptor in _descriptors())
    found.update(f"process {pid}" for pid in descendants())
    found.update(f"file {path}" for path in (*folder.rglob("*"), *_ours(SHARED)))
    return found


def left(before: Counter[str], folder: Path, within: float) -> Counter[str]:
    """What there is more than before. What is about to go has so long."""
    until = time.monotonic() + within
    while (more := held(folder) - before) and time.monotonic() < until:
        time.sleep(0.02)
    return more


def _descriptors() -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - without a descriptor of its own, once it is done
        yield int(name)


def _kind(descriptor: int) -> str:
    try:
        target = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return "descriptor of this list"
    if target.startswith("socket:"):
        return _socket_kind(descriptor)
    kind, _, rest = target.partition(":")
    return (
        f"descriptor of a file {target}" if target.startswith("/") else f"{kind} {rest if kind == 'anon_inode' else ''}"
    )


def _socket_kind(descriptor: int) -> str:
    with socket.socket(fileno=os.dup(descriptor)) as opened:
        if opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return f"socket that listens on {opened.getsockname()!r}"
        return f"socket of the family {opened.family.name}"


def _ours(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir() if folder.is_dir() else ():
        try:
            if path.stat().st_uid == os.geteuid():
                yield path
        except FileNotFoundError:  # another program's, and gone just now
            continue
