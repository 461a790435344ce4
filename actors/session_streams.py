"""The streams of one session, as SSE needs them: numbered events, kept for readers that reconnect.

`g0` carries messages that belong to no request. Each call that sends a message before its reply has a stream of its own (`p1`, `p2` and so on), which ends with
the reply. Each stream keeps its newest events, bounded by count and by bytes, and so does the session as a whole. The session's process writes, and readers'
tasks read. When the process dies, `on_exit` ends all streams, with the error replies that they owe.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from greenroom.supervision import DirectWakeup, current_node
from greenroom.transports.interfaces import FeedEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from weakref import ref

    from greenroom.supervision import Node

    from .settings import Settings

GENERAL_STREAM: Final = "g0"
_KEPT_FINISHED: Final = 16
"""How many streams of finished calls are kept for readers that lost the end of one."""
_SESSION_LIMIT_FACTOR: Final = 4
"""The session may keep this many times as much as one stream."""


@dataclass(slots=True, eq=False, repr=False)
class SessionStream:
    """One stream, and its reader."""

    name: str
    _store: SessionStreams
    answers: str | int | None = None
    """The id of the request whose reply ends the stream."""
    last: int = 0
    delivered: int = 0
    size: int = 0
    over: bool = False
    stale: bool = False
    _reader: ref[StreamFeed] | None = (
        None  # weak: a reply that was lost on its way to the transport must not count as a reader
    )
    # Bodies only: a notification to all sessions is one object in memory, and events are made when they are read.
    # None until the first message, as most streams stay empty.
    _bodies: deque[bytes] | None = None
    _answered: str | int | None = None

    @property
    def reader(self) -> StreamFeed | None:
        """The current reader; None without one."""
        return None if self._reader is None else self._reader()

    def set_reader(self, reader: ref[StreamFeed] | None) -> None:
        """Set the reader, or None."""
        self._reader = reader

    @property
    def first(self) -> int:
        """The number of the oldest kept event; one more than the last when none is kept."""
        return self.last + 1 - (len(self._bodies) if self._bodies else 0)

    def push(self, body: bytes) -> None:
        """Append a message. Beyond the limits the oldest are dropped; the newest always stays."""
        self.last += 1
        if self._bodies is None:
            self._bodies = deque()
        self._bodies.append(body)
        self.size += len(body)
        store = self._store
        store.size += len(body)
        while self.size > store.max_bytes or len(self._bodies) > store.max_events:
            if not self.drop():
                break
        store.trim()
        self.wake()

    def finish(self, body: bytes) -> None:
        """Append the reply, and end the stream."""
        self._answered, self.answers = self.answers, None
        self.over = True
        self.push(body)

    def end(self) -> None:
        """End the stream."""
        self.over = True
        self.wake()

    def drop(self) -> bool:
        """Drop the oldest event, unless it is the only one."""
        bodies = self._bodies
        if bodies is None or len(bodies) < 2:  # noqa: PLR2004 - one always stays
            return False
        size = len(bodies.popleft())
        self.size -= size
        self._store.size -= size
        return True

    def events_from(self, number: int) -> Iterator[FeedEvent]:
        """The kept events from this number on."""
        first, answer = self.first, self.last if self.over else 0
        skip = max(0, number - first)
        for at, body in enumerate(islice(self._bodies or (), skip, None), first + skip):
            yield FeedEvent(f"{self.name}:{at}", body, answers=self._answered if at == answer else None)

    def wake(self) -> None:
        """Wake the reader."""
        reader = self.reader
        if reader is not None:
            reader.wake()


class SessionStreams:
    """All streams of one session."""

    __slots__ = ("_call_streams", "_count", "_finished", "general", "max_bytes", "max_events", "size")

    def __init__(self, settings: Settings) -> None:
        self.max_events = settings.buffer_events
        self.max_bytes = settings.buffer_bytes
        self.size = 0
        self.general = SessionStream(GENERAL_STREAM, self)
        self._call_streams: dict[str, SessionStream] | None = None
        self._finished: deque[SessionStream] | None = None
        self._count = 0

    def begin(self, answers: str | int) -> SessionStream:
        """Make the stream of a call."""
        self._count += 1
        stream = SessionStream(f"p{self._count}", self, answers)
        if self._call_streams is None:
            self._call_streams = {}
        self._call_streams[stream.name] = stream
        return stream

    def finish(self, stream: SessionStream, body: bytes | None) -> None:
        """End the stream of a call, with its reply or without; it is kept for a while."""
        if body is None:
            stream.answers = None
            stream.end()
        else:
            stream.finish(body)
        if self._finished is None:
            self._finished = deque()
        self._finished.append(stream)
        if len(self._finished) > _KEPT_FINISHED:
            self._forget(self._finished.popleft())

    def drop_finished(self) -> bool:
        """Drop finished streams that have no reader and were finished at the last call of this; whether any are left."""
        finished = self._finished
        if not finished:
            return False
        for stream in tuple(finished):
            if stream.reader is not None:
                continue
            if stream.stale:
                finished.remove(stream)
                self._forget(stream)
            else:
                stream.stale = True
        return bool(finished)

    def find(self, event_id: str) -> tuple[SessionStream, int] | None:
        """The stream that an event was on, and the event's number; None if it is unknown or no longer kept."""
        name, _, digits = event_id.partition(":")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 16):  # noqa: PLR2004 - more digits than any count
            return None
        stream = self.general if name == GENERAL_STREAM else (self._call_streams or {}).get(name)
        number = int(digits)
        if stream is None or number > stream.last or number < stream.first - 1:
            return None
        return stream, number

    @property
    def has_reader(self) -> bool:
        """Whether any stream has a reader."""
        return self.general.reader is not None or any(
            each.reader is not None for each in (self._call_streams or {}).values()
        )

    def trim(self) -> None:
        """Apply the session's limit: finished streams go first, then the oldest events of the largest stream."""
        limit = self.max_bytes * _SESSION_LIMIT_FACTOR
        while self.size > limit:
            if self._finished and (idle := next((each for each in self._finished if each.reader is None), None)):
                self._finished.remove(idle)
                self._forget(idle)
                continue
            largest = max((self.general, *(self._call_streams or {}).values()), key=attrgetter("size"))
            if not largest.drop():
                return

    def end_all(self, owed: Callable[[str | int], bytes]) -> None:
        """End every stream; `owed` makes the error reply where one is still owed."""
        for stream in (self.general, *(self._call_streams or {}).values()):
            if stream.answers is not None:
                stream.finish(owed(stream.answers))
            stream.end()

    def _forget(self, stream: SessionStream) -> None:
        posts = self._call_streams
        if posts is not None and posts.pop(stream.name, None) is not None:
            self.size -= stream.size


