"""A channel within one program: a peer that speaks the wire to a company in the same loop, with nothing in between.

What is sent is taken at once, in the sender's own task; what comes back waits in a queue of a few frames, and when nobody
reads, the company waits. One process carries the answers; when it dies the wire ends, and with it `receive`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

from greenroom.supervision import current_node, kill, spawn, wait_down

from .channel import Channel
from .seam import Peer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from greenroom.supervision import ExitReason, Pid

    from .seam import Door, Session

DEPTH = 64
"""How many frames wait for their reader."""


class MemoryWire:
    """The peer's end: ``async with MemoryWire(door) as wire``, inside a node. For one reader at a time."""

    def __init__(self, door: Door, peer: Peer | None = None) -> None:
        """`peer` is whom the company takes the other end for."""
        self._channel = Channel(door, peer or Peer("memory"), self._put)
        self._frames: deque[Sequence[bytes]] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._writers: deque[asyncio.Future[None]] = deque()
        self._carrier: Pid | None = None
        self._ended = False

    @property
    def session(self) -> Session | None:
        """The session behind it, once something was said."""
        return self._channel.session

    async def __aenter__(self) -> Self:
        self._carrier = spawn(self._channel.carry)
        process = current_node().process(self._carrier)
        assert process is not None
        process.await_death(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(self, frame: bytes) -> None:
        """Say something: one message, with or without a line break at its end."""
        await self._channel.take(frame)

    async def receive(self) -> list[bytes]:
        """The next messages, at least one; none when the wire has ended. Cancelling it loses nothing."""
        while not self._frames:
            if self._ended:
                return []
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        frame = self._frames.popleft()
        if self._writers:
            _wake(self._writers.popleft())
        return list(frame)

    async def close(self) -> None:
        """The peer has done with it."""
        if self._carrier is not None:
            await self._channel.end()
            kill(self._carrier)
            await wait_down(self._carrier)
            self._carrier = None

    async def _put(self, frame: Sequence[bytes]) -> None:
        while len(self._frames) >= DEPTH and not self._ended:
            writer = asyncio.get_running_loop().create_future()
            self._writers.append(writer)
            await writer
        self._frames.append(frame)
        _wake(self._reader)

    def exited(self, reason: ExitReason) -> None:  # noqa: ARG002 - why is nothing that a peer could use
        """The carrier is gone."""
        self._ended = True
        _wake(self._reader)
        while self._writers:
            _wake(self._writers.popleft())


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
