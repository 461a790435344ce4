"""Tools that return where they run, and a tool that never returns."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path


def where() -> int:
    """The process that this runs in."""
    return os.getpid()


def die() -> None:
    """Kill the process."""
    signal.raise_signal(signal.SIGSEGV)  # of this thread, so that the process ends before there is a result


def stay(mark: str) -> None:
    """Create that file, and never return. The machines of these tests share one file system."""
    Path(mark).write_text(str(os.getpid()), encoding="ascii")
    threading.Event().wait()
