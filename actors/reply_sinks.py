"""Reply sinks: where a session's replies and notifications go. Onto streams (HTTP), onto one channel (stdio, memory), or, without sessions, into the one response.

A session has one sink for life, and knows nothing else of how its peer listens. Sinks live in the session's process;
when that is gone, `end` sends the error replies that are still owed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from greenroom.protocol.dialect import OLDEST_DIALECT
from greenroom.supervision import later
from greenroom.transports.interfaces import EncodedReply, FeedEvent

from .session_streams import TRUNCATED, FeedWaiter, SessionStream, SessionStreams, StreamFeed, position_event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from greenroom.protocol.dialect import Dialect
    from greenroom.transports.interfaces import Feed, SessionReply

    from .session_calls import SessionCall
    from .settings import Settings

if TYPE_CHECKING:
    LastWords = Callable[[str | int], bytes]


class ReplySink(Protocol):
    """The interface that a session uses."""

    @property
    def mute(self) -> bool:
        """Whether only replies can be sent."""
        raise NotImplementedError

    @property
    def channel(self) -> ChannelFeed | None:
        """The channel, if the sink is one."""

    @property
    def has_reader(self) -> bool:
        """Whether a reader is there between calls."""
        raise NotImplementedError

    def reply_now(
        self, id: str | int, body: bytes | None, status: int = 200, needs: tuple[str, ...] = ()
    ) -> SessionReply:
        """The reply to a request that is answered inline. `needs` are the missing scopes of a refused request."""

    def reply_later(self) -> Any:
        """The value to return for a request whose reply comes later."""

    def reply(self, call: SessionCall, body: bytes | None, status: int = 200) -> None:
        """Send a call's reply; None sends nothing, since the peer has cancelled the call."""

    def notify(self, call: SessionCall | None, body: bytes, dialect: Dialect) -> bool:
        """Send a notification on a call's stream, or on the general one. False when the peer will not get it."""
        raise NotImplementedError

    def request(self, call: SessionCall | None, body: bytes, dialect: Dialect) -> bool:
        """Send a request of ours. False when the peer could not answer it."""
        raise NotImplementedError

    def open_stream(self, call: SessionCall, dialect: Dialect) -> None:
        """Make the call's stream before its first message, where calls have streams."""

    def interrupt(self, call: SessionCall, retry: int | None, dialect: Dialect) -> bool:
        """Close the call's stream for now."""
        raise NotImplementedError

    def listen(self, last_event_id: str | None, dialect: Dialect) -> Feed:
        """A reader for the general stream, or for the stream that an event was on."""
        raise NotImplementedError

    def drop_finished(self) -> bool:
        """Drop finished streams without a reader since the last call of this; whether any are left."""
        raise NotImplementedError

    def end(self, owed: LastWords) -> None:
        """The session has ended. `owed` makes the error reply of an open request."""


class StreamReplySink:
    """HTTP: a response for each request, a stream for calls that send messages first, and the general stream."""

    __slots__ = ("streams",)

    channel = None
    mute = False

    def __init__(self, settings: Settings) -> None:
        self.streams = SessionStreams(settings)

    @property
    def has_reader(self) -> bool:
        """Whether any stream has a reader."""
        return self.streams.has_reader

    def reply_now(
        self,
        id: str | int,  # noqa: ARG002
        body: bytes | None,
        status: int = 200,
        needs: tuple[str, ...] = (),
    ) -> SessionReply:
        """The reply itself."""
        return None if body is None else EncodedReply(body, status, needs)

    def reply_later(self) -> Any:
        """Nothing yet: the caller waits."""
        return later()

    def reply(self, call: SessionCall, body: bytes | None, status: int = 200) -> None:
        """Reply to the waiting caller, or on the call's stream."""
        if call.stream is not None:
            self.streams.finish(call.stream, body)
        elif call.caller is not None:
            call.caller.reply(None if body is None else EncodedReply(body, status))

    def notify(self, call: SessionCall | None, body: bytes, dialect: Dialect) -> bool:
        """Send a notification. The first one of a call makes its stream."""
        stream = self.streams.general if call is None else self._stream(call, dialect)
        if stream is None:
            return False
        stream.push(body)
        return True

    def request(self, call: SessionCall | None, body: bytes, dialect: Dialect) -> bool:
        """Send a request of ours. If the call's peer has gone away, it goes onto the general stream."""
        if call is not None and (stream := self._stream(call, dialect)) is not None:
            stream.push(body)
            return True
        if self.streams.general.reader is None:
            return False
        self.streams.general.push(body)
        return True

    def open_stream(self, call: SessionCall, dialect: Dialect) -> None:
        """Make the call's stream: its reader gets an event to resume from, and then waits."""
        self._stream(call, dialect)

    def interrupt(self, call: SessionCall, retry: int | None, dialect: Dialect) -> bool:
        """Close the stream, if its reader can resume it."""
        if not dialect.has_event_ids or (stream := self._stream(call, dialect)) is None:
            return False
        reader = stream.reader
        if reader is None:
            return False
        reader.close(0 if retry is None else retry)
        return True

    def listen(self, last_event_id: str | None, dialect: Dialect) -> Feed:
        """Resume after that event; after the last delivered event if it is unknown."""
        general = self.streams.general
        if last_event_id is None:
            ahead: list[FeedEvent] = []
            if dialect.has_event_ids:
                ahead.append(position_event(general.name, general.delivered))
            return StreamFeed(general, general.delivered, ahead=ahead)
        found = self.streams.find(last_event_id)
        if found is None:
            return StreamFeed(general, general.delivered, gap=True)
        return StreamFeed(found[0], found[1])

    def drop_finished(self) -> bool:
        """Drop finished streams without a reader."""
        return self.streams.drop_finished()

    def end(self, owed: LastWords) -> None:
        """End all streams, with the replies that they owe."""
        self.streams.end_all(owed)

    def _stream(self, call: SessionCall, dialect: Dialect) -> SessionStream | None:
        if call.stream is None:
            caller = call.caller
            if caller is None or caller.over:
                return None  # the caller has gone away before it had a stream to resume
            stream = call.stream = self.streams.begin(call.id)
            if call.observed is not None:
                call.observed.step("stream")
            ahead = [position_event(stream.name, 0)] if dialect.has_event_ids else []
            caller.reply(StreamFeed(stream, 0, ahead=ahead))
        return call.stream


