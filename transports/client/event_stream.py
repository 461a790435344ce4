"""`EventStream`: the events of a response to messages. No I/O.

The event type is ignored: every event with data is one message. An event without data only sets the id to resume from.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final

from greenroom.protocol.jsonrpc import JsonRpcRequest, OversizedMessage
from greenroom.protocol.sse import SseParser

from .errors import ResponseTooLarge
from .interfaces import READ_TURN, InvalidMessage, parse_inbound

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.protocol.jsonrpc import JsonRpcMessage, MessageLimits
    from greenroom.protocol.sse import SseEvent

    from .interfaces import Headers

_EVENTLESS: Final = 2
"""After so many times the size limit without an event the stream is given up."""
_LONGEST_MARK: Final = 1024
_REQUESTS: Final = 8
"""How many requests of the server are taken in one turn: each is answered with a POST, which may need a new connection."""


class EventStream:
    """The parser of one event stream."""

    __slots__ = ("_backlog", "_limits", "_parser", "_requests_in_turn", "_since", "oversized")

    def __init__(self, limits: MessageLimits, mark: str = "") -> None:
        """`mark` is the event id at which the stream resumes."""
        self._limits = limits
        self._parser = SseParser(limits.size)
        self._since = 0
        self._requests_in_turn = 0  # requests of the server in this turn
        self._backlog: deque[SseEvent | OversizedMessage] = deque()
        if mark:
            self._parser.feed(b"id: %b\n\n" % mark.encode())
        self.oversized: ResponseTooLarge | None = None
        """Set if an oversized event was dropped whose request id is unknown."""

    @property
    def mark(self) -> str:
        """The event id to resume from; empty if the server sent none."""
        mark = self._parser.last_event_id
        return mark if mark.isprintable() and len(mark) <= _LONGEST_MARK else ""

    def resume_header(self) -> Headers:
        """The header with that id: UTF-8 bytes, as HTTP headers carry them."""
        return (("last-event-id", self.mark.encode().decode("latin-1")),) if self.mark else ()

    @property
    def retry(self) -> float | None:
        """The server's reconnection delay in seconds, if it sent one."""
        retry = self._parser.retry
        return None if retry is None else retry / 1000

    @property
    def has_backlog(self) -> bool:
        """Whether events wait for the next turn; nothing may be fed before they are read."""
        return bool(self._backlog)

    def events(self, data: bytes) -> Iterator[SseEvent | OversizedMessage]:
        """The complete events, for at most one turn; feeding nothing continues with those left.

        Raises `ResponseTooLarge` for an event without end.
        """
        # 4 KiB may hold 512 invalid events, and rejecting each takes 0.1 ms
        self._backlog.extend(self._parse(data))
        self._requests_in_turn = 0
        until = perf_counter() + READ_TURN
        while self._backlog:
            yield self._backlog.popleft()
            if self._requests_in_turn >= _REQUESTS or perf_counter() > until:
                return

    def message(self, event: SseEvent | OversizedMessage) -> JsonRpcMessage | InvalidMessage:
        """Parse an event of this turn."""
        data = event if isinstance(event, OversizedMessage) else event.data
        message = parse_inbound(data, self._limits)
        if (
            isinstance(data, OversizedMessage)
            and isinstance(message, InvalidMessage)
            and message.error.response_to is None
        ):
            self.oversized = ResponseTooLarge(data.length, self._limits.size, "an event")
        self._requests_in_turn += type(message) is JsonRpcRequest
        return message

    def _parse(self, data: bytes) -> list[SseEvent | OversizedMessage]:
        found = self._parser.feed(data)
        self._since = 0 if found else self._since + len(data)
        if self._since > _EVENTLESS * self._limits.size and self._parser.held == 0:
            raise ResponseTooLarge(self._since, self._limits.size, "an event")
        return found

    def feed(self, data: bytes) -> list[JsonRpcMessage | InvalidMessage]:
        """The messages in those events. Raises as `events` does."""
        return [self.message(event) for event in self.events(data) if isinstance(event, OversizedMessage) or event.data]
