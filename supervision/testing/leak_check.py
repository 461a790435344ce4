"""The leak check: finds processes, tasks, threads, file descriptors and OS processes that a test left behind.

`no_leaks` compares the resources before and after a block, waits briefly for those that are about to end, and describes each leftover: where it is, and
where it was created if `tracemalloc` is on.
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

SETTLE_SECONDS = 1.0  # real seconds for threads and OS processes that are about to end
_TURNS = 10  # loop iterations for tasks and processes that are about to end
_STEP = 0.01


class LeakError(AssertionError):
    """Resources were left behind; the message lists them."""


class ResourceSnapshot(dict[object, "Callable[[], str]"]):
    """The resources at one moment, each with a function that describes it. Descriptors are pairs, OS processes are numbers."""

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
        """Processes of the loop's node, and tasks, without the idle workers of the node."""
        node = node_of(loop)
        me = asyncio.current_task(loop)
        found = cls(
            {} if node is None else {each: partial(_describe_process, each) for each in node.processes.values()}
        )
        for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
            if task is not me and (suspended_frames(task) or not is_worker(task)):  # a worker without frames is idle
                found[task] = partial(_describe_task, task)
        return found

    def added_since(self, before: ResourceSnapshot) -> ResourceSnapshot:
        """The resources that are not in `before`."""
        return ResourceSnapshot(
            (each, words)
            for each, words in self.items()
            if each not in before and (not isinstance(each, threading.Thread) or each.is_alive())
        )

    def lines(self) -> list[str]:
        """The descriptions."""
        return [words() for words in self.values()]


def system_leftovers(before: ResourceSnapshot) -> ResourceSnapshot:
    """The leftover threads, descriptors and OS processes, after a short wait for those that are about to end."""
    left = ResourceSnapshot.of_system().added_since(before)
    if not left:
        return left
    gc.collect()  # what only a reference cycle keeps alive is not a leak
    deadline = clock.real_seconds() + SETTLE_SECONDS
    while (left := ResourceSnapshot.of_system().added_since(before)) and clock.real_seconds() < deadline:
        threads = [each for each in left if isinstance(each, threading.Thread)]
        for thread in threads:
            thread.join(_STEP)
        if not threads:
            threading.Event().wait(_STEP)
        if all(isinstance(each, tuple) for each in left):
            # No thread and no child process is left that could close these descriptors. One that ended while they were listed has closed its own.
            return ResourceSnapshot.of_system().added_since(before)
    return left


async def loop_leftovers(before: ResourceSnapshot) -> ResourceSnapshot:
    """The leftover tasks and processes of the running loop, after a few iterations for those that are about to end."""
    loop = asyncio.get_running_loop()
    for _ in range(_TURNS):
        if not ResourceSnapshot.of_loop(loop).added_since(before):
            break
        await asyncio.sleep(0)
    return ResourceSnapshot.of_loop(loop).added_since(before)


def raise_for_leaks(*leftovers: ResourceSnapshot) -> None:
    """Raise `LeakError` if there are any."""
    __tracebackhide__ = True
    lines = [line for each in leftovers for line in each.lines()]
    if lines:
        count = "1 thing was" if len(lines) == 1 else f"{len(lines)} things were"
        raise LeakError("\n  ".join([f"{count} left behind:", *lines]))


class no_leaks:  # noqa: N801 - used like a statement: `with no_leaks():`
    """A block that must leave nothing behind. `async with` in a running loop checks tasks and processes too.

    A block that raises is not checked, since its own error is more useful.

    """

    def __init__(self) -> None:
        """The resources are counted when the block begins."""
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


# --- finding resources


def _descriptors() -> Iterator[tuple[int, str]]:
    """Each open file descriptor with its target where the system tells it, else with its mode."""
    tracker = getattr(multiprocessing.resource_tracker, "_resource_tracker", None)
    spared = getattr(tracker, "_fd", None)  # the resource tracker of multiprocessing, which Python keeps for good
    table = next((path for path in (Path("/proc/self/fd"), Path("/dev/fd")) if path.is_dir()), None)
    names = [int(each.name) for each in table.iterdir()] if table is not None else range(_descriptor_limit())
    for number in names:
        with suppress(OSError):
            status = os.fstat(number)  # the descriptor that listed the table is closed by now
            if number == spared:
                continue
            target = f"of mode {status.st_mode:o}, inode {status.st_ino}"
            with suppress(OSError):
                target = str(Path(f"/proc/self/fd/{number}").readlink())
            yield number, target


def _descriptor_limit() -> int:
    return min(4096, os.sysconf("SC_OPEN_MAX")) if hasattr(os, "sysconf") else 1024


def _children() -> Iterator[tuple[int, str]]:
    """The running child processes: all of them where the system tells, else those of multiprocessing."""
    tracker = getattr(multiprocessing.resource_tracker, "_resource_tracker", None)
    spared = getattr(tracker, "_pid", None)
    listed = False
    tasks = Path("/proc/self/task")
    for thread in tasks.iterdir() if tasks.is_dir() else ():
        with suppress(OSError):
            pids = (thread / "children").read_text().split()
            listed = True
            for pid in map(int, pids):
                words = _command(pid)
                if pid != spared and words is not None:
                    yield pid, words
    if not listed:
        for child in multiprocessing.active_children():
            if child.pid is not None:
                yield child.pid, child.name


def _command(pid: int) -> str | None:
    """The command line of a process; None for a zombie."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return words or None
    return None


# --- describing resources


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
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - documented, despite the name
    while frame is not None:
        stack.append(frame)
        frame = frame.f_back
    at = innermost_own_frame(stack[::-1])
    target = getattr(thread, "_target", None)
    runs = "" if target is None else f" of {getattr(target, '__qualname__', target)}()"
    where = "" if at is None else f", at {frame_text(at)}"
    return f"{'daemon ' if thread.daemon else ''}thread {thread.name!r}{runs}{where}"
