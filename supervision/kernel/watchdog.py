"""The watchdog: a thread that reports the handler which blocks the event loop, while it does so.

The thread asks the loop for an answer at intervals. If none comes it reads the stack of the loop's thread, finds
the frame of the engine that runs a process, and reports that process with its part of the stack. The alternative, noting
the running process at each message, would cost the hot path; this costs it nothing.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from . import clock
from .clock import DirectWakeup
from .reports import LoopBlocked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import CodeType, FrameType

    from .node import Node
    from .process import Process

LAGS_KEPT = 120  # how many of the newest measurements are kept
LAG_SUBSCRIBERS: list[Callable[[str, float], object]] = []
"""Called in the watchdog's thread with the node's name and each measurement. `report_events` adds itself."""

# Code of the engine that calls handlers, and how to find the process among the local variables of its frames.
_engine: dict[CodeType, Callable[[Mapping[str, Any]], Process | None]] = {}


def mark_handler_runner(code: CodeType, find: Callable[[Mapping[str, Any]], Process | None]) -> None:
    """Register engine code: frames above it belong to the process that `find` returns from its local variables."""
    _engine[code] = find


def process_on_stack(frame: FrameType | None) -> tuple[Process | None, list[FrameType]]:
    """The innermost process on this stack, and the frames of its code, outermost first."""
    above: list[FrameType] = []
    while frame is not None:
        find = _engine.get(frame.f_code)
        if find is not None:
            return find(frame.f_locals), above[::-1]
        above.append(frame)
        frame = frame.f_back
    return None, above[::-1]


class Lag(NamedTuple):
    """One measurement: how long the loop took to answer when asked at `at` on the real clock, and the blocking process, if known."""

    at: float
    seconds: float
    culprit: str | None


class LagHistory:
    """The newest measurements, in one preallocated array.

    One object for each, allocated now and then among short-lived objects, would keep the allocator from returning a megabyte of theirs.
    """

    __slots__ = ("_count", "_culprit", "_kept", "_numbers")

    def __init__(self, kept: int) -> None:
        """`kept` is how many measurements are kept."""
        self._kept = kept
        self._count = 0
        self._numbers = array("d", bytes(16 * kept))
        self._culprit: list[str | None] = [None] * kept

    def append(self, at: float, seconds: float, guilty: str | None) -> None:
        """Add a measurement in place of the oldest."""
        place = self._count % self._kept
        self._numbers[2 * place] = at
        self._numbers[2 * place + 1] = seconds
        self._culprit[place] = guilty
        self._count += 1

    def __iter__(self) -> Iterator[Lag]:
        for number in range(max(0, self._count - self._kept), self._count):
            place = number % self._kept
            yield Lag(self._numbers[2 * place], self._numbers[2 * place + 1], self._culprit[place])


class Watchdog:
    """The watchdog thread of one node."""

    def __init__(self, node: Node, seconds: float) -> None:
        """A loop that does not answer for `seconds` is reported."""
        self._node = node
        self._seconds = seconds
        self._stop = threading.Event()
        self._alive = threading.Event()
        self._thread: threading.Thread | None = None
        self._answered = 0.0
        self._culprit: str | None = None
        self.lags = LagHistory(LAGS_KEPT)

    def start(self) -> None:
        """Start the thread."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, name=f"greenroom-watchdog-{self._node.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for it."""
        self._stop.set()
        self._alive.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _watch(self) -> None:
        loop = self._node.loop
        while not self._stop.is_set():
            self._alive.clear()
            self._culprit = None
            asked = self._answered = clock.real_seconds()
            try:
                loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop was closed under the node
                return
            if not self._alive.wait(self._seconds):
                self._report_block(asked)
                self._alive.wait()
            lag = self._answered - asked
            self.lags.append(asked, lag, self._culprit)
            for subscriber in LAG_SUBSCRIBERS:
                subscriber(self._node.name, lag)
            self._stop.wait(self._seconds / 2)

    def _answer(self) -> None:
        self._answered = clock.real_seconds()
        self._alive.set()

    def _report_block(self, asked: float) -> None:
        frame = sys._current_frames().get(self._node.thread)
        process, frames = process_on_stack(frame)
        stack = "".join(line for each in frames for line in traceback.format_stack(each, limit=1))
        node = self._node
        label = "code outside of processes" if process is None else process.label
        pid = node.root_pid() if process is None else process.pid
        self._culprit = f"{label} {pid}"
        kind = "" if process is None else process.kind
        report = LoopBlocked(pid=pid, label=label, kind=kind, seconds=clock.real_seconds() - asked, stack=stack)
        node.reports.emit(report)


# --- Stacks for reports: the lines of a suspended task, or of the caller of the running handler.
# `Task.get_stack` ends at the first coroutine of a suspended task, which for a worker is the engine's own; so the
# coroutines are followed here from one to what it awaits.

_CALLBACK_CODE = asyncio.Handle._run.__code__
_MOST_FRAMES = 50  # nested coroutines; deeper ones are left out

# Generators of the engine that drive the coroutine which their local variable `coroutine` holds.
_drivers: set[CodeType] = set()


def mark_driver(code: CodeType) -> None:
    """Register a generator of the engine that drives the coroutine of a handler: the stack continues there."""
    _drivers.add(code)


def task_lines(task: asyncio.Task[Any]) -> str:
    """The stack lines of a suspended task, outermost first; for a worker, those of its handler."""
    return _text(_frames(task.get_coro()))


def caller_lines(waited_for: asyncio.Future[Any] | DirectWakeup, call: CodeType) -> str:
    """The stack lines of the task that waits for this object, or is about to; "" when none does.

    `call` is the code that runs a handler on its caller's stack: then the frames below it are the caller.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code is not call:
        frame = frame.f_back
    if frame is not None:
        frames = process_on_stack(frame.f_back)[1]
        loop = [index for index, each in enumerate(frames) if each.f_code is _CALLBACK_CODE]
        return _text(frames[loop[-1] + 1 if loop else 0 :][-_MOST_FRAMES:])
    waiting = [waited_for.task] if isinstance(waited_for, DirectWakeup) else _waiting(waited_for)
    for task in waiting:
        if task.__class__ is asyncio.Task:
            return task_lines(task)
    return ""


def _waiting(future: asyncio.Future[Any]) -> list[Any]:
    # `_callbacks` is private to asyncio, which has no public way to ask which tasks wait for a future. The step of a waiting
    # task is among the callbacks as a bound method, in C too.
    return [getattr(callback, "__self__", None) for callback, _ in getattr(future, "_callbacks", None) or ()]


def _frames(step: Any) -> list[FrameType]:
    found: list[FrameType] = []
    for _ in range(_MOST_FRAMES):
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
