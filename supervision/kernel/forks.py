"""A forked child is not its parent: where its code would get back into the engine, the child ends.

`os.fork` copies the whole program, so a handler that forks returns twice: once here and once in a child with the same mailboxes, the
same loop and the same descriptors, which would answer the same callers. A child may do whatever it likes within the handler that has
forked it, a loop and a node of its own included. It ends with that handler: with exit code 0 when that returns, as `SystemExit` says,
and with a traceback and 1 for any other error.
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
    """End this child as its code has ended."""
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
    """On the standard error, if there is one: a child that cannot say why it ends has failed all the same."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(visible(text, lines=True))


def exit_strayed_child() -> NoReturn:
    """The child has come to where it could only go on in its parent's place."""
    exit_child(RuntimeError("a forked child has come back to the event loop, which is its parent's: it ends here"))


def _after_fork() -> None:
    process = current.get()
    if process is None or not process.owns_tasks:
        return
    node = process.node
    if not node.running or threading.get_ident() != node.thread:
        return  # code in a thread ends with its job there
    node.forked = True
    # A child that waits, or whose code was a task, comes to the loop first. It must not take the turn of another callback there.
    with contextlib.suppress(RuntimeError):
        node.loop.call_soon(exit_strayed_child)
        ready = getattr(node.loop, "_ready", None)  # there is no public word for "before all others"
        if ready is not None:
            ready.rotate(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
