"""The time limit of each test: a test that hangs fails by itself, shows every stack, and the tests after it run.

pytest-timeout does less: it raises once, and a supervised process catches that, takes it for its own crash and is restarted in the same loop. Here the exception
is raised again until the test has ended. It is no `Exception` and none of pytest's, so Hypothesis does not shrink it.

"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import FrameType

LIMIT: Final = 120.0
"""Seconds for each phase of a test (set-up, call, tear-down). Nearly all take less than one, and the machine may be busy."""

SOAK_LIMIT: Final = 3600.0
"""Seconds for a test marked `soak`, which runs for minutes by design."""

AGAIN: Final = 5.0
"""Seconds until the exception is raised again in a test that caught it, or whose clean-up hangs."""

LAST: Final = 60.0
"""Seconds of processor time beyond the limit after which the process is ended, because nothing can be raised in its main thread."""


class TimeLimitExceeded(BaseException):
    """The test took too long."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for another limit; 0 is none, for a debugger."""
    parser.addoption("--time-limit", type=float, help=f"seconds for each test that names no limit itself: {LIMIT:g}")


_stderr: Final = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and let the last resort print all stacks before it ends the process."""
    config.addinivalue_line(
        "markers", "time_limit(seconds): how long this test may take, where the default is too short"
    )
    config.addinivalue_line(
        "markers", "processor_time: this test reads the clock of processor time, and goes without the last resort"
    )
    config.stash[_stderr] = os.dup(
        2
    )  # while a test runs, pytest has redirected fd 2 to a file that is lost with the process
    faulthandler.register(signal.SIGPROF, config.stash[_stderr], all_threads=True, chain=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Restore the signal handlers."""
    faulthandler.unregister(signal.SIGPROF)
    os.close(config.stash[_stderr])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    """Limit the set-up."""
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Limit the call."""
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Limit the tear-down."""
    return (yield from _limited(item))


def limit_of(item: pytest.Item) -> float:
    """The limit of a test in seconds: its marker's, the option's, or the default."""
    marker = item.get_closest_marker("time_limit")
    if marker is not None:
        return float(marker.args[0])
    chosen: float | None = item.config.getoption("--time-limit")
    if chosen is not None:
        return chosen
    return SOAK_LIMIT if item.get_closest_marker("soak") is not None else LIMIT


def _limited(item: pytest.Item) -> Generator[None, Any, Any]:
    # One timer per phase: between two phases the exception would be raised in pytest itself and end the whole run.
    seconds = limit_of(item)
    if not seconds or threading.current_thread() is not threading.main_thread():
        return (yield)
    shown = False

    def ring(_number: int, frame: FrameType | None) -> None:
        nonlocal shown
        if not shown:
            shown = True
            sys.stderr.write("\n".join([*_stacks(frame), ""]))
        raise TimeLimitExceeded(f"{item.nodeid} took more than {seconds:g} s; its stacks are under `stderr`")

    before = signal.signal(signal.SIGALRM, ring)
    # SIGPROF, and not `faulthandler.dump_traceback_later`: that one starts a thread, and from Python 3.12 on a fork beside a thread is a warning.
    if item.get_closest_marker("processor_time") is None:  # the kernel counts processor time in ticks of 4 ms
        signal.setitimer(signal.ITIMER_PROF, seconds + LAST)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGALRM, before)


def _stacks(here: FrameType | None) -> Iterator[str]:
    """The stacks of all threads and unfinished asyncio tasks, outermost call first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        at = here if ident == threading.get_ident() else frame
        yield f"--- thread {names.get(ident, ident)}"
        yield "".join(traceback.format_stack(at)).rstrip()
    # `asyncio.all_tasks` knows one loop only, and a test may run several
    tasks: list[asyncio.Task[Any]] = [each for each in gc.get_objects() if issubclass(type(each), asyncio.Task)]
    for task in (each for each in tasks if not each.done()):
        yield f"--- task {task.get_name()}"
        awaited: Any = task.get_coro()
        while awaited is not None:
            frames = (getattr(awaited, name, None) for name in ("cr_frame", "gi_frame", "ag_frame"))
            yield from ("".join(traceback.format_stack(at, limit=1)).rstrip() for at in frames if at is not None)
            awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
