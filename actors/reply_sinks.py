"""Where a session's words go: onto streams (HTTP), onto one channel (stdio, memory), or, without sessions, before the answer or nowhere.

A session has one reply_sink for life, and knows nothing else of how its peer listens. All of them live in the session's process; when that is
gone, `end` says the last words where an answer was still owed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from greenroom.protocol.versions import V2025_06_18, V2025_11_25
from greenroom.supervision import later
from greenroom.transports.interfaces import EncodedReply, FeedEvent

from .session_streams import TRUNCATED, FeedWaiter, SessionStream, SessionStreams, StreamFeed, position_event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from greenroom.transports.interfaces import Feed, SessionReply

    from .session_calls import SessionCall
    from .settings import Settings

if TYPE_CHECKING:
    LastWords = Callable[[str | int], bytes]


class ReplySink(Protocol):
    """What a session needs of it."""

    @property
    def mute(self) -> bool:
        """Whether nothing but answers can be said."""
        raise NotImplementedError

    @property
    def channel(self) -> ChannelFeed | None:
        """The channel, if that is what it is."""

    @property
    def has_reader(self) -> bool:
        """Whether there is a reader in between calls."""
        raise NotImplementedError

    def reply_now(
        self, id: str | int, body: bytes | None, status: int = 200, needs: tuple[str, ...] = ()
    ) -> SessionReply:
        """The reply to a request that is answered on the spot; `needs` are the scopes for want of which it is refused."""

    def reply_later(self) -> Any:
        """The reply, for now, to a request whose answer comes later."""

    def reply(self, call: SessionCall, body: bytes | None, status: int = 200) -> None:
        """Answer a call that has been decided; None says nothing, since the peer has cancelled it."""

    def notify(self, call: SessionCall | None, body: bytes, version: str) -> bool:
        """Say something on a call's stream, or on the general one. False when the peer will not get it."""
        raise NotImplementedError

    def request(self, call: SessionCall | None, body: bytes, version: str) -> bool:
        """The same for a request of ours, which is only worth sending where it can be answered."""
        raise NotImplementedError

    def open_stream(self, call: SessionCall, version: str) -> None:
        """Make the call's stream before it has said a word, where a call has one."""

    def interrupt(self, call: SessionCall, retry: int | None, version: str) -> bool:
        """Close the call's stream for now."""
        raise NotImplementedError

    def listen(self, last_event_id: str | None, version: str) -> Feed:
        """A reader for what belongs to no call, or for the stream that an event was on."""
        raise NotImplementedError

    def drop_finished(self) -> bool:
        """Forget finished streams that no reader has come back for since the last time; whether any are left."""
        raise NotImplementedError

    def end(self, owed: LastWords) -> None:
        """The session is gone."""


