"""SIGINT, kept out of handlers.

Python raises `KeyboardInterrupt` wherever the main thread happens to be, which in a node is most likely some actor's
handler: the user wanted to stop the program and crashed one process of it. So while a node runs in the main thread,
the first SIGINT cancels the task that opened the node, from a callback of the loop; leaving the node's block then
stops everything in order. The second exits at once, also when the loop is stuck, by the signal's own default action.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

_AGAIN = b"\ninterrupted: stopping in order; interrupt again to exit at once\n"


class Interrupts:
    """The SIGINT handler of one node."""

    def __init__(self) -> None:
        """Nothing happens before `install`."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._before: Any = None
        self._count = 0
        self._stopping = False
        self._heard = False
        self._owed = False

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take SIGINT over, unless this is not the main thread or somebody ignores SIGINT or wants it as a signal."""
        self._count = 0
        self._stopping = self._heard = self._owed = False
        if threading.current_thread() is not threading.main_thread():
            return
        before = signal.getsignal(signal.SIGINT)
        if not callable(before):
            return
        self._before = before
        self._loop = loop
        self._task = asyncio.current_task()
        signal.signal(signal.SIGINT, self._interrupted)

    def stopping(self) -> None:
        """The node stops by itself: from now on the first SIGINT must not disturb that, and is owed at its end."""
        self._stopping = True

    def remove(self) -> None:
        """Give it back."""
        if self._before is None:
            return
        if signal.getsignal(signal.SIGINT) == self._interrupted:
            signal.signal(signal.SIGINT, self._before)
        if self._count and not self._heard:
            self._owed = True  # it came so late that the loop will not turn for it any more
        self._before = None
        self._loop = None

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        # Runs between two bytecodes of whatever the main thread does: nothing may be raised here.
        self._count += 1
        if self._count == 1 and self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(OSError):
                os.write(2, _AGAIN)
            self._loop.call_soon_threadsafe(self._stop)
            return
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)

    def _stop(self) -> None:
        # asyncio.run has a handler of its own, which cancels the main task and remembers to raise KeyboardInterrupt
        # at the very end; where there is none, both are ours to do.
        before, task = self._before, self._task
        if before is None:
            return
        self._heard = True
        if self._stopping:
            self._owed = True
        elif before is signal.default_int_handler:
            self._owed = True
            if task is not None and not task.done():
                task.cancel("interrupted")
        else:
            before(signal.SIGINT, None)

    def raise_if_owed(self, error: BaseException | None) -> None:
        """Turn the cancellation that an interrupt caused into the `KeyboardInterrupt` that it stands for."""
        if self._owed and (error is None or isinstance(error, asyncio.CancelledError)):
            self._owed = False
            raise KeyboardInterrupt
