"""Where workers run: the seam between a pool and whatever starts processes. `lodging` has the real one."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision import ChildSpec, Ref

    from .pool import Pool


class Bench(Protocol):
    """One process for one worker, as the process at home that stands for it."""

    @property
    def who(self) -> Ref[Any]:
        """The process at home; it ends with the other one, and its reason says how that was."""
        ...

    @property
    def claims(self) -> Claims | None:
        """The file by which it is decided who begins with a call that was sent ahead; None where nothing is."""
        ...

    async def seat(self, home: Ref[Any], settings: Mapping[str, Any], plans: Mapping[int, bytes]) -> Ref[Any]:
        """Start a seat there. Raises what keeps it from coming up."""
        ...

    def busy(self, on: bool) -> None:  # noqa: FBT001 - a switch
        """It has a call, or none: while it has, it may be silent for as long as it likes."""
        ...

    def end(self) -> None:
        """End it, whatever it is at; certain, and soon."""
        ...


class Premises(Protocol):
    """Who has room for workers."""

    def child_spec(self) -> ChildSpec[Any] | None:
        """What has to run before anything is opened; it stops after all pools."""
        ...

    async def open(self, pool: Pool) -> Bench:
        """A new process, linked to the calling one. Raises what keeps it from coming up."""
        ...


# --- Who begins with a call that was sent ahead: its worker, or nobody there. Decided once, between two processes that do not wait for each other.
# A worker that has several calls lying before it need not be waited for after each. But one of them may last, and then those behind it are to go
# elsewhere, while the worker may just be about to begin with them. So each call has a byte of a file in memory, and whoever has locked that byte
# has the call: the worker before it begins, home before it gives the call to somebody else. The system grants a lock to one of them, whatever
# the other is at.
# A lock ends with whoever has it, and a handler that closes all descriptors has lost those of its worker, which goes on. So whoever has the lock
# also writes down that it has the call, and only who finds nothing written has it. That stays true when either of them is dead, and so home knows
# of each call that a lost worker had before it whether that was begun.

_MARKS: Final = 4096
"""How many marks there are: many more than calls that one worker can have before it, so that the file does not grow."""


class Claims:
    """One end of such a file."""

    def __init__(self, fd: int) -> None:
        """`fd` is kept, and closed in the end."""
        self._fd = fd

    @classmethod
    def made(cls) -> Claims | None:
        """A new one, at home; None where the system has no such files."""
        try:
            return cls(os.memfd_create("greenroom-claims", os.MFD_CLOEXEC))
        except (AttributeError, OSError):
            return None

    @classmethod
    def opened(cls, path: str | None) -> Claims | None:
        """The other end, by the path that home has given; None where that leads nowhere."""
        if path is None:
            return None
        try:
            return cls(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except OSError:
            return None

    @property
    def path(self) -> str:
        """Where another process of the same user finds it."""
        return f"/proc/{os.getpid()}/fd/{self._fd}"

    def begin(self, call: int) -> bool:
        """In the worker: have that call, and say so for good. False when home has it, or when that cannot be known any more."""
        if not self._lock(call):
            return False
        if self._mark(call):
            return True
        with contextlib.suppress(OSError):
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, call)
        return False

    def take(self, call: int) -> bool:
        """At home: have that call, for good. False when its worker has begun it; or when that cannot be known any more."""
        return self._lock(call) and self._mark(call)

    def _mark(self, call: int) -> bool:
        """Write down whose it is. False when the other has."""
        place, mark = call % _MARKS, _mark(call)
        try:
            return os.pread(self._fd, 1, place) != mark and os.pwrite(self._fd, mark, place) == 1
        except OSError:
            return False

    def _lock(self, call: int) -> bool:
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, call)
        except (OSError, ValueError):  # the other has it; or the file is closed
            return False
        return True

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """No call is to be decided any more."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                os.close(fd)


def _mark(call: int) -> bytes:
    """Another one than the call had that stood in the same place before."""
    return bytes((1 + call // _MARKS % 255,))