class StreamReplySink:
    """HTTP: an answer of its own for each request, a stream for those that say something first, and the general stream."""

    __slots__ = ("streams",)

    channel = None
    mute = False

    def __init__(self, settings: Settings) -> None:
        """No stream has a reader yet."""
        self.streams = SessionStreams(settings)

    @property
    def has_reader(self) -> bool:
        """Whether any stream has a reader."""
        return self.streams.has_reader

    def reply_now(
        self, id: str | int, body: bytes | None, status: int = 200, needs: tuple[str, ...] = ()
    ) -> SessionReply:  # noqa: ARG002
        """The answer itself."""
        return None if body is None else EncodedReply(body, status, needs)

    def reply_later(self) -> Any:
        """Nothing: the caller waits."""
        return later()

    def reply(self, call: SessionCall, body: bytes | None, status: int = 200) -> None:
        """To the caller that waits, or on the stream that the call has been given."""
        if call.stream is not None:
            self.streams.finish(call.stream, body)
        elif call.caller is not None:
            call.caller.reply(None if body is None else EncodedReply(body, status))

    def notify(self, call: SessionCall | None, body: bytes, version: str) -> bool:
        """The first word of a call makes its stream."""
        stream = self.streams.general if call is None else self._stream(call, version)
        if stream is None:
            return False
        stream.push(body)
        return True

    def request(self, call: SessionCall | None, body: bytes, version: str) -> bool:
        """A question of a call whose peer has gone away may still go out on the general stream."""
        if call is not None and (stream := self._stream(call, version)) is not None:
            stream.push(body)
            return True
        if self.streams.general.reader is None:
            return False
        self.streams.general.push(body)
        return True

    def open_stream(self, call: SessionCall, version: str) -> None:
        """Its reader gets the mark to come back to, and then waits."""
        self._stream(call, version)

    def interrupt(self, call: SessionCall, retry: int | None, version: str) -> bool:
        """Only a reader that knows how to come back is sent away."""
        if version < V2025_11_25 or (stream := self._stream(call, version)) is None:
            return False
        reader = stream.reader
        if reader is None:
            return False
        reader.close(0 if retry is None else retry)
        return True

    def listen(self, last_event_id: str | None, version: str) -> Feed:
        """On from where the reader was; from the first event that was not read yet when that is unknown."""
        general = self.streams.general
        if last_event_id is None:
            ahead: list[FeedEvent] = []
            if version >= V2025_11_25:
                ahead.append(position_event(general.name, general.delivered))
            return StreamFeed(general, general.delivered, ahead=ahead)
        found = self.streams.find(last_event_id)
        if found is None:
            return StreamFeed(general, general.delivered, gap=True)
        return StreamFeed(found[0], found[1])

    def drop_finished(self) -> bool:
        """Finished streams without a reader."""
        return self.streams.drop_finished()

    def end(self, owed: LastWords) -> None:
        """End all streams, with the answers that they owe."""
        self.streams.end_all(owed)

    def _stream(self, call: SessionCall, version: str) -> SessionStream | None:
        if call.stream is None:
            caller = call.caller
            if caller is None or caller.over:
                return None  # the caller has gone away, and was never told of a stream to come back to
            stream = call.stream = self.streams.begin(call.id)
            ahead = [position_event(stream.name, 0)] if version >= V2025_11_25 else []
            caller.reply(StreamFeed(stream, 0, ahead=ahead))
        return call.stream


class ChannelReplySink:
    """stdio and memory: everything on one feed, in order."""

    __slots__ = ("channel",)

    mute = False
    has_reader = True  # the transport ends the session when its peer is gone

    def __init__(self, settings: Settings) -> None:
        """An empty channel."""
        self.channel = ChannelFeed(settings)

    def reply_now(
        self, id: str | int, body: bytes | None, status: int = 200, needs: tuple[str, ...] = ()
    ) -> SessionReply:  # noqa: ARG002
        """The answer goes where everything goes."""
        if body is not None:
            self.channel.push(body, id)
        return self.channel

    def reply_later(self) -> Any:
        """The channel, at once."""
        return self.channel

    def reply(self, call: SessionCall, body: bytes | None, status: int = 200) -> None:  # noqa: ARG002
        """As anything else."""
        if body is not None:
            self.channel.push(body, call.id)
        if call.caller is not None:
            call.caller.reply(self.channel)

    def notify(self, call: SessionCall | None, body: bytes, version: str) -> bool:  # noqa: ARG002
        """Unless too much waits already."""
        return self.channel.offer(body)

    def request(self, call: SessionCall | None, body: bytes, version: str) -> bool:  # noqa: ARG002
        """Never left out: there are only so many."""
        return self.channel.push(body)

    def open_stream(self, call: SessionCall, version: str) -> None:
        """The channel is open."""

    def interrupt(self, call: SessionCall, retry: int | None, version: str) -> bool:  # noqa: ARG002
        """A channel cannot be interrupted."""
        return False

    def listen(self, last_event_id: str | None, version: str) -> Feed:  # noqa: ARG002
        """There is nothing else to listen to."""
        return self.channel

    def drop_finished(self) -> bool:
        """There is nothing to come back for."""
        return False

    def end(self, owed: LastWords) -> None:  # noqa: ARG002
        """Nothing comes any more."""
        self.channel.end()


