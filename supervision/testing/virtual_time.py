"""An asyncio event loop on virtual time: its clock jumps to the next timer instead of waiting.

`VirtualLoop.time()` begins at 0 and stands still while code runs. When nothing is ready and only timers are left, it jumps to the next one, so a test of a
whole day takes no time, and always the same. Everything that uses the loop's clock follows it: `asyncio.sleep`, `asyncio.timeout`, anyio, deadlines of calls,
restart windows.

What the clock does depends on what may still arrive from outside the loop:

- Nothing: it jumps. Without a timer nothing can ever happen, which is a `Deadlock`.
- A working thread (an executor job, `asyncio.to_thread`, `anyio.to_thread`, or a thread started since the loop was created): it stands still, so that
  no deadline expires because a machine is slow. After `THREAD_PATIENCE` it follows real time.
- Threads that wait (for a lock, a queue, or a future that the loop has to settle), or sockets with both ends in this loop: it jumps after a short real
  pause without any change.
- A descriptor whose other end is elsewhere, or a child process: it follows real time.

Three limits: a thread that blocks in C code (a raw lock, a socket) looks like a working one; a thread from before the loop counts only while an executor job
is running, and before a deadlock is raised; and a future signal (`signal.alarm`) is not foreseen.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import linecache
import math
import os
import queue
import selectors
import socket
import stat
import sys
import sysconfig
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

from greenroom.supervision.behaviours.threads import is_idle_pool_thread, is_working_for
from greenroom.supervision.kernel import clock, node
from greenroom.supervision.kernel.process_lookup import node_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Executor
    from types import FrameType

    from greenroom.supervision.kernel.process import Process

    Events = list[tuple[selectors.SelectorKey, int]]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

THREAD_PATIENCE: Final = 5.0  # real seconds for which a thread may work while the clock stands still
SETTLE_PAUSE: Final = 0.05  # real seconds after which a thread that could continue would have
POLL_SECONDS: Final = 0.02  # real seconds between two checks for working threads
MOST_JUMPS: Final = 1_000_000  # jumps during which the main task may wait for the same future
_NANOSECOND: Final = 1e-9  # asyncio's resolution of every clock


_ASYNCIO: Final = str(Path(asyncio.__file__).parent)
_made_at: WeakKeyDictionary[asyncio.Future[Any], str] = WeakKeyDictionary()


def made_at(task: asyncio.Task[Any]) -> str | None:
    """Where a task was created, if its loop is a virtual one or in debug mode."""
    traced = getattr(task, "_source_traceback", None)
    return f"{traced[-1].filename}:{traced[-1].lineno}" if traced else _made_at.get(task)


class Deadlock(Exception):
    """All tasks wait and nothing can ever happen: no timer, nothing ready, nothing outside."""


class Livelock(Deadlock):
    """Timers fire again and again while the main task waits for something that they never cause."""


class _Selector(selectors.DefaultSelector):
    """A selector in which asyncio never blocks: the loop decides whether to wait, jump or raise."""

    def __init__(self) -> None:
        super().__init__()
        self.idle: Callable[[], Events] = list

    def select(self, timeout: float | None = None) -> Events:
        events = self.wait(0)
        return events if events or (timeout is not None and timeout <= 0) else self.idle()

    def wait(self, timeout: float | None) -> Events:
        return super().select(timeout)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, for `run` or `asyncio.Runner(loop_factory=VirtualLoop)`."""

    def __init__(self, *, patience: float = THREAD_PATIENCE, rounds: int = MOST_JUMPS) -> None:
        """The clock starts at 0."""
        self._now = 0.0
        self._forced = -math.inf
        self._jobs = {False: 0, True: 0}
        self._patience = patience
        self._worked_since: float | None = None
        self._rounds = rounds
        self._round = 0
        self._waiting_for: object = None
        self.main: asyncio.Task[Any] | None = None
        """The task for which the loop runs: a deadlock cancels it, so that its traceback shows where it waits."""
        self.deadlock: Deadlock | None = None
        self._real = _Selector()
        super().__init__(self._real)
        self._outside = ExternalActivity(self, self._real)
        self._real.idle = self._idle

    def time(self) -> float:
        """Virtual seconds since the loop was created."""
        return self._now

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """As in any loop; the clock stands still while the job runs."""
        future = super().run_in_executor(executor, func, *args)
        if not future.done():
            far = executor is not None and not isinstance(executor, ThreadPoolExecutor)  # in another OS process
            self._jobs[far] += 1
            future.add_done_callback(lambda _: self._job_done(far=far))
        return future

    def _job_done(self, *, far: bool) -> None:
        self._jobs[far] -= 1

    def create_task(self, coro: Any, **options: Any) -> Any:
        """As in any loop; the line is recorded for the leak check."""
        task = super().create_task(coro, **options)
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - documented, despite the name
        while frame is not None and frame.f_code.co_filename.startswith(_ASYNCIO):
            frame = frame.f_back
        if frame is not None:
            _made_at[task] = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return task

    async def advance(self, seconds: float) -> None:
        """Advance the clock by so many seconds, even while a thread is working."""
        self._forced = max(self._forced, self._now + seconds)
        await asyncio.sleep(seconds)

    # --- when nothing is ready

    def _idle(self) -> Events:
        upcoming = self._upcoming()
        if upcoming is not None and upcoming <= self._forced:
            self._set_time(upcoming)
            return []
        seen = self._sample(upcoming)
        if seen.level == ActivityLevel.NONE:
            return self._jump(upcoming)
        if seen.level == ActivityLevel.WAITING:
            if events := self._real.wait(SETTLE_PAUSE):
                return events
            return self._jump(upcoming) if self._sample(upcoming) == seen else []
        if seen.level == ActivityLevel.WORKING:
            now = time.monotonic()
            if self._worked_since is None:
                self._worked_since = now
            if now - self._worked_since < self._patience:
                return self._real.wait(POLL_SECONDS)
        return self._wait_real_time(upcoming)

    def _sample(self, upcoming: float | None) -> ActivitySample:
        if self._jobs[True]:
            return ActivitySample(ActivityLevel.WORKING)
        return self._outside.sample(self._jobs[False], all_threads=upcoming is None)

    def _upcoming(self) -> float | None:
        """The time of the next timer. The base class has just removed cancelled ones from the front of its heap."""
        scheduled: list[asyncio.TimerHandle] = getattr(self, "_scheduled")  # noqa: B009 - a private attribute of the base class
        if not scheduled or math.isinf(scheduled[0].when()):
            return None
        return scheduled[0].when()

    def _wait_real_time(self, upcoming: float | None) -> Events:
        """Follow real time until an event, or for one poll interval."""
        began = time.monotonic()
        events = self._real.wait(POLL_SECONDS if upcoming is None else min(POLL_SECONDS, upcoming - self._now))
        later = self._now + time.monotonic() - began
        if upcoming is None or later < upcoming:
            self._now = later
        else:
            self._set_time(upcoming)
        return events

    def _jump(self, upcoming: float | None) -> Events:
        # A thread that ended before the sample was taken has written to the self-pipe: check for that event before jumping.
        if events := self._real.wait(0):
            return events
        self._worked_since = None
        if upcoming is None:
            return self._deadlocked(
                Deadlock("nothing can ever happen: no timer, no thread, no I/O, and all tasks wait")
            )
        waiting_for = None if self.main is None else getattr(self.main, "_fut_waiter", None)
        if waiting_for is None or waiting_for is not self._waiting_for:
            self._waiting_for = waiting_for
            self._round = 0
        self._round += 1
        if self._round > self._rounds:
            return self._deadlocked(Livelock(f"after {self._rounds} timers the main task still waits for the same"))
        self._set_time(upcoming)
        return []

    def _set_time(self, upcoming: float) -> None:
        self._now = upcoming
        # asyncio runs timers that are due before now plus the clock's resolution. After half a year a nanosecond is below the float's precision, and no timer would
        # ever be due: so the resolution grows with the clock.
        self._clock_resolution = max(_NANOSECOND, 2 * math.ulp(upcoming))

    def _deadlocked(self, error: Deadlock) -> Events:
        self._round = 0
        lines = [str(error), *describe_tasks(self), *self._outside.threads()]
        error.args = ("\n  ".join(lines),)
        if self.deadlock is None and self.main is not None and self.main.cancel(str(error)):
            self.deadlock = error
            return []
        raise error


