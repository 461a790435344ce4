"""What a test left behind: processes, tasks, threads, file descriptors, OS processes.

`no_leaks` compares what is there after a block with what was there before, gives what is just ending a moment to end,
and names each leftover with where it stands, and where it was made when `tracemalloc` runs.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing.resource_tracker
import os
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from greenroom.supervision.behaviours.threads import is_idle_pool_thread
from greenroom.supervision.kernel import clock
from greenroom.supervision.kernel.process_lookup import node_of

from .virtual_time import frame_text, handled_process, innermost_own_frame, is_worker, made_at, suspended_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, TracebackType

    from greenroom.supervision.kernel.process import Process

SETTLE_SECONDS = 1.0  # real seconds that threads and OS processes which are just ending may take
_TURNS = 10  # turns of the loop that tasks and processes which are just ending may take
_STEP = 0.01


class LeakError(AssertionError):
    """Something was left behind; the message names it."""


class ResourceSnapshot(dict[object, "Callable[[], str]"]):
    """What there is at one moment, and what puts each into words: threads, processes and tasks, descriptors as pairs, OS processes as numbers."""

    @classmethod
    def of_system(cls) -> ResourceSnapshot:
        """Threads, descriptors and OS processes."""
        found = cls(
            {each: partial(_describe_thread, each) for each in threading.enumerate() if not is_idle_pool_thread(each)}
        )
        found.update((each, partial("file descriptor {}: {}".format, *each)) for each in _descriptors())
        found.update((pid, partial("OS process {}: {}".format, pid, words)) for pid, words in _children())
        return found

    @classmethod
    def of_loop(cls, loop: asyncio.AbstractEventLoop) -> ResourceSnapshot:
        """Processes of the node if there is one, and tasks; the workers of the node are its own affair."""
        node = node_of(loop)
        me = asyncio.current_task(loop)
        found = cls(
            {} if node is None else {each: partial(_describe_process, each) for each in node.processes.values()}
        )
        for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
            if task is not me and (
                suspended_frames(task) or not is_worker(task)
            ):  # a worker without frames has no work
                found[task] = partial(_describe_task, task)
        return found

    def added_since(self, before: ResourceSnapshot) -> ResourceSnapshot:
        """What there is here and was not there before."""
        return ResourceSnapshot(
            (each, words)
            for each, words in self.items()
            if each not in before and (not isinstance(each, threading.Thread) or each.is_alive())
        )

    def lines(self) -> list[str]:
        """Each leftover in words."""
        return [words() for words in self.values()]


def system_leftovers(before: ResourceSnapshot) -> ResourceSnapshot:
    """What of the system is left over, after a moment for what is just ending."""
    left = ResourceSnapshot.of_system().added_since(before)
    if not left:
        return left
    gc.collect()  # what is held by nothing but a cycle is no leftover
    deadline = clock.real_seconds() + SETTLE_SECONDS
    while (left := ResourceSnapshot.of_system().added_since(before)) and clock.real_seconds() < deadline:
        threads = [each for each in left if isinstance(each, threading.Thread)]
        for thread in threads:
            thread.join(_STEP)
        if not threads:
            threading.Event().wait(_STEP)
        if all(isinstance(each, tuple) for each in left):
            break  # no thread and no child is left that could close these descriptors
    return left


async def loop_leftovers(before: ResourceSnapshot) -> ResourceSnapshot:
    """What of the running loop is left over, after a few turns for what is just ending."""
    loop = asyncio.get_running_loop()
    for _ in range(_TURNS):
        if not ResourceSnapshot.of_loop(loop).added_since(before):
            break
        await asyncio.sleep(0)
    return ResourceSnapshot.of_loop(loop).added_since(before)


def raise_for_leaks(*leftovers: ResourceSnapshot) -> None:
    """Raise `LeakError` if there is anything."""
    __tracebackhide__ = True
    lines = [line for each in leftovers for line in each.lines()]
    if lines:
        count = "1 thing was" if len(lines) == 1 else f"{len(lines)} things were"
        raise LeakError("\n  ".join([f"{count} left behind:", *lines]))


class no_leaks:  # noqa: N801 - reads as what it promises: `with no_leaks():`
    """A block that leaves nothing behind; `async with` in a running loop looks at tasks and processes too.

    A block that raises is not checked: its own error says more.
    """

    def __init__(self) -> None:
        """What there is is taken when the block begins."""
        self._system_before = ResourceSnapshot()
        self._loop_before = ResourceSnapshot()

    def __enter__(self) -> Self:
        self._system_before = ResourceSnapshot.of_system()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        if error is None:
            raise_for_leaks(system_leftovers(self._system_before))

    async def __aenter__(self) -> Self:
        self._loop_before = ResourceSnapshot.of_loop(asyncio.get_running_loop())
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        if error is None:
            raise_for_leaks(await loop_leftovers(self._loop_before), system_leftovers(self._system_before))


# --- looking


def _descriptors() -> Iterator[tuple[int, str]]:
    """Each open file descriptor with what it leads to, where the system tells; else with what kind it is."""
    tracker = getattr(multiprocessing.resource_tracker, "_resource_tracker", None)
    spared = getattr(tracker, "_fd", None)  # Python's own, and kept for good
    table = next((path for path in (Path("/proc/self/fd"), Path("/dev/fd")) if path.is_dir()), None)
    names = [int(each.name) for each in table.iterdir()] if table is not None else range(_descriptor_limit())
    for number in names:
        with suppress(OSError):
            status = os.fstat(number)  # the one that listed the table is closed by now
            if number == spared:
                continue
            target = f"of mode {status.st_mode:o}, inode {status.st_ino}"
            with suppress(OSError):
                target = str(Path(f"/proc/self/fd/{number}").readlink())
            yield number, target


def _descriptor_limit() -> int:
    return min(4096, os.sysconf("SC_OPEN_MAX")) if hasattr(os, "sysconf") else 1024


def _children() -> Iterator[tuple[int, str]]:
    """Running OS processes that this one started: where the system tells, all; else those of multiprocessing."""
    tracker = getattr(multiprocessing.resource_tracker, "_resource_tracker", None)
    spared = getattr(tracker, "_pid", None)
    told = False
    tasks = Path("/proc/self/task")
    for thread in tasks.iterdir() if tasks.is_dir() else ():
        with suppress(OSError):
            pids = (thread / "children").read_text().split()
            told = True
            for pid in map(int, pids):
                words = _command(pid)
                if pid != spared and words is not None:
                    yield pid, words
    if not told:
        for child in multiprocessing.active_children():
            if child.pid is not None:
                yield child.pid, child.name


def _command(pid: int) -> str | None:
    """The command line of a process; None when it has ended and is only not reaped yet."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return words or None
    return None


# --- telling


def _describe_process(process: Process) -> str:
    parent = process.parent
    return f"process {process}" + ("" if parent is None else f", started by {parent}")


def _describe_task(task: asyncio.Task[Any]) -> str:
    at = innermost_own_frame(suspended_frames(task))
    where = "" if at is None else f", waiting at {frame_text(at)}"
    if is_worker(task):
        return f"handler of {handled_process(task)}{where}"
    coroutine: Any = task.get_coro()
    name = getattr(coroutine, "__qualname__", type(coroutine).__name__)
    made = made_at(task)
    return f"task {task.get_name()!r} of {name}(){where}" + ("" if made is None else f", made at {made}")


def _describe_thread(thread: threading.Thread) -> str:
    stack: list[FrameType] = []
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - the documented way to it
    while frame is not None:
        stack.append(frame)
        frame = frame.f_back
    at = innermost_own_frame(stack[::-1])
    target = getattr(thread, "_target", None)
    runs = "" if target is None else f" of {getattr(target, '__qualname__', target)}()"
    where = "" if at is None else f", at {frame_text(at)}"
    return f"{'daemon ' if thread.daemon else ''}thread {thread.name!r}{runs}{where}"
