"""What a process says when a fatal signal ends it: where each of its threads was, kept where it can be read when the process is gone.

Python writes that by itself (`faulthandler`) into memory that the warden holds as well; nobody can be made to wait by it, and it is of one size.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import signal
import socket
from typing import TYPE_CHECKING, Final

from .inherited import Inherited, pack_note

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOM: Final = 16 * 1024
MARK: Final = -1
"""The level of a note that brings the memory."""


def arrange() -> None:
    """In a node's process: have them written, and give the warden where. Nothing where the system cannot do that."""
    if not hasattr(os, "memfd_create") or Inherited.notes is None:
        return
    memory = os.memfd_create("last words", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, ROOM)
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    with contextlib.suppress(OSError):
        socket.send_fds(Inherited.notes, [pack_note(MARK, "")], [memory])
        faulthandler.enable(memory)
        faulthandler.register(signal.SIGTERM, memory, chain=True)  # whoever is told to end was at something


def read(memory: int) -> str:
    """What was written."""
    try:
        return os.pread(memory, ROOM, 0).rstrip(b"\0").decode(errors="replace").strip()
    except OSError:
        return ""


def close(memories: Iterable[int]) -> None:
    """They are of no use any more."""
    for memory in memories:
        with contextlib.suppress(OSError):
            os.close(memory)