async def advance(seconds: float) -> None:
    """Advance the virtual clock by so many seconds, even while a thread is working."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        message = f"advance() needs a VirtualLoop, and {loop!r} follows real time"
        raise TypeError(message)
    await loop.advance(seconds)


# --- What each task waits for, as text for the messages of `Deadlock`.

# Code objects of the engine's own frames, which say nothing about a test.
_WORKER, _FINISH = (vars(node.WorkerTasks)[name].__code__ for name in ("_work", "_finish"))
_DRIVER = vars(node.ContextCoroutine)["__await__"].__code__
_ENGINE_CODE = {_WORKER, _FINISH, _DRIVER}
_OUR_FILES = {
    clock.__file__,
    str(Path(__file__).with_name("isolated_run.py")),
}  # files whose frames are left out as well
_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_DEEPEST_CHAIN = 1000  # the longest chain of coroutines; a longer one is a cycle


def _awaited_by(awaitable: Any) -> Any:
    """The awaitable in which a suspended coroutine or generator waits."""
    for name in ("cr_await", "gi_yieldfrom", "ag_await"):
        found = getattr(awaitable, name, None)
        if found is not None:
            return found
    # The engine's workers drive a handler's coroutine by hand, to run it in another context.
    frame: FrameType | None = getattr(awaitable, "gi_frame", None)
    driver = frame is not None and frame.f_code is _DRIVER
    return frame.f_locals.get("coroutine") if frame is not None and driver else None


def _all_frames(task: asyncio.Task[Any]) -> list[FrameType]:
    found: list[FrameType] = []
    step: Any = task.get_coro()
    for _ in range(_DEEPEST_CHAIN):
        if step is None:
            break
        frame: FrameType | None = getattr(step, "cr_frame", None) or getattr(step, "gi_frame", None)
        if frame is not None:
            found.append(frame)
        step = _awaited_by(step)
    return found


def suspended_frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """Where a task is suspended: the frames of its coroutines, outermost first, without the engine's."""
    return [
        frame
        for frame in _all_frames(task)
        if frame.f_code not in _ENGINE_CODE and frame.f_code.co_filename not in _OUR_FILES
    ]


