"""The flag of one call: raised when nobody wants its result any more, and safe to look at from any thread.

The session that owns the call raises it; the worker sees it through its context. It says why, and it is never taken down.
"""

from __future__ import annotations

import asyncio
import threading


class Cancellation:
    """Whether a call has been cancelled, and why."""

    __slots__ = ("_lock", "_waiting", "reason")

    def __init__(self) -> None:
        """Not yet."""
        self.reason: str | None = None
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] | None = None
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return self.reason is not None

    def is_set(self) -> bool:
        """Whether it has been cancelled."""
        return self.reason is not None

    def set(self, reason: str) -> None:
        """Nobody wants the result; the first reason stays."""
        with self._lock:
            if self.reason is not None:
                return
            self.reason = reason
            waiting, self._waiting = self._waiting, None
        for loop, future in waiting or ():
            try:
                loop.call_soon_threadsafe(_wake, future)
            except RuntimeError:
                continue  # that loop is closed, and nobody waits in it

    async def wait(self) -> str:
        """Wait until it is cancelled, in whatever loop; returns why."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        entry = (loop, future)
        with self._lock:
            if self.reason is None:
                if self._waiting is None:
                    self._waiting = []
                self._waiting.append(entry)
            else:
                return self.reason
        try:
            await future
        finally:
            self._forget(entry)
        return self._why()

    def _why(self) -> str:
        return self.reason or "cancelled"

    def _forget(self, entry: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]) -> None:
        with self._lock:
            if self._waiting is not None and entry in self._waiting:
                self._waiting.remove(entry)

    def __repr__(self) -> str:
        return f"<Cancellation {self.reason or 'not cancelled'}>"


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
