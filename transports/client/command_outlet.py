"""What is written to a child: at once where it fits, else in order when there is room, and never more than so much.

The pipe's end does not block. A burst (several messages in one turn of the loop) is written as one after the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from typing import TYPE_CHECKING

from .errors import WireFull

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.protocol.messages import RequestId


class Outlet:
    """The writing end."""

    def __init__(self, limit: int, broken: Callable[[], None]) -> None:
        """`limit` is how many bytes may wait. `broken` is called once when nobody reads any more."""
        self._limit = limit
        self._broken = broken
        self._descriptor: int | None = None
        self._loop: asyncio.AbstractEventLoop
        self._frames: deque[tuple[bytes | memoryview, RequestId | None]] = deque()
        self._begun = False
        self._waiting = 0
        self._armed = False
        self._ended = False
        self._drained: asyncio.Future[None] | None = None

    def open(self, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
        """There is somebody to write to; what was said before goes out now."""
        self._descriptor, self._loop = descriptor, loop
        self._flush()

    def send(self, frame: bytes, id: RequestId | None) -> None:
        """Say it. Raises `WireFull`; says nothing when nobody is there any more, which others tell."""
        if self._ended:
            return
        data = frame if frame.endswith(b"\n") else frame + b"\n"
        if self._descriptor is None or self._frames:
            if self._waiting >= self._limit:
                raise WireFull(f"{self._waiting:,} bytes wait for the server to read them; this message was not taken")
            self._waiting += len(data)
            self._frames.append((data, id))
            return
        try:
            written = os.write(self._descriptor, data)
        except BlockingIOError:
            written = 0
        except OSError:
            self._break()
            return
        if written < len(data):
            self._begun = written > 0
            self._frames.append((memoryview(data)[written:], id))
            self._waiting = len(data) - written
            self._arm()

    def unsent(self) -> list[RequestId]:
        """The requests of which no byte was written."""
        frames = list(self._frames)[1 if self._begun else 0 :]
        return [id for _, id in frames if id is not None]

    async def drained(self, seconds: float) -> None:
        """Wait until all is written, or the time is over."""
        if self._frames and not self._ended:
            self._drained = self._loop.create_future()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._drained

    def close(self) -> None:
        """Write nothing more."""
        self._ended = True
        self._disarm()
        self._wake()

    def _flush(self) -> None:
        assert self._descriptor is not None
        while self._frames:
            data, id = self._frames[0]
            try:
                written = os.write(self._descriptor, data)
            except BlockingIOError:
                self._arm()
                return
            except OSError:
                self._break()
                return
            self._waiting -= written
            if written < len(data):
                self._begun = True
                self._frames[0] = (memoryview(data)[written:], id)
                self._arm()
                return
            self._begun = False
            self._frames.popleft()
        self._disarm()
        self._wake()

    def _arm(self) -> None:
        if not self._armed:
            assert self._descriptor is not None
            self._armed = True
            self._loop.add_writer(self._descriptor, self._flush)

    def _disarm(self) -> None:
        if self._armed and self._descriptor is not None:
            self._armed = False
            if not self._loop.is_closed():
                self._loop.remove_writer(self._descriptor)

    def _break(self) -> None:
        self.close()
        self._broken()

    def _wake(self) -> None:
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