def is_worker(task: asyncio.Task[Any]) -> bool:
    """Whether the task is a worker of the engine, which runs handlers."""
    at = _all_frames(task)
    return bool(at) and at[0].f_code is _WORKER


def handled_process(task: asyncio.Task[Any]) -> Process | None:
    """The process whose handler a worker is running."""
    found = (frame.f_locals.get("process") for frame in _all_frames(task) if frame.f_code in _ENGINE_CODE)
    return next((process for process in found if process is not None), None)


def innermost_own_frame(frames: list[FrameType]) -> FrameType | None:
    """The innermost frame outside the standard library; or the innermost one, if there is no other."""
    return next((frame for frame in reversed(frames) if not frame.f_code.co_filename.startswith(_LIBRARY)), None) or (
        frames[-1] if frames else None
    )


def frame_text(frame: FrameType) -> str:
    """File, line number, function and source of a frame."""
    name, line = frame.f_code.co_filename, frame.f_lineno
    source = linecache.getline(name, line).strip()
    short = os.path.relpath(name) if Path(name).is_relative_to(Path.cwd()) else name
    return f"{short}:{line} in {frame.f_code.co_qualname}" + (f": {source}" if source else "")


def describe_tasks(loop: asyncio.AbstractEventLoop) -> list[str]:
    """All unfinished tasks of a loop with their stacks, then the processes that wait for others."""
    lines: list[str] = []
    for task in sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name()):
        at = suspended_frames(task)
        if not is_worker(task):
            lines.append(f"task {task.get_name()!r}")
        elif at:
            lines.append(f"process {handled_process(task)}, in a handler")
        lines += [f"  {frame_text(frame)}" for frame in at]
        waiter = getattr(task, "_fut_waiter", None)
        if isinstance(waiter, asyncio.Task):
            lines.append(f"  awaits task {waiter.get_name()!r}")
    node = node_of(loop)
    if node is not None:
        lines += [f"{each} waits for {each.waiting_on}" for each in node.processes.values() if each.waiting_on]
    return lines or ["there is no task at all"]


# --- What may still wake an event loop from outside: working threads, and descriptors whose other end is elsewhere.
# The clock may jump only if nothing can arrive before the next timer. For threads that is a heuristic by their stacks: one that waits for a lock, a queue or a
# future must be woken by another thread, and an idle pool thread is harmless. The alternative, waiting for every thread, would make tests with any
# library thread run on real time.

_WAITING_IN = frozenset((threading.__file__, queue.__file__))
_THREAD_RUNNERS = frozenset(
    ("run", "_bootstrap", "_bootstrap_inner")
)  # methods of Thread: the target itself is written in C
_TIMER = threading.Timer.run.__code__
_POOL_WORKER = getattr(concurrent.futures.thread, "_worker").__code__  # noqa: B009 - private: the function of every pool thread
_WATCHDOG = "greenroom-watchdog-"
_CHILD_WATCH = "_do_waitpid"  # Python 3.11 waits for a child process in a thread


class ActivityLevel(IntEnum):
    """How active the outside is; the highest level counts."""

    NONE = 0  # nothing can arrive
    WAITING = 1  # threads that wait, or sockets with both ends in this loop
    WORKING = 2  # a thread is working, or about to
    OPEN = 3  # a descriptor or a child process, which need real time


class ActivitySample(NamedTuple):
    """One observation. Two equal ones with a pause between them mean that nothing changed."""

    level: ActivityLevel
    marks: tuple[object, ...] = ()