class ChannelReplySink:
    """stdio and memory: everything on one feed, in order."""

    __slots__ = ("channel",)

    mute = False
    has_reader = True  # the transport ends the session when its peer is gone

    def __init__(self, settings: Settings) -> None:
        self.channel = ChannelFeed(settings)

    def reply_now(
        self,
        id: str | int,
        body: bytes | None,
        status: int = 200,  # noqa: ARG002
        needs: tuple[str, ...] = (),  # noqa: ARG002
    ) -> SessionReply:
        """Put the reply onto the channel."""
        if body is not None:
            self.channel.push(body, id)
        return self.channel

    def reply_later(self) -> Any:
        """The channel, at once."""
        return self.channel

    def reply(self, call: SessionCall, body: bytes | None, status: int = 200) -> None:  # noqa: ARG002
        """Put the reply onto the channel."""
        if body is not None:
            self.channel.push(body, call.id)
        if call.caller is not None:
            call.caller.reply(self.channel)

    def notify(self, call: SessionCall | None, body: bytes, dialect: Dialect) -> bool:  # noqa: ARG002
        """Put a notification onto the channel, unless it is full."""
        return self.channel.offer(body)

    def request(self, call: SessionCall | None, body: bytes, dialect: Dialect) -> bool:  # noqa: ARG002
        """Put a request onto the channel. Never dropped: `max_asks` limits them."""
        return self.channel.push(body)

    def open_stream(self, call: SessionCall, dialect: Dialect) -> None:
        """No-op: the channel is open."""

    def interrupt(self, call: SessionCall, retry: int | None, dialect: Dialect) -> bool:  # noqa: ARG002
        """False: a channel cannot be interrupted."""
        return False

    def listen(self, last_event_id: str | None, dialect: Dialect) -> Feed:  # noqa: ARG002
        """The channel, the only feed there is."""
        return self.channel

    def drop_finished(self) -> bool:
        """False: there are no other streams."""
        return False

    def end(self, owed: LastWords) -> None:  # noqa: ARG002
        """End the channel."""
        self.channel.end()


class AnswerOnlySink:
    """Without sessions: the reply to the one request, and nothing else."""

    __slots__ = ()

    channel = None
    has_reader = False
    mute = True

    def reply_now(
        self,
        id: str | int,  # noqa: ARG002
        body: bytes | None,
        status: int = 200,
        needs: tuple[str, ...] = (),
    ) -> SessionReply:
        """The reply itself."""
        return None if body is None else EncodedReply(body, status, needs)

    def reply_later(self) -> Any:
        """Nothing yet: the caller waits."""
        return later()

    def reply(self, call: SessionCall, body: bytes | None, status: int = 200) -> None:
        """Reply to the waiting caller."""
        if call.caller is not None:
            call.caller.reply(None if body is None else EncodedReply(body, status))

    def notify(self, call: SessionCall | None, body: bytes, dialect: Dialect) -> bool:  # noqa: ARG002
        """False: the peer would not get it."""
        return False

    def request(self, call: SessionCall | None, body: bytes, dialect: Dialect) -> bool:  # noqa: ARG002
        """False: the peer could not answer it."""
        return False

    def open_stream(self, call: SessionCall, dialect: Dialect) -> None:
        """No-op: there is no stream."""

    def interrupt(self, call: SessionCall, retry: int | None, dialect: Dialect) -> bool:  # noqa: ARG002
        """False: there is no stream."""
        return False

    def listen(self, last_event_id: str | None, dialect: Dialect) -> Feed:
        """Not offered by the transport: there is no stream."""
        raise NotImplementedError

    def drop_finished(self) -> bool:
        """False: there are no streams."""
        return False

    def end(self, owed: LastWords) -> None:
        """No-op: a waiting caller gets `ProcessExited`."""