class AnswerOnlySink:
    """Without sessions: a request is answered, and that is all that can be said."""

    __slots__ = ()

    channel = None
    has_reader = False
    mute = True

    def reply_now(
        self, id: str | int, body: bytes | None, status: int = 200, needs: tuple[str, ...] = ()
    ) -> SessionReply:  # noqa: ARG002
        """The answer itself."""
        return None if body is None else EncodedReply(body, status, needs)

    def reply_later(self) -> Any:
        """Nothing: the caller waits."""
        return later()

    def reply(self, call: SessionCall, body: bytes | None, status: int = 200) -> None:
        """To the caller that waits."""
        if call.caller is not None:
            call.caller.reply(None if body is None else EncodedReply(body, status))

    def notify(self, call: SessionCall | None, body: bytes, version: str) -> bool:  # noqa: ARG002
        """Not sent: the peer would not get it."""
        return False

    def request(self, call: SessionCall | None, body: bytes, version: str) -> bool:  # noqa: ARG002
        """Not sent: the peer could not answer it."""
        return False

    def open_stream(self, call: SessionCall, version: str) -> None:
        """There is no stream."""

    def interrupt(self, call: SessionCall, retry: int | None, version: str) -> bool:  # noqa: ARG002
        """There is no stream."""
        return False

    def listen(self, last_event_id: str | None, version: str) -> Feed:
        """There is nothing to listen to: the transport does not offer it."""
        raise NotImplementedError

    def drop_finished(self) -> bool:
        """There is nothing to come back for."""
        return False

    def end(self, owed: LastWords) -> None:
        """Nothing to do: a caller that waits hears of the session's end."""


class SingleStreamSink(StreamReplySink):
    """Without sessions, for a peer that takes streams: what a request says goes before its answer, and cannot be had again."""

    __slots__ = ()

    def notify(self, call: SessionCall | None, body: bytes, version: str) -> bool:
        """There is no general stream."""
        return call is not None and super().notify(call, body, version)

    def request(self, call: SessionCall | None, body: bytes, version: str) -> bool:  # noqa: ARG002
        """The answer would come by a request of its own, which finds no session."""
        return False

    def interrupt(self, call: SessionCall, retry: int | None, version: str) -> bool:  # noqa: ARG002
        """The reader could not come back."""
        return False

    def _stream(self, call: SessionCall, version: str) -> SessionStream | None:  # noqa: ARG002
        """Without a mark: no reader comes back to one."""
        return super()._stream(call, V2025_06_18)


class SingleFeed:
    """The stream of a request without a session: its events have no ids, and leaving it ends the request."""

    __slots__ = ("_end", "_feed")

    def __init__(self, feed: Feed, end: Callable[[], object]) -> None:
        """`end` is called each time that it is left, or has ended."""
        self._feed = feed
        self._end = end

    @property
    def name(self) -> str:
        """There is no event to name it."""
        return ""

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:
        """As of the stream."""
        events = await self._feed.next(timeout)
        return None if events is None else [event._replace(id="") for event in events]

    def leave(self) -> None:
        """The request is over, answered or not."""
        self._feed.leave()
        self._end()


# --- The one feed of a session that has a channel (stdio, memory): everything goes here, in order, and nothing is lost unsaid.
# It is bounded by what waits for the reader. When that is too much, notifications are refused, and the reader finds a mark where they would
# have been; answers and requests always go in, since their number is bounded elsewhere, and the session takes no further
# request of the peer until there is room again.

_BATCH: Final = 64


class ChannelFeed(FeedWaiter):
    """A lossless bounded feed, for one reader."""

    __slots__ = ("_events", "_gap", "_max_bytes", "_max_events", "_room", "_size", "over")

    def __init__(self, settings: Settings) -> None:
        """Nothing waits."""
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
        self._append(FeedEvent("", body, answers=answers))
        return True

    def offer(self, body: bytes) -> bool:
        """Say what may be left out when there is no room."""
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

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:
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
