"""Ends a forked child where its code would return into the node of its parent.

`os.fork` copies the whole program, so a handler that forks returns twice: once here and once in a child with the same mailboxes, the same loop and the same
descriptors, which would answer the same callers. Within the forking handler a child may do anything, including opening a loop and a node of its own. It ends
with that handler: with exit code 0 when the handler returns, with the code of a `SystemExit`, and with a traceback and 1 for any other error.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from typing import NoReturn

from .process_lookup import current
from .visible_text import visible


def exit_child(error: BaseException | None = None) -> NoReturn:
    """End this child with the exit code that its code's end means."""
    code = 0 if error is None else 1
    try:
        code = _exit_code(error)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
    finally:
        os._exit(code)


def _exit_code(error: BaseException | None) -> int:
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        _write_stderr("".join(traceback.format_exception(error)))
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    _write_stderr(f"{error.code}\n")  # as Python does with it
    return 1


def _write_stderr(text: str) -> None:
    """Write to the standard error, if there is one."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(visible(text, lines=True))


def exit_strayed_child() -> NoReturn:
    """End a child whose code has returned into its parent's event loop."""
    exit_child(RuntimeError("a forked child has come back to the event loop, which is its parent's: it ends here"))


def _after_fork() -> None:
    process = current.get()
    if process is None or not process.owns_tasks:
        return
    node = process.node
    if not node.running or threading.get_ident() != node.thread:
        return  # code in another thread ends with that thread's job
    node.forked = True
    # A child that awaits, or whose code was a task, returns to the loop first. The exit has to come before every other callback
    # there, or the child would run one of its parent's. asyncio has no public way to put a callback first, so the loop's private
    # ready queue is rotated; on a loop without one the child may run a callback of its parent before it ends.
    with contextlib.suppress(RuntimeError):
        node.loop.call_soon(exit_strayed_child)
        ready = getattr(node.loop, "_ready", None)
        if ready is not None:
            ready.rotate(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
