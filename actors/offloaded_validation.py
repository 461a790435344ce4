"""Validation of a peer's values against schemas, in a thread when it takes long.

A check runs on the event loop first, with a budget of some milliseconds, which is enough for nearly all. One that exceeds it starts again in a thread, with a
larger budget, and releases the interpreter lock regularly. There is one such thread, since each further busy one would cost the loop another turn of the lock.
Each peer has one check in its queue, so a peer with expensive schemas delays another peer by one check, not by all of its own.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from greenroom.protocol.validation_errors import PacedStepMeter, StepMeter, StepsExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")

# Weak: a lock lives while a task holds it or waits for it, so peers that are gone leave nothing to clean up.
_locks: WeakValueDictionary[tuple[int, Hashable], asyncio.Lock] = WeakValueDictionary()


async def run_check(check: Callable[[StepMeter], T], peer: Hashable) -> T:
    """The result of the check. It gets a meter, and when that raises `StepsExceeded`, a larger one in a thread.

    `peer` owns the schema or the value. Raises `StepsExceeded` when the larger budget is exhausted as well.
    """
    try:
        return check(StepMeter())
    except StepsExceeded:
        return await run_check_in_thread(check, peer)


async def run_check_in_thread(check: Callable[[StepMeter], T], peer: Hashable) -> T:
    """Run a check in the thread, with the larger budget."""
    loop = asyncio.get_running_loop()
    turn = _locks.setdefault((id(loop), peer), asyncio.Lock())
    async with turn:
        meter = PacedStepMeter()
        try:
            return await loop.run_in_executor(_thread(), check, meter)
        finally:
            meter.stopped = True  # for a cancelled check: its thread stops soon, and takes the next one


@lru_cache(maxsize=1)
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "greenroom-checks")
