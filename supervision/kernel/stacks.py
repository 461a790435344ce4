"""Where code stands: the lines of a task that waits, or of whoever called what runs now. For reports.

`Task.get_stack` ends at the first coroutine of a suspended task, which for a worker is the engine's own; so the
coroutines are followed here from one to what it awaits.
"""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING, Any

from . import watchdog

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable
    from types import CodeType, FrameType

    from .process import Process

_DEEPEST = 100  # coroutines in one another; what is deeper says no more

# Generators of the engine that drive the coroutine which their local variable `coroutine` holds.
_drivers: set[CodeType] = set()


def drives(code: CodeType) -> None:
    """What is above a generator of this code is the engine's, what it drives a handler's."""
    _drivers.add(code)


def of_task(task: asyncio.Task[Any]) -> str:
    """The lines at which a suspended task stands, outermost first; of a worker, those of the handler."""
    return _text(_frames(task.get_coro()))


def of_caller(process: Process, call: CodeType) -> str:
    """The lines at which `process` waits for an answer; "" when it waits in a task that is not the engine's.

    `call` is the code by which a handler runs on its caller's stack: whatever is below that is the caller.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not call:
        frame = frame.f_back
    if frame is not None:
        return _text(watchdog.whose(frame.f_back)[1][-_DEEPEST:])
    return "" if process.worker is None else of_task(process.worker)


def _frames(step: Any) -> list[FrameType]:
    found: list[FrameType] = []
    for _ in range(_DEEPEST):
        frame: FrameType | None = getattr(step, "cr_frame", None) or getattr(step, "gi_frame", None)
        if frame is None:
            break
        if frame.f_code in _drivers:
            found.clear()
            step = frame.f_locals.get("coroutine")
        else:
            found.append(frame)
            step = getattr(step, "cr_await", None) or getattr(step, "gi_yieldfrom", None)
    return found


def _text(frames: Iterable[FrameType]) -> str:
    return "".join(line for frame in frames for line in traceback.format_stack(frame, limit=1))
