"""Checks of a peer's values against schemas, beside the event loop when they are long.

A check is tried on the loop, with as many steps as take some milliseconds, which nearly all need not. What takes more begins again in a
thread, where it has more steps and lets go of the interpreter all the time. There is one such thread, as each further one that is busy would make
the loop wait for another turn of the interpreter's lock; and each peer has one check in its queue, so that a peer whose schemas are
expensive makes another one wait for one check and not for all of its own.
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

_locks: WeakValueDictionary[tuple[int, Hashable], asyncio.Lock] = WeakValueDictionary()


async def run_check(check: Callable[[StepMeter], T], peer: Hashable) -> T:
    """What the check returns. It is called with a meter, and once more with a larger one when that raised `StepsExceeded`, in a thread.

    `peer` is whose schema or value it is. Raises `StepsExceeded` when the larger one is used up as well.
    """
    try:
        return check(StepMeter())
    except StepsExceeded:
        return await run_check_in_thread(check, peer)


async def run_check_in_thread(check: Callable[[StepMeter], T], peer: Hashable) -> T:
    """The same for a check that has been too long for the loop."""
    loop = asyncio.get_running_loop()
    turn = _locks.setdefault((id(loop), peer), asyncio.Lock())
    async with turn:
        meter = PacedStepMeter()
        try:
            return await loop.run_in_executor(_thread(), check, meter)
        finally:
            meter.stopped = True  # of use when this was cancelled: the thread is soon free for the next one


@lru_cache(maxsize=1)
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "greenroom-checks")