class ExternalActivity:
    """Observes the threads and descriptors around one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, selector: selectors.BaseSelector) -> None:
        """Existing threads and descriptors belong to other code."""
        self._loop = loop
        self._selector = selector
        self._before = set(threading.enumerate())
        self._own = {key.fd for key in selector.get_map().values()}

    def sample(self, jobs: int, *, all_threads: bool = False) -> ActivitySample:
        """Observe. `jobs` is the number of running executor jobs; `all_threads` includes threads from before the loop."""
        samples = [
            self._descriptor_sample(),
            *(self._thread_sample(each) for each in self._threads(all_threads=all_threads or jobs > 0)),
        ]
        level = max((each.level for each in samples), default=ActivityLevel.NONE)
        if jobs and level == ActivityLevel.NONE:
            level = ActivityLevel.WORKING  # no thread has taken the job yet, or its result is on its way to the loop
        return ActivitySample(level, (jobs, *(mark for each in samples for mark in each.marks)))

    def threads(self) -> list[str]:
        """Each active thread, with its current line."""
        found: list[str] = []
        for thread in self._threads(all_threads=True):
            frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - documented, despite the name
            while frame is not None and frame.f_code.co_filename in _WAITING_IN and frame.f_back is not None:
                frame = frame.f_back
            if frame is not None and self._thread_sample(thread).level != ActivityLevel.NONE:
                found.append(f"thread {thread.name} at {frame.f_code.co_filename}:{frame.f_lineno}")
        return found

    # --- threads

    def _threads(self, *, all_threads: bool) -> Iterable[threading.Thread]:
        me = threading.current_thread()
        for thread in threading.enumerate():
            if thread is not me and (all_threads or thread not in self._before or is_working_for(thread, self._loop)):
                yield thread

    def _thread_sample(self, thread: threading.Thread) -> ActivitySample:
        if thread.name.startswith(_WATCHDOG) or self._is_idle(thread):
            return ActivitySample(ActivityLevel.NONE)
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - documented, despite the name
        if frame is None:
            return ActivitySample(ActivityLevel.WORKING)  # it is just starting
        if frame.f_code is _POOL_WORKER:
            return ActivitySample(ActivityLevel.NONE)
        if frame.f_code.co_name == _CHILD_WATCH:
            return ActivitySample(ActivityLevel.OPEN)
        hold = ActivityLevel.WAITING if _waits_for_thread(frame) else ActivityLevel.WORKING
        return ActivitySample(hold, (thread.ident, id(frame), frame.f_lasti))

    def _is_idle(self, thread: threading.Thread) -> bool:
        # anyio keeps idle worker threads in a list that only the loop's thread changes, so it can be read here
        idle: Any = getattr(thread, "idle_workers", ())
        return is_idle_pool_thread(thread) or (getattr(thread, "loop", None) is self._loop and thread in idle)

    # --- descriptors

    def _descriptor_sample(self) -> ActivitySample:
        watched = [key.fd for key in self._selector.get_map().values() if key.fd not in self._own]
        if not watched:
            return ActivitySample(ActivityLevel.NONE)
        ours: set[int] = {
            *watched,
            *getattr(self._loop, "_transports", ()),
        }  # a paused transport is not in the selector
        ends = [end for fd in ours if (end := _socket_end(fd)) is not None]
        for fd in watched:
            end = _socket_end(fd)
            if end is None or not (end.listens or any(end.is_peer_of(other) for other in ends)):
                return ActivitySample(ActivityLevel.OPEN)
        return ActivitySample(ActivityLevel.WAITING, tuple(watched))


def _waits_for_thread(frame: FrameType) -> bool:
    """Whether a thread waits for another thread."""
    code = frame.f_code
    if code.co_filename == selectors.__file__:
        # another event loop; one with a timer continues by itself
        timeout = frame.f_locals.get("timeout")
        return code.co_name == "select" and (timeout is None or timeout < 0)
    if code.co_filename not in _WAITING_IN or code.co_name in _THREAD_RUNNERS:
        return False
    outer: FrameType | None = frame
    while outer is not None and outer.f_code is not _TIMER:
        outer = outer.f_back
    return outer is None


class _SocketEnd(NamedTuple):
    """One end of a socket connection."""

    family: int
    name: Any
    peer: Any
    listens: bool

    def is_peer_of(self, other: _SocketEnd) -> bool:
        """Whether `other` is the other end. The client of a Unix socket has no address."""
        if self.peer:
            return bool(self.peer == other.name)
        return self.family != socket.AF_INET and bool(self.name) and bool(self.name == other.peer)


def _socket_end(fd: int) -> _SocketEnd | None:
    """The socket end of a descriptor; None for anything else."""
    with suppress(OSError):
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return None
        with socket.socket(fileno=os.dup(fd)) as copy:
            listens = bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
            peer: Any = None
            with suppress(OSError):
                peer = copy.getpeername()
            return _SocketEnd(copy.family, copy.getsockname(), peer, listens)
    return None
