"""What the warden is told of a node that another machine wants here: its process is the admin's child, of which the keeper knows nothing.

The process says itself that it is there, and the admin says how it ended. Both are notes, but such as are not dropped.
"""

from __future__ import annotations

import os
import select
import time
from typing import Final

from .inherited import Inherited, pack_note

ABOARD: Final = -2
"""The level of a note whose text is the pid of the process that has become the node."""
ENDED: Final = -3
"""... the pid of a process that has ended, and its status."""
_WAIT: Final = 2.0


def come_aboard() -> bool:
    """In the process, which has a name by now; False when the warden takes nothing for so long that it may be gone."""
    return _tell(pack_note(ABOARD, str(os.getpid())))


def tell_of_end(pid: int, status: int | None) -> None:
    """In the admin."""
    if status is not None:
        _tell(pack_note(ENDED, f"{pid} {status}"))


def numbers(text: str) -> tuple[int, int]:
    """What such a note says: a pid, and a status or 0. Raises `ValueError`."""
    pid, status, *more = (*(int(each) for each in text.split()), 0, 0)
    if len(more) > 2 or pid <= 0:  # noqa: PLR2004 - which were added
        raise ValueError(text)
    return pid, status


def _tell(data: bytes) -> bool:
    notes = Inherited.notes
    until = time.monotonic() + _WAIT
    while notes is not None and (left := until - time.monotonic()) > 0:
        try:
            notes.send(data)
        except BlockingIOError:
            select.select((), (notes,), (), left)
        except OSError:
            return False
        else:
            return True
    return False
