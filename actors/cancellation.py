"""Whether a call is still wanted: a flag that is raised once, and that user code may look at from any thread.

The session owns it, and raises it when the peer cancels, when a deadline is over or when the session ends. Code in the loop is
cancelled besides, some time later; for a thread this flag is all there is. It says why, and is never taken down.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from greenroom.protocol.errors import RequestCancelled
from greenroom.supervision import current_node, exit, kill

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision import Pid, Shutdown

_logger = logging.getLogger(__name__)
# One for all: it is held for a moment when a task or thread begins to wait and when a call is cancelled, which is seldom.
_lock = threading.Lock()


class Cancellation:
    """Whether a call has been cancelled, and why. Any thread may use it; `wait` is for event loops, any of them."""

    __slots__ = ("_waiting", "reason")

    def __init__(self) -> None:
        """Not yet."""
        self.reason: str | None = None
        self._waiting: list[Callable[[], object]] | None = None

    def __bool__(self) -> bool:
        return self.reason is not None

    def __repr__(self) -> str:
        return f"<Cancellation {'not cancelled' if self.reason is None else self.reason or 'cancelled'}>"

    def is_set(self) -> bool:
        """Whether it has been cancelled."""
        return self.reason is not None

    def set(self, reason: str = "") -> None:
        """Cancel: the result is not wanted any more. The first reason stays."""
        with _lock:
            if self.reason is not None:
                return
            self.reason = reason
            waiting, self._waiting = self._waiting, None
        for wake in waiting or ():
            try:
                wake()
            except Exception:
                # The canceller is a session, and must not die of a callback that is not its own.
                _logger.exception("a callback of a cancelled call failed")

    def raise_if_set(self) -> None:
        """Raise `RequestCancelled` when it is."""
        if self.reason is not None:
            raise RequestCancelled(self.reason)

    def subscribe(self, wake: Callable[[], object]) -> Callable[[], None]:
        """Have `wake` called once, by the canceller and in its thread, or now. Returns a function that takes that back."""
        with _lock:
            if self.reason is None:
                if self._waiting is None:
                    self._waiting = []
                self._waiting.append(wake)
                return lambda: self._forget(wake)
        wake()
        return _nothing

    def _forget(self, wake: Callable[[], object]) -> None:
        with _lock:
            if self._waiting is not None and wake in self._waiting:
                self._waiting.remove(wake)

    async def wait(self) -> str:
        """Wait until it is cancelled; returns why."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(_settle, over)
            except RuntimeError:
                return  # that loop is closed, and no task waits in it

        forget = self.subscribe(wake)
        try:
            await over
        finally:
            forget()
        return self.reason or ""

    def wait_in_thread(self, timeout: float | None = None) -> bool:
        """Block this thread until it is cancelled, at most so many seconds: what a thread sleeps with. Whether it is."""
        over = threading.Event()
        forget = self.subscribe(over.set)
        try:
            return over.wait(timeout)
        finally:
            forget()


def end_worker(worker: Pid, reason: Shutdown, grace: float, *, notice: float = 0.0) -> None:
    """End the worker of a call that is over, by an exit signal after `notice`, in which it may see its flag; `grace` later it is killed."""
    node = current_node()

    def end(act: Callable[[Pid], object]) -> None:
        if node.running:  # else it has ended all of its processes
            act(worker)

    def tell(worker: Pid) -> None:
        exit(worker, reason)

    if notice > 0:
        node.loop.call_later(notice, end, tell, context=node.context)
    else:
        exit(worker, reason)
    node.loop.call_later(notice + grace, end, kill, context=node.context)


def _settle(over: asyncio.Future[None]) -> None:
    if not over.done():
        over.set_result(None)


def _nothing() -> None:
    """There is nothing to take back."""
