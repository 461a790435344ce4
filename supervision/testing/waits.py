"""What each task waits for, in words: for whoever has to find out why nothing happens."""

from __future__ import annotations

import asyncio
import linecache
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenroom.supervision.kernel.current import node_of
from greenroom.supervision.kernel.workers import InContext, Workers

if TYPE_CHECKING:
    from types import FrameType

    from greenroom.supervision.kernel.process import Process

_OURS = {str(Path(__file__).with_name("stage.py"))}  # frames that say nothing about a test
_DEEPEST = 1000  # coroutines in one another; a chain that is longer goes in circles


def _inner(awaitable: Any) -> Any:
    """What a suspended coroutine or generator is waiting in."""
    for name in ("cr_await", "gi_yieldfrom", "ag_await"):
        found = getattr(awaitable, name, None)
        if found is not None:
            return found
    # A worker of the engine drives a handler's coroutine by hand, in another context.
    frame: FrameType | None = getattr(awaitable, "gi_frame", None)
    driven = frame is not None and frame.f_code is InContext.__await__.__code__
    return frame.f_locals.get("coroutine") if frame is not None and driven else None


def frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """Where a task is suspended: the frames of its coroutines, outermost first."""
    found: list[FrameType] = []
    step: Any = task.get_coro()
    for _ in range(_DEEPEST):
        if step is None:
            break
        frame: FrameType | None = getattr(step, "cr_frame", None) or getattr(step, "gi_frame", None)
        if frame is not None and frame.f_code is not InContext.__await__.__code__:
            found.append(frame)
        step = _inner(step)
    return found


def place(frame: FrameType) -> str:
    """A frame as a line: file, line number, function, and the source when it can be read."""
    name, line = frame.f_code.co_filename, frame.f_lineno
    source = linecache.getline(name, line).strip()
    short = os.path.relpath(name) if Path(name).is_relative_to(Path.cwd()) else name
    return f"{short}:{line} in {frame.f_code.co_qualname}" + (f": {source}" if source else "")


def describe(loop: asyncio.AbstractEventLoop) -> list[str]:
    """All tasks of a loop that are not done, each with where it waits; then the processes that wait for others."""
    lines: list[str] = []
    for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
        at = frames(task)
        worker = bool(at) and at[0].f_code is Workers._work.__code__  # noqa: SLF001 - as the watchdog knows it
        if worker:
            process: Process | None = at[0].f_locals.get("process")
            if len(at) == 1:
                continue  # it waits for work, as it should
            lines.append(f"process {process}, in a handler")
        else:
            lines.append(f"task {task.get_name()!r}")
        lines += [f"  {place(frame)}" for frame in (at[1:] if worker else at) if frame.f_code.co_filename not in _OURS]
        waiter = getattr(task, "_fut_waiter", None)
        if isinstance(waiter, asyncio.Task):
            lines.append(f"  awaits task {waiter.get_name()!r}")
    node = node_of(loop)
    if node is not None:
        lines += [f"{each} waits for {each.waiting_on}" for each in node.processes.values() if each.waiting_on]
    return lines or ["there is no task at all"]
