"""What each task waits for, in words: for whoever has to find out why nothing happens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

_DEEPEST = 1000  # coroutines in one another; a chain that is longer goes in circles


def inner(awaitable: Any) -> Any:
    """What a suspended coroutine, generator or engine wrapper is waiting in."""
    for name in ("cr_await", "gi_yieldfrom", "ag_await"):
        found = getattr(awaitable, name, None)
        if found is not None:
            return found
    # A worker of the engine drives the handler's coroutine by hand, in another context.
    frame: FrameType | None = getattr(awaitable, "gi_frame", None)
    return None if frame is None else frame.f_locals.get("coroutine")


def chain(task: asyncio.Task[Any]) -> list[Any]:
    """The coroutines of a suspended task, outermost first, and what the innermost awaits."""
    found: list[Any] = []
    step: Any = task.get_coro()
    while step is not None and len(found) < _DEEPEST:
        found.append(step)
        step = inner(step)
    return found


def where(task: asyncio.Task[Any]) -> list[str]:
    """The lines at which a task is suspended, outermost first."""
    lines: list[str] = []
    for step in chain(task):
        frame: FrameType | None = getattr(step, "cr_frame", None) or getattr(step, "gi_frame", None)
        if frame is not None:
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_qualname}")
    return lines


def describe(loop: asyncio.AbstractEventLoop) -> str:
    """All tasks of a loop that are not done, and where each is."""
    lines: list[str] = []
    for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
        lines.append(f"  task {task.get_name()}")
        lines += [f"    {line}" for line in where(task)]
    return "\n".join(lines) or "  (there is no task)"
