"""What each task waits for, in words: for whoever has to find out why nothing happens."""

from __future__ import annotations

import asyncio
import linecache
import os
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenroom.supervision.kernel import gate, workers
from greenroom.supervision.kernel.current import node_of

if TYPE_CHECKING:
    from types import FrameType

    from greenroom.supervision.kernel.process import Process

_OURS = {
    workers.__file__,
    gate.__file__,
    str(Path(__file__).with_name("stage.py")),
}  # files whose frames say nothing about a test
_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_DEEPEST = 1000  # coroutines in one another; a chain that is longer goes in circles


def _inner(awaitable: Any) -> Any:
    """What a suspended coroutine or generator is waiting in."""
    for name in ("cr_await", "gi_yieldfrom", "ag_await"):
        found = getattr(awaitable, name, None)
        if found is not None:
            return found
    # A worker of the engine drives a handler's coroutine by hand, in another context.
    frame: FrameType | None = getattr(awaitable, "gi_frame", None)
    driver = frame is not None and frame.f_code.co_filename == workers.__file__
    return frame.f_locals.get("coroutine") if frame is not None and driver else None


def _everything(task: asyncio.Task[Any]) -> list[FrameType]:
    found: list[FrameType] = []
    step: Any = task.get_coro()
    for _ in range(_DEEPEST):
        if step is None:
            break
        frame: FrameType | None = getattr(step, "cr_frame", None) or getattr(step, "gi_frame", None)
        if frame is not None:
            found.append(frame)
        step = _inner(step)
    return found


def frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """Where a task is suspended: the frames of its coroutines, outermost first, without those of the engine."""
    return [frame for frame in _everything(task) if frame.f_code.co_filename not in _OURS]


def is_worker(task: asyncio.Task[Any]) -> bool:
    """Whether the engine made this task, to run handlers in."""
    at = _everything(task)
    return bool(at) and at[0].f_code.co_filename == workers.__file__


def handles_for(task: asyncio.Task[Any]) -> Process | None:
    """The process whose handler a worker is in."""
    found = (frame.f_locals.get("process") for frame in _everything(task) if frame.f_code.co_filename in _OURS)
    return next((process for process in found if process is not None), None)


def own(frames: list[FrameType]) -> FrameType | None:
    """The innermost frame that is not Python's own library; that, if there is no other."""
    return next((frame for frame in reversed(frames) if not frame.f_code.co_filename.startswith(_LIBRARY)), None) or (
        frames[-1] if frames else None
    )


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
        if not is_worker(task):
            lines.append(f"task {task.get_name()!r}")
        elif at:
            lines.append(f"process {handles_for(task)}, in a handler")
        lines += [f"  {place(frame)}" for frame in at]
        waiter = getattr(task, "_fut_waiter", None)
        if isinstance(waiter, asyncio.Task):
            lines.append(f"  awaits task {waiter.get_name()!r}")
    node = node_of(loop)
    if node is not None:
        lines += [f"{each} waits for {each.waiting_on}" for each in node.processes.values() if each.waiting_on]
    return lines or ["there is no task at all"]
