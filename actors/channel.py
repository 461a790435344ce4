"""The one feed of a session that has a channel (stdio, memory): everything goes here, in order, and nothing is lost unsaid.

It is bounded by what waits for the reader. When that is too much, notifications are refused, and the reader finds a mark where they would
have been; answers and requests always go in, since their number is bounded elsewhere, and the session takes no further
request of the peer until there is room again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from greenroom.transports.seam import Event

from .feeds import TRUNCATED, Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .settings import Settings

_BATCH: Final = 64


class Channel(Waiting):
    """A lossless bounded feed, for one reader."""

    __slots__ = ("_events", "_gap", "_max_bytes", "_max_events", "_room", "_size", "over")

    def __init__(self, settings: Settings) -> None:
        """Nothing waits."""
        super().__init__()
        self._events: deque[Event] = deque()
        self._size = 0
        self._gap = False
        self._max_events = settings.channel_events
        self._max_bytes = settings.channel_bytes
        self._room: asyncio.Event | None = None
        self.over = False

    @property
    def name(self) -> str:
        """There is only one, and no event on it has an id."""
        return "channel"

    @property
    def full(self) -> bool:
        """Whether as much waits as may."""
        return len(self._events) >= self._max_events or self._size >= self._max_bytes

    def push(self, body: bytes, answers: str | int | None = None) -> bool:
        """Say what must not be lost. False when it is over."""
        if self.over:
            return False
        self._append(Event("", body, answers=answers))
        return True

    def offer(self, body: bytes) -> bool:
        """Say what may be left out when there is no room."""
        if self.over:
            return False
        if self.full:
            if not self._gap:
                self._gap = True
                self._append(Event("", TRUNCATED))
            return False
        self._gap = False
        self._append(Event("", body))
        return True

    def end(self) -> None:
        """Nothing will be said any more; what waits can still be read."""
        self.over = True
        self.wake()
        self._make_room()

    async def room(self) -> None:
        """Wait until there is room for more, or nothing will be said any more."""
        while self.full and not self.over:
            if self._room is None:
                self._room = asyncio.Event()
            await self._room.wait()

    async def next(self, timeout: float | None = None) -> Sequence[Event] | None:
        """What has come since the last time; empty when the time was up first; None when it has ended."""
        while not self._events:
            if self.over:
                return None
            if not await self.wait(timeout):
                break
        batch = [self._events.popleft() for _ in range(min(_BATCH, len(self._events)))]
        self._size -= sum(len(event.data) for event in batch)
        self._make_room()
        return batch

    def leave(self) -> None:
        """The reader is gone, and nobody else can take its place."""
        self.end()
        self._events.clear()
        self._size = 0

    def _append(self, event: Event) -> None:
        self._events.append(event)
        self._size += len(event.data)
        self.wake()

    def _make_room(self) -> None:
        if self._room is not None and (self.over or not self.full):
            self._room.set()
            self._room = None
