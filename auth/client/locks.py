"""One at a time, whoever it is: a lock on a file, which other processes of this machine respect. Who dies while holding it gives it back.

The kernel keeps it, so there is nothing stale to be found: the file itself says nothing, and stays.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from greenroom.auth.errors import SignInError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

_SOONEST: Final = 0.01
_LATEST: Final = 0.1


PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EINTR, errno.EAGAIN})
"""What the same may go well without, in a while."""
_UNWRITABLE: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT})


def advice(error: OSError) -> str:
    """What to do where a file cannot be made."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "raise ulimit -n, or have fewer files open"
    return "make room, or name another folder"


@asynccontextmanager
async def file_lock(path: Path, seconds: float, *, readable: bool = False) -> AsyncGenerator[None]:
    """Hold it. Raises `SignInError` when another program does for too long, and when the file cannot be made.

    `readable` is for what is done also where nothing can be written, as with a login that is mounted for reading: a lock file that is there is held
    without being written to, or else its folder.
    """
    try:
        descriptor = _opened(path, readable=readable)
    except OSError as error:
        raise SignInError(
            "store",
            f"{path} cannot be locked: {error.strerror}; {advice(error)}",
            temporary=error.errno in PASSING,
        ) from None
    try:
        try:
            async with asyncio.timeout(seconds):
                await _taken(descriptor)
        except TimeoutError:
            raise SignInError(
                "lock",
                f"another program has been signing in for more than {seconds:g} s: finish there, or end it",
                temporary=True,
            ) from None
        yield
    finally:
        os.close(descriptor)  # which gives it back


def _opened(path: Path, *, readable: bool) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if not readable or error.errno not in _UNWRITABLE:
            raise
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)


async def _taken(descriptor: int) -> None:
    pause = _SOONEST
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(pause)  # a blocking one would need a thread that nobody could call back
            pause = min(2 * pause, _LATEST)
        else:
            return
