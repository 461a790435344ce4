"""One at a time, whoever it is: a lock on a file, which other processes of this machine respect. Who dies while holding it gives it back.

The kernel keeps it, so there is nothing stale to be found: the file itself says nothing, and stays.
"""

from __future__ import annotations

import asyncio
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


@asynccontextmanager
async def file_lock(path: Path, seconds: float) -> AsyncGenerator[None]:
    """Hold it. Raises `SignInError` when somebody else does for too long."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
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