class SingleStreamSink(StreamReplySink):
    """Without sessions, for a peer that accepts streams: messages go before the reply, and cannot be resumed."""

    __slots__ = ()

    def notify(self, call: SessionCall | None, body: bytes, dialect: Dialect) -> bool:
        """Send a notification of the call. There is no general stream."""
        return call is not None and super().notify(call, body, dialect)

    def request(self, call: SessionCall | None, body: bytes, dialect: Dialect) -> bool:  # noqa: ARG002
        """False: the answer would arrive as a request of its own, which finds no session."""
        return False

    def interrupt(self, call: SessionCall, retry: int | None, dialect: Dialect) -> bool:  # noqa: ARG002
        """False: the reader could not resume the stream."""
        return False

    def _stream(self, call: SessionCall, dialect: Dialect) -> SessionStream | None:  # noqa: ARG002
        """The stream, without an event to resume from."""
        return super()._stream(call, OLDEST_DIALECT)


class SingleFeed:
    """The stream of a request without a session: its events have no ids, and leaving it ends the request."""

    __slots__ = ("_end", "_feed")

    def __init__(self, feed: Feed, end: Callable[[], object]) -> None:
        """`end` is called whenever the stream is left, or has ended."""
        self._feed = feed
        self._end = end

    @property
    def name(self) -> str:
        """Empty: its events have no ids."""
        return ""

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:
        """The stream's events, without their ids."""
        events = await self._feed.next(timeout)
        return None if events is None else [event._replace(id="") for event in events]

    def leave(self) -> None:
        """End the request, whether or not it has its reply."""
        self._feed.leave()
        self._end()


# --- The feed of a session with a channel (stdio, memory): ordered and lossless.
# It is bounded by what waits for its reader. When that is too much, notifications are dropped, with a marker in their
# place. Replies and requests are always accepted, since their number is limited elsewhere, and the session takes no
# further request of the peer until there is room.

_BATCH: Final = 64


class ChannelFeed(FeedWaiter):
    """A lossless bounded feed, for one reader."""

    __slots__ = ("_events", "_gap", "_max_bytes", "_max_events", "_room", "_size", "over")

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._events: deque[FeedEvent] = deque()
        self._size = 0
        self._gap = False
        self._max_events = settings.channel_events
        self._max_bytes = settings.channel_bytes
        self._room: asyncio.Event | None = None
        self.over = False

    @property
    def name(self) -> str:
        """A constant: no event on the channel has an id."""
        return "channel"

    @property
    def full(self) -> bool:
        """Whether the limit is reached."""
        return len(self._events) >= self._max_events or self._size >= self._max_bytes

    def push(self, body: bytes, answers: str | int | None = None) -> bool:
        """Add a message that must not be lost. False when the channel has ended."""
        if self.over:
            return False
        self._append(FeedEvent("", body, answers=answers))
        return True

    def offer(self, body: bytes) -> bool:
        """Add a message that may be dropped when there is no room. Whether it was added."""
        if self.over:
            return False
        if self.full:
            if not self._gap:
                self._gap = True
                self._append(FeedEvent("", TRUNCATED))
            return False
        self._gap = False
        self._append(FeedEvent("", body))
        return True

    def end(self) -> None:
        """Accept no more messages; those that wait can still be read."""
        self.over = True
        self.wake()
        self._make_room()

    async def room(self) -> None:
        """Wait until there is room, or the channel has ended."""
        while self.full and not self.over:
            if self._room is None:
                self._room = asyncio.Event()
            await self._room.wait()

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:
        """The next events; empty after the timeout; None when the channel has ended."""
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
        """The reader is gone, and no other can take its place."""
        self.end()
        self._events.clear()
        self._size = 0

    def _append(self, event: FeedEvent) -> None:
        self._events.append(event)
        self._size += len(event.data)
        self.wake()

    def _make_room(self) -> None:
        if self._room is not None and (self.over or not self.full):
            self._room.set()
            self._room = None
