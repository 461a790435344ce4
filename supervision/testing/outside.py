"""Who outside an event loop may still wake it: threads at work, and descriptors whose other end is elsewhere.

A virtual clock may only jump when nothing can come any more before the next timer. Nobody knows that of a thread for
certain, but its stack tells most: one that waits for a lock, a queue or a future has to be woken by somebody, and an
idle thread of a pool is no danger at all.
"""

from __future__ import annotations

import concurrent.futures.thread
import os
import queue
import selectors
import socket
import stat
import sys
import threading
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from greenroom.supervision.behaviours.threads import resting, works_for

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable
    from types import FrameType

_WAITING_IN = frozenset((threading.__file__, queue.__file__))
_RUNNING = frozenset(("run", "_bootstrap", "_bootstrap_inner"))  # of Thread: what it runs is a function written in C
_TIMER = threading.Timer.run.__code__
_IDLE = getattr(concurrent.futures.thread, "_worker").__code__  # noqa: B009 - private, and what every pool thread runs
_WATCHDOG = "greenroom-watchdog-"
_CHILD_WATCH = "_do_waitpid"  # how Python 3.11 waits for a child process: in a thread


class Hold(IntEnum):
    """How much of the outside there is; the greatest counts."""

    NOBODY = 0  # nothing can come
    WAITING = 1  # threads that wait themselves, or sockets with both ends in this loop
    WORKING = 2  # a thread is at work, or was just given some
    OPEN = 3  # a descriptor or a child process: the world outside goes by real time


class Look(NamedTuple):
    """What was seen. Two equal looks with a pause between them mean that nobody moved."""

    hold: Hold
    marks: tuple[object, ...] = ()


class Outside:
    """The outside of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, selector: selectors.BaseSelector) -> None:
        """Threads and descriptors that are there already belong to somebody else."""
        self._loop = loop
        self._selector = selector
        self._before = set(threading.enumerate())
        self._own = {key.fd for key in selector.get_map().values()}

    def look(self, jobs: int, *, everybody: bool = False) -> Look:
        """Look around. `jobs` are out with executors; `everybody` counts threads that were there before the loop."""
        looks = [self._descriptors(), *(self._thread(each) for each in self._threads(everybody=everybody or jobs > 0))]
        hold = max((each.hold for each in looks), default=Hold.NOBODY)
        if jobs and hold == Hold.NOBODY:
            hold = Hold.WORKING  # nobody has taken the job yet, or its result is just on the way here
        return Look(hold, (jobs, *(mark for each in looks for mark in each.marks)))

    def threads(self) -> list[str]:
        """Each thread that is not idle, with the line it is at."""
        found: list[str] = []
        for thread in self._threads(everybody=True):
            frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - the documented way to it
            while frame is not None and frame.f_code.co_filename in _WAITING_IN and frame.f_back is not None:
                frame = frame.f_back
            if frame is not None and self._thread(thread).hold != Hold.NOBODY:
                found.append(f"thread {thread.name} at {frame.f_code.co_filename}:{frame.f_lineno}")
        return found

    # --- threads

    def _threads(self, *, everybody: bool) -> Iterable[threading.Thread]:
        me = threading.current_thread()
        for thread in threading.enumerate():
            if thread is not me and (everybody or thread not in self._before or works_for(thread, self._loop)):
                yield thread

    def _thread(self, thread: threading.Thread) -> Look:
        if thread.name.startswith(_WATCHDOG) or self._rests(thread):
            return Look(Hold.NOBODY)
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - the documented way to it
        if frame is None:
            return Look(Hold.WORKING)  # it is just starting
        if frame.f_code is _IDLE:
            return Look(Hold.NOBODY)
        if frame.f_code.co_name == _CHILD_WATCH:
            return Look(Hold.OPEN)
        hold = Hold.WAITING if _waits(frame) else Hold.WORKING
        return Look(hold, (thread.ident, id(frame), frame.f_lasti))

    def _rests(self, thread: threading.Thread) -> bool:
        # anyio keeps its idle worker threads in a list that only the loop's own thread changes.
        idle: Any = getattr(thread, "idle_workers", ())
        return resting(thread) or (getattr(thread, "loop", None) is self._loop and thread in idle)

    # --- descriptors

    def _descriptors(self) -> Look:
        watched = [key.fd for key in self._selector.get_map().values() if key.fd not in self._own]
        if not watched:
            return Look(Hold.NOBODY)
        ours: set[int] = {*watched, *getattr(self._loop, "_transports", ())}  # a paused transport is not watched
        ends = [end for fd in ours if (end := _end(fd)) is not None]
        for fd in watched:
            end = _end(fd)
            if end is None or not (end.listens or any(end.meets(other) for other in ends)):
                return Look(Hold.OPEN)
        return Look(Hold.WAITING, tuple(watched))


def _waits(frame: FrameType) -> bool:
    """Whether a thread's innermost frame is a wait that somebody else has to end."""
    code = frame.f_code
    if code.co_filename == selectors.__file__:
        # Another event loop. One with a timer will go on by itself.
        timeout = frame.f_locals.get("timeout")
        return code.co_name == "select" and (timeout is None or timeout < 0)
    if code.co_filename not in _WAITING_IN or code.co_name in _RUNNING:
        return False
    outer: FrameType | None = frame
    while outer is not None and outer.f_code is not _TIMER:
        outer = outer.f_back
    return outer is None


class _End(NamedTuple):
    """One end of a connection."""

    family: int
    name: Any
    peer: Any
    listens: bool

    def meets(self, other: _End) -> bool:
        """Whether the other one is the other end of this. A client of a unix socket has no name to be known by."""
        if self.peer:
            return bool(self.peer == other.name)
        return self.family != socket.AF_INET and bool(self.name) and bool(self.name == other.peer)


def _end(fd: int) -> _End | None:
    """The end of a connection that this descriptor is; None when it is something else."""
    with suppress(OSError):
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return None
        with socket.socket(fileno=os.dup(fd)) as copy:
            listens = bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
            peer: Any = None
            with suppress(OSError):
                peer = copy.getpeername()
            return _End(copy.family, copy.getsockname(), peer, listens)
    return None
