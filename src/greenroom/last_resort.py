"""The last resort: a thread that ends the program when its time is over, whatever keeps it.

A loop that does not turn keeps a program, and so does what an author has left at its exit: a pool whose threads are at work, a child
process, a slow function of `atexit`. The interpreter waits for all of those, without end. The deadline counts from the moment the
program was told to stop until the process is really gone.

While that thread ends the program, no other may run Python. A main thread that is let go by the end of a child it waited for would go on with
its own exit: two threads at once in what `atexit` closes, and a segmentation fault where the one uses what the other has freed. So the
children are told last, with the interpreter's lock held, and the system's `_exit` follows at once.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import sys
import threading
import time
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NoReturn

from greenroom.supervision.kernel.spelling import visible

if TYPE_CHECKING:
    from collections.abc import Callable

MARGIN: Final = 0.4
"""How much longer than its grace a program takes at the most."""
_POOLS: Final = {"concurrent.futures.thread": "_threads_queues", "concurrent.futures.process": "_threads_wakeups"}
"""Whose threads the interpreter waits for at its exit, though they are daemons where a daemon has started them."""
_UNDISTURBED: Final = 0.5
"""For so many seconds no thread that waits for the interpreter's lock may ask for it, once the children are being ended."""
_leave: Final[Callable[[int], NoReturn]] = import_module(os.name)._exit  # noqa: SLF001 - its name
"""The system's own. A tool that measures puts a function in the place of `os._exit`: Python, which would let the main thread go on."""


class LastResort:
    """One program's."""

    def __init__(self, grace: float) -> None:
        """`grace` is how long the program may take once it is to hurry."""
        self._grace = grace
        self._deadline: float | None = None
        self._older = set(threading.enumerate())
        self._orders: SimpleQueue[float | None] = SimpleQueue()  # may be put to in a signal handler, as locks may not
        self._process = os.getpid()
        self.in_order = False
        """Whether everything has stopped that could be stopped in order."""

    @property
    def hurrying(self) -> bool:
        """Whether the time runs."""
        return self._deadline is not None

    @property
    def left(self) -> float:
        """How many seconds of the grace there are."""
        return self._grace if self._deadline is None else max(0.0, self._deadline - MARGIN - time.monotonic())

    def watch(self) -> None:
        """Be ready."""
        threading.Thread(target=self._watch, name="greenroom-last-resort", daemon=True).start()

    def hurry(self) -> None:
        """The program has been told to stop: its time runs from now on. Also in a signal handler."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._grace + MARGIN
            self._orders.put(self._deadline)

    def leave(self) -> None:
        """There is nothing to hurry any more."""
        self._orders.put(None)

    def wait_for_exit(self) -> None:
        """Leave the program alone for as long as its own code goes on, and take the interpreter's exit for the rest of the time."""
        # There is no public word for "before the pools are waited for". The last that is registered is called first.
        register = getattr(threading, "_register_atexit", None)
        if register is not None:
            with contextlib.suppress(RuntimeError):  # the exit has begun
                register(self._at_exit)
                self._orders.put(math.inf)  # the thread stays: an interpreter that exits starts none

    def _at_exit(self) -> None:
        if os.getpid() == self._process and self._deadline is not None:
            self._orders.put(max(self._deadline, time.monotonic() + MARGIN))

    def _watch(self) -> None:
        patience = None
        while True:
            try:
                deadline = self._orders.get(timeout=patience)
            except Empty:
                self._end()
            if deadline is None:
                return
            patience = None if deadline == math.inf else max(0.0, deadline - time.monotonic())

    def _end(self) -> NoReturn:
        children = _children()
        if self.in_order:
            names = [*sorted(thread.name for thread in self._held_by()), *(child.name for child in children)]
            say(f"stopped in order; not waiting for {', '.join(names) or 'code at exit'}")
        else:
            say(f"the loop did not stop within {self._grace:g} seconds: ended without it")
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                if _takes_more(stream.fileno()):
                    stream.flush()
        sys.setswitchinterval(_UNDISTURBED)
        for child in children:  # orphans otherwise, which may hold the program's port
            with contextlib.suppress(Exception):
                child.terminate()
        _leave(0 if self.in_order else 1)

    def _held_by(self) -> list[threading.Thread]:
        """The threads that came after us and that the interpreter waits for."""
        pooled = {thread for module, name in _POOLS.items() for thread in getattr(sys.modules.get(module), name, ())}
        newer = set(threading.enumerate()) - self._older - {threading.main_thread()}
        return [thread for thread in newer if not thread.daemon or thread in pooled]


def _children() -> list[Any]:
    """The processes of `multiprocessing`, if the program has used it."""
    module = sys.modules.get("multiprocessing")
    try:
        return [] if module is None else module.active_children()
    except Exception:  # noqa: BLE001 - another thread may be at the same list; the end must come all the same
        return []


def say(text: str) -> None:
    """A line for people, past every buffer and lock. Dropped where the pipe is full, which would hold up the end itself."""
    with contextlib.suppress(OSError):
        if _takes_more(2):
            os.write(2, f"greenroom: {visible(text)}\n".encode(errors="backslashreplace"))


def _takes_more(descriptor: int) -> bool:
    """Whether a line can be written there without waiting for a reader, as far as the system tells."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return any(event & select.POLLOUT for _, event in poll.poll(0))