# --- Reading a stream: the feed that a transport gets.
# A feed belongs to one reader. It ends when its stream has ended and everything has been read, when another reader
# takes the stream over, or when the session asks the reader to reconnect later. It runs in the reader's own task; the
# session does not wait for it.

TRUNCATED: Final = b'{"jsonrpc":"2.0","method":"notifications/replay_truncated","params":{}}'
"""Sent in place of events that were dropped before a reader came for them."""
_BATCH: Final = 64


class FeedWaiter:
    """Lets one task wait for new events, with a timeout."""

    __slots__ = ("_node", "_timed_out", "_wakeup")

    def __init__(self) -> None:
        self._wakeup: DirectWakeup | None = None
        self._node: Node | None = None
        self._timed_out = False

    def wake(self) -> None:
        """Wake the waiting task."""
        wakeup, node = self._wakeup, self._node
        if wakeup is not None and node is not None:
            self._wakeup = None
            node.wake_soon(wakeup)

    async def wait(self, timeout: float | None) -> bool:
        """Wait for `wake`. False after the timeout."""
        node = self._node = current_node()
        wakeup = self._wakeup = DirectWakeup(node.loop)
        self._timed_out = False
        timer = None if timeout is None else node.loop.call_later(timeout, self._time_is_up, wakeup)
        try:
            await wakeup
        finally:
            if timer is not None:
                timer.cancel()
            if self._wakeup is wakeup:
                self._wakeup = None
        return not self._timed_out

    def _time_is_up(self, wakeup: DirectWakeup) -> None:
        if self._wakeup is wakeup:  # else `wake` came first, and the task runs next
            self._wakeup = None
            self._timed_out = True
            wakeup.wake()


class StreamFeed(FeedWaiter):
    """One reader of a stream."""

    __slots__ = ("__weakref__", "_first_events", "_next", "_reconnect_event", "_stream", "_until", "is_replaced")

    def __init__(
        self, stream: SessionStream, after: int, *, ahead: Sequence[FeedEvent] = (), gap: bool = False
    ) -> None:
        """Read on after that number. `ahead` comes first, or a marker that events are missing (`gap`).

        The stream's previous reader is closed.
        """
        super().__init__()
        before = stream.reader
        if before is not None:
            before.close()
        stream.set_reader(weakref.ref(self))
        self._stream = stream
        self._next = after + 1
        self._first_events: list[FeedEvent] = [FeedEvent(f"{stream.name}:{after}", TRUNCATED)] if gap else list(ahead)
        self._until: int | None = None
        self._reconnect_event: FeedEvent | None = None
        self.is_replaced = False
        """Whether another reader has taken the stream."""

    @property
    def name(self) -> str:
        """The stream's name in its events' ids."""
        return self._stream.name

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:
        """The next events; empty after the timeout; None when the feed has ended."""
        while True:
            events = self._take()
            if events:
                return events
            if self._ended():
                self.leave()
                return None
            if not await self.wait(timeout):
                return self._take()

    def _take(self) -> list[FeedEvent]:
        stream = self._stream
        events, self._first_events = self._first_events, []
        until = stream.last if self._until is None else self._until
        if self._next <= until:
            if self._next < stream.first:
                events.append(FeedEvent("", TRUNCATED))
                self._next = stream.first
            for event in stream.events_from(self._next):
                if self._next > until or len(events) >= _BATCH:
                    break
                events.append(event)
                self._next += 1
            stream.delivered = max(stream.delivered, self._next - 1)
        if self._reconnect_event is not None and self._next > until:
            events.append(self._reconnect_event)
            self._reconnect_event = None
        return events

    def _ended(self) -> bool:
        return self._until is not None or (self._stream.over and self._next > self._stream.last)

    def close(self, retry: int | None = None) -> None:
        """End the feed after the events up to now, and perhaps an event that asks the reader to reconnect later."""
        stream = self._stream
        if self._until is None:
            if retry is None:
                self.is_replaced = True
                self._until = self._next - 1
                self._first_events.clear()
            else:
                self._until = stream.last
                self._reconnect_event = FeedEvent(f"{stream.name}:{stream.last}", b"", retry)
        if stream.reader is self:
            stream.set_reader(None)
        self.wake()

    def leave(self) -> None:
        """The reader is gone; events on the stream stay for the next one."""
        if self._stream.reader is self:
            self._stream.set_reader(None)
        if self._until is None:
            self._until = self._next - 1


def position_event(name: str, number: int) -> FeedEvent:
    """An event without a message, whose id lets a reader resume before the first message."""
    return FeedEvent(f"{name}:{number}", b"")


__all__ = ["TRUNCATED", "FeedWaiter", "StreamFeed", "position_event"]
