"""An asyncio event loop whose clock jumps instead of waiting.

`VirtualLoop.time()` starts at 0 and stands still while code runs. When nothing is ready and only timers are left, it
jumps to the next of them. All that asks the loop moves with it: `asyncio.sleep`, `asyncio.timeout`, anyio, deadlines
of calls, restart windows.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from .waits import describe

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Deadlock(Exception):
    """Everybody waits and nothing can ever happen: no timer, nothing ready, no thread at work, no I/O."""


class _Selector(selectors.BaseSelector):
    """The real selector, asked without waiting as long as the loop can go on by itself."""

    def __init__(self, real: selectors.BaseSelector) -> None:
        self.real = real
        self.idle: Callable[[float | None], list[tuple[selectors.SelectorKey, int]]] = real.select

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self.real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self.real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self.real.modify(fileobj, events, data)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = self.real.select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        return self.idle(timeout)

    def close(self) -> None:
        self.real.close()

    def get_map(self) -> Any:
        return self.real.get_map()


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop. `run` makes one; `asyncio.Runner(loop_factory=VirtualLoop)` works as well."""

    def __init__(self) -> None:
        """It is 0 o'clock."""
        self._now = 0.0
        self._forced = 0.0
        self._jobs = 0
        selector = _Selector(selectors.DefaultSelector())
        super().__init__(selector)
        selector.idle = self._idle
        self._selector_map = selector
        self._own = len(selector.get_map())
        self.on_deadlock: Callable[[Deadlock], bool] | None = None

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """As in any loop; the clock does not jump while the answer is out."""
        future = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        future.add_done_callback(self._job_done)
        return future

    def _job_done(self, _: object) -> None:
        self._jobs -= 1

    def _idle(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Nothing is ready: wait for what comes from outside, or jump."""
        real = self._selector_map.real
        scheduled: list[asyncio.TimerHandle] = getattr(self, "_scheduled")  # noqa: B009 - a private of the base class
        upcoming = scheduled[0].when() if scheduled else None
        if upcoming is not None and upcoming <= self._forced:
            self._now = max(self._now, upcoming)
            return []
        if self._jobs or len(real.get_map()) > self._own:
            return real.select(timeout)
        if upcoming is None:
            error = Deadlock(f"nothing can happen any more, and everybody waits:\n{describe(self)}")
            if self.on_deadlock is None or not self.on_deadlock(error):
                raise error
            return []
        self._now = max(self._now, upcoming)
        return []

    async def advance(self, seconds: float) -> None:
        """Let so much time pass, also while a thread or I/O would hold the clock."""
        until = self._now + seconds
        self._forced = max(self._forced, until)
        await asyncio.sleep(seconds)


async def advance(seconds: float) -> None:
    """Let so much virtual time pass, whatever holds the clock."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        message = f"advance() moves a virtual clock, and this loop has a real one: {loop!r}"
        raise TypeError(message)
    await loop.advance(seconds)
