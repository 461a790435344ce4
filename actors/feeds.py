"""Reading a stream: what a transport gets of it, in order, however fast it comes.

A feed belongs to one reader. It ends when its stream does and everything has been read, when somebody else reads that stream instead, or
when the session asks the reader to come back later. It runs in the reader's own task; nobody waits for it.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final

from greenroom.supervision.kernel.current import current_node
from greenroom.supervision.kernel.gate import Gate
from greenroom.transports.seam import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.supervision import Node

    from .streams import Stream

TRUNCATED: Final = b'{"jsonrpc":"2.0","method":"notifications/replay_truncated","params":{}}'
"""Said where something was lost, since nobody came for it in time."""
_BATCH: Final = 64


class Waiting:
    """One task that waits for something new, up to a time."""

    __slots__ = ("_gate", "_late", "_node")

    def __init__(self) -> None:
        """Nobody waits yet."""
        self._gate: Gate | None = None
        self._node: Node | None = None
        self._late = False

    def wake(self) -> None:
        """There is something new."""
        gate, node = self._gate, self._node
        if gate is not None and node is not None:
            self._gate = None
            node.open_soon(gate)

    async def wait(self, timeout: float | None) -> bool:
        """Wait for `wake`; False when the time was up first."""
        node = self._node = current_node()
        gate = self._gate = Gate(node.loop)
        self._late = False
        timer = None if timeout is None else node.loop.call_later(timeout, self._time_is_up, gate)
        try:
            await gate
        finally:
            if timer is not None:
                timer.cancel()
            if self._gate is gate:
                self._gate = None
        return not self._late

    def _time_is_up(self, gate: Gate) -> None:
        if self._gate is gate:  # else it was woken just now, and goes on in a moment
            self._gate = None
            self._late = True
            gate.open()


class StreamFeed(Waiting):
    """One reader of a stream."""

    __slots__ = ("__weakref__", "_ahead", "_last_words", "_next", "_stream", "_until")

    def __init__(self, stream: Stream, after: int, *, ahead: Sequence[Event] = (), gap: bool = False) -> None:
        """Read on after that number; `ahead` comes first, or the word that something is missing (`gap`).

        Whoever read the stream until now has lost their place.
        """
        super().__init__()
        before = stream.reader
        if before is not None:
            before.close()
        stream.read_by(weakref.ref(self))
        self._stream = stream
        self._next = after + 1
        self._ahead: list[Event] = [Event(f"{stream.name}:{after}", TRUNCATED)] if gap else list(ahead)
        self._until: int | None = None
        self._last_words: Event | None = None

    @property
    def name(self) -> str:
        """What the stream is called in its events' ids."""
        return self._stream.name

    async def next(self, timeout: float | None = None) -> Sequence[Event] | None:
        """What has come since the last time; empty when the time was up first; None when the feed has ended."""
        while True:
            events = self._take()
            if events:
                return events
            if self._ended():
                self.leave()
                return None
            if not await self.wait(timeout):
                return self._take()

    def _take(self) -> list[Event]:
        stream = self._stream
        events, self._ahead = self._ahead, []
        until = stream.last if self._until is None else self._until
        if self._next <= until:
            if self._next < stream.first:
                events.append(Event("", TRUNCATED))
                self._next = stream.first
            for event in stream.since(self._next):
                if self._next > until or len(events) >= _BATCH:
                    break
                events.append(event)
                self._next += 1
            stream.delivered = max(stream.delivered, self._next - 1)
        if self._last_words is not None and self._next > until:
            events.append(self._last_words)
            self._last_words = None
        return events

    def _ended(self) -> bool:
        return self._until is not None or (self._stream.over and self._next > self._stream.last)

    def close(self, retry: int | None = None) -> None:
        """Whoever reads this gets what has been said until now, perhaps the wish to come back later, and then the end."""
        stream = self._stream
        if self._until is None:
            if retry is None:
                self._until = self._next - 1
                self._ahead.clear()
            else:
                self._until = stream.last
                self._last_words = Event(f"{stream.name}:{stream.last}", b"", retry)
        if stream.reader is self:
            stream.read_by(None)
        self.wake()

    def leave(self) -> None:
        """The reader is gone; what is on the stream stays for the next one."""
        if self._stream.reader is self:
            self._stream.read_by(None)
        if self._until is None:
            self._until = self._next - 1


def marker(name: str, number: int) -> Event:
    """The event that only says where a reader stands, so that it can come back there before anything was said."""
    return Event(f"{name}:{number}", b"")


__all__ = ["TRUNCATED", "StreamFeed", "Waiting", "marker"]
