"""What a process says when a fatal signal ends it: where each of its threads was, kept where it can be read when the process is gone.

Python writes that by itself (`faulthandler`) into memory that the warden holds as well; nobody can be made to wait by it, and it is of one size. What is
read of it is about the code that ran there, and not about Thespian, the loop and us, who stand below all of that: a log would be full of them.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import re
import signal
import socket
from typing import TYPE_CHECKING, Final

from .inherited import Inherited, pack_note

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOM: Final = 16 * 1024
MARK: Final = -1
"""The level of a note that brings the memory."""
_THREAD: Final = re.compile(r"(?:Current t|T)hread 0x")
_FRAME: Final = "  File "
_LONGEST: Final = 512
"""Of a line that is looked at closely: paths are cut there, and whoever has the memory may write what they like."""
_MACHINERY: Final = re.compile(
    r'  File "(?:<string>|.*/(?:thespian|multiprocessing|asyncio|uvloop|greenroom/supervision)/[^"]*|.*/threading\.py)", '
)


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
    """What was written, as far as somebody wants to read it."""
    try:
        return brief(os.pread(memory, ROOM, 0).rstrip(b"\0").decode(errors="replace").strip())
    except OSError:
        return ""


def brief(text: str) -> str:
    """Without the frames that every thread of a node has at its bottom, and without threads that have no others, unless it was one of these."""
    return "\n\n".join(filter(None, map(_brief_thread, text.split("\n\n"))))


def _brief_thread(block: str) -> str:
    if not _THREAD.match(block):
        return block
    lines = block.splitlines()
    end = len(lines)
    while _MACHINERY.match(lines[end - 1][:_LONGEST]):
        end -= 1
    if not any(line.startswith(_FRAME) for line in lines[:end]):
        return block if block.startswith("C") else ""
    return "\n".join((*lines[:end], *["  …"][: len(lines) - end]))


def close(memories: Iterable[int]) -> None:
    """They are of no use any more."""
    for memory in memories:
        with contextlib.suppress(OSError):
            os.close(memory)
