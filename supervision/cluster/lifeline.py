"""The lifeline: a pipe whose writing end only the application holds, so that its end is the end of everything below.

However the application dies, the kernel closes the pipe. Each process below has the reading end armed: the kernel then kills it, whether
it computes, sleeps, is stopped or holds the interpreter's lock. Every process that is forked below arms itself anew, also one that code
in a node forks; only a program that such code executes is not, and the warden, which looks at the pipe itself, ends that.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

_SETSIG: Final[int | None] = getattr(fcntl, "F_SETSIG", None)  # Linux alone can say which signal it shall be

_held: Final[set[Lifeline]] = set()
"""Those that are not cut: a fork must know of them, also when nobody else does any more."""


class Lifeline:
    """The application's end."""

    def __init__(self) -> None:
        """`reading` is for whoever lives below; close it here once they have it."""
        self.reading, self._writing = os.pipe()
        self._pid = os.getpid()
        _held.add(self)

    def handed_over(self) -> None:
        """Those below hold their end."""
        if self.reading >= 0:
            os.close(self.reading)
            self.reading = -1

    def cut(self) -> None:
        """Everybody below ends, now. Again is nothing."""
        _held.discard(self)
        self.handed_over()
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1

    def forked(self) -> None:
        """In a child of the application's, which must not keep those alive whom the application has left behind."""
        with contextlib.suppress(OSError):
            self.cut()


class _Armed:
    """What this process has of the lifeline: the reading end that it inherited, and its own description of it."""

    reading = -1
    own = -1
    waiting = -1
    """Another one, while something is waited for that is void when the application ends."""


class Cut(BaseException):
    """The application is gone. Not an error, and nobody's on the way to handle."""


def arm_forks(reading: int) -> None:
    """Below, in whoever forks the others: tie what it forks to the lifeline, and what those fork, each by itself."""
    _Armed.reading = reading
    os.register_at_fork(after_in_child=_tie)


def holds(descriptor: int) -> bool:
    """Whether that descriptor is the lifeline's: whoever closes all others lets it be."""
    return descriptor >= 0 and descriptor in (_Armed.reading, _Armed.own)


def is_cut(reading: int) -> bool:
    """Whether the application is gone."""
    poll = select.poll()
    poll.register(reading, 0)
    return bool(poll.poll(0))


@contextlib.contextmanager
def waiting(reading: int) -> Generator[None]:
    """For the warden: what waits in here, for whatever and as long as it likes, is given up when the application ends. Raises `Cut`."""
    own = _armed(reading, signal.SIGIO)
    if own is None:
        yield
        return
    _Armed.waiting = own
    before = signal.signal(signal.SIGIO, _give_up)
    try:
        if is_cut(reading):
            raise Cut
        yield
    finally:
        # Forks that are under way have this description, too: nothing is to come of it any more.
        fcntl.fcntl(own, fcntl.F_SETFL, os.O_NONBLOCK)
        _Armed.waiting = -1
        os.close(own)
        signal.signal(signal.SIGIO, before)


def wake_at_end(reading: int) -> int | None:
    """For the warden: should it be stopped when the application ends, it goes on, and ends everything below. The descriptor that does that, if any.

    It cannot be killed by the lifeline, as those below are: what code in nodes has executed is ended by nothing else.
    """
    return _armed(reading, signal.SIGCONT)


def _give_up(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - how handlers are called
    raise Cut


def _armed(reading: int, number: int) -> int | None:
    """A description of the pipe that is this process's own, and has it sent that signal. None where nobody can be asked for it."""
    if _SETSIG is None:
        return None
    # To whom a signal goes is a property of the description, which a fork shares.
    try:
        own = os.open(f"/proc/self/fd/{reading}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None  # code in a node has closed what was not its own: the warden still sees to it
    fcntl.fcntl(own, _SETSIG, number)
    fcntl.fcntl(own, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(own, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    return own


def _tie() -> None:
    reading, before = _Armed.reading, _Armed.own
    if _Armed.waiting >= 0:
        os.close(_Armed.waiting)
        _Armed.waiting = -1
        signal.signal(signal.SIGIO, signal.SIG_DFL)
    own = _armed(reading, signal.SIGKILL)
    if own is None:
        return
    _Armed.own = own
    if before >= 0:
        with contextlib.suppress(OSError):
            os.close(before)
    if is_cut(reading):  # it was so before there was a signal to be sent
        os.kill(os.getpid(), signal.SIGKILL)


def watch_in_thread() -> None:
    """Where the kernel cannot be asked for it: a thread that waits for the lifeline's end. In a process that never forks again."""
    if _SETSIG is not None:
        return

    def wait() -> None:
        with contextlib.suppress(OSError):
            os.read(_Armed.reading, 1)
        os._exit(1)

    threading.Thread(target=wait, name="greenroom-lifeline", daemon=True).start()


def _forked() -> None:
    for lifeline in list(_held):
        lifeline.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
