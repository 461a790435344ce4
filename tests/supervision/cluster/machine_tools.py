"""Tools that say where they run, and that never come back."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path


def where() -> int:
    """The process that this runs in."""
    return os.getpid()


def die() -> None:
    """Take the process down."""
    signal.raise_signal(signal.SIGSEGV)  # to this thread: it is over before there is a result


def stay(mark: str) -> None:
    """Say in that file that it runs, and stay there. All machines of these tests have one file system."""
    Path(mark).write_text(str(os.getpid()), encoding="ascii")
    threading.Event().wait()
