"""Where code stands: the lines of a task that waits, or of whoever called what runs now. For reports.

`Task.get_stack` ends at the first coroutine of a suspended task, which for a worker is the engine's own; so the
coroutines are followed here from one to what it awaits.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from typing import TYPE_CHECKING, Any

from . import watchdog

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType, FrameType

_TURN = asyncio.Handle._run.__code__
_DEEPEST = 50  # coroutines in one another; what is deeper says no more

# Generators of the engine that drive the coroutine which their local variable `coroutine` holds.
_drivers: set[CodeType] = set()


def drives(code: CodeType) -> None:
    """What is above a generator of this code is the engine's, what it drives a handler's."""
    _drivers.add(code)


def of_task(task: asyncio.Task[Any]) -> str:
    """The lines at which a suspended task stands, outermost first; of a worker, those of the handler."""
    return _text(_frames(task.get_coro()))


def of_awaiter(future: asyncio.Future[Any], call: CodeType) -> str:
    """The lines at which somebody waits for `future`, or is about to; "" when nobody does.

    `call` is the code by which a handler runs on its caller's stack: then whatever is below that is the caller.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not call:
        frame = frame.f_back
    if frame is not None:
        frames = watchdog.whose(frame.f_back)[1]
        loop = [index for index, each in enumerate(frames) if each.f_code is _TURN]
        return _text(frames[loop[-1] + 1 if loop else 0 :][-_DEEPEST:])
    for callback, _ in getattr(future, "_callbacks", None) or ():
        task: Any = getattr(callback, "__self__", None)
        if task.__class__ is asyncio.Task:
            return of_task(task)
    return ""


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
