"""Requests of an HTTP wire that carry no message of its connection.

The standalone stream, the DELETE of a session, the ping that checks a session, and the event stream of the legacy transport.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from greenroom.protocol.jsonrpc import OversizedMessage, encode_request

from .errors import (
    NOT_FOUND,
    RETRY_LATER,
    ConnectionLost,
    HttpError,
    NotMcp,
    SilentTooLong,
    TransportError,
    instance_of,
)
from .event_stream import EventStream
from .interfaces import StreamGap
from .outgoing_requests import EVENTS, OutgoingRequest, RequestPost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .http_address import ServerUrl
    from .http_connection_pool import ResponseHead
    from .http_wire import HttpWire
    from .interfaces import InboundItem

# --- The standalone stream, for messages that belong to no request: opened after the handshake, and again whenever it ends.
# A server without one answers 405, mostly, and then it is not tried again. Between two streams nothing is lost if the server marks its
# events and keeps them; otherwise the connection gets a `StreamGap`.

_LONGEST_BACKOFF: Final = 30.0
_LONG_LIVED: Final = 5.0
"""A stream that lived so many seconds has not failed when it ends, even if nothing came on it."""
_DOUBLINGS: Final = 5


class StandaloneStream(OutgoingRequest):
    """The standalone stream of one wire, for as long as the wire lives."""

    method = "GET"
    lasts = True
    _begun = False  # whether a stream was ever open
    _retry: float | None = None
    _failures = 0
    _since = 0.0
    _had_events = False

    def on_accepted(self, head: ResponseHead) -> None:
        """The stream begins; any other response ends the attempts."""
        if head.kind != EVENTS:
            self._close()
            return
        self.wire.session_in_doubt = False
        mark = self._begin_stream()
        self._since = self.wire.now()
        self._had_events = False
        again, self._begun = self._begun, True
        if again and not mark:
            self.wire.deliver((StreamGap("the stream was cut, and the server does not mark where"),))

    def on_data(self, data: bytes) -> None:
        self._read_stream(data)

    def _deliver(self, items: Sequence[InboundItem]) -> None:
        self._had_events = True
        self.wire.deliver(items)

    def on_complete(self) -> None:
        """The server has ended the stream, as servers do; some end each one at once."""
        lasting = self._had_events or self.wire.now() - self._since > _LONG_LIVED
        self._doubt_session(new=lasting)
        self._failures = 0 if lasting else self._failures + 1
        self._reopen_later()

    def on_rejected(self, error: HttpError, body: bytes, head: ResponseHead) -> None:  # noqa: ARG002 - the status says enough
        """The server has no stream, or not now."""
        if error.status == NOT_FOUND and self._begun and self.wire.session:
            self._close()
            self.wire.session_gone(None, error, unseen=False)
        elif error.status in RETRY_LATER and (self._begun or self._failures < self.wire.settings.resumes):
            self._failures += 1
            self._reopen_later()
        else:
            self._close()

    def on_lost(self, error: TransportError, *, unseen: bool) -> None:  # noqa: ARG002 - it is opened again, whatever it was
        """The stream broke."""
        self._doubt_session(new=False)
        self._failures += 1
        self._reopen_later()

    def _doubt_session(self, *, new: bool) -> None:
        """The server may be gone, and its session with it; not if its streams always end at once."""
        if self._begun and self.wire.session and (new or not self._failures):
            self.wire.session_in_doubt = True

    def _reopen_later(self) -> None:
        """Reopen the stream after a delay: the server's, and longer after each failure."""
        self._drop_in_flight()
        if self._stream is not None and self._stream.retry is not None:
            self._retry = self._stream.retry
        self._tried = frozenset()
        seconds = self.wire.retry_delay(self._retry)
        if self._failures > 1:
            seconds = max(seconds, min(seconds * 2 ** min(self._failures - 1, _DOUBLINGS), _LONGEST_BACKOFF))
        self.set_timer(seconds, self._again)

    def on_alarm(self) -> None:
        """The stream may have been silent for too long."""
        if self.is_silent(self._last_data_at):
            self._reopen_later()


class SessionDelete(OutgoingRequest):
    """The DELETE of the session. The session is over with any response."""

    method = "DELETE"

    def __init__(self, wire: HttpWire) -> None:
        super().__init__(wire)
        self.finished = asyncio.Event()

    def on_complete(self) -> None:
        self._close()
        self.finished.set()

    def on_rejected(self, error: HttpError, body: bytes, head: ResponseHead) -> None:  # noqa: ARG002 - the session is over in any case
        self.on_complete()

    def on_lost(self, error: TransportError, *, unseen: bool) -> None:  # noqa: ARG002 - as above
        self.on_complete()


_PING_TIMEOUT: Final = 5.0
"""Seconds after which calls are sent even if the ping is not answered."""


class SessionPing(RequestPost):
    """A ping that asks whether the server still has our session, sent before calls that must not be executed twice.

    The standalone stream has ended. If the server was restarted meanwhile, a call would get 404, which cannot be told from the 404 of a
    second server after the first has executed the call; a ping is safe to lose.
    """

    def __init__(self, wire: HttpWire, number: int) -> None:
        """Its id is a text, since the connection's own ids are numbers."""
        id = f"still-there-{number}"
        super().__init__(wire, encode_request(id, "ping"), id, ordered=True)

    def start(self) -> None:
        """Send the ping, with a timeout."""
        if self._timer is None:
            self.set_timer(_PING_TIMEOUT)
        super().start()

    def on_alarm(self) -> None:
        """The ping timed out, or its stream does not end."""
        self.on_complete()


# --- HTTP+SSE of revision 2024-11-05: one stream carries everything from the server, and names in its first event the URL for posts.
# The session is the stream and ends with it. The URL for posts must be of the same origin; otherwise a server could make us send messages
# to another one.

_ENDPOINT: Final = "endpoint"
_ENDPOINT_TIMEOUT: Final = 10.0
"""Seconds within which the first event must come."""


class LegacySseStream(OutgoingRequest):
    """The event stream of one wire in the legacy transport."""

    method = "GET"
    lasts = True

    def __init__(self, wire: HttpWire, instead: HttpError | None) -> None:
        """`instead` is the refusal of the newer transport: the error to report if this one fails, too."""
        super().__init__(wire)
        self._first_error = instead
        self.ready = False
        """Whether the URL for posts is known."""

    def start(self) -> None:
        """Open the stream."""
        self.set_timer(_ENDPOINT_TIMEOUT)
        super().start()

    def on_accepted(self, head: ResponseHead) -> None:
        """The response must be an event stream."""
        self.wire.instance = instance_of(head)
        if head.kind != EVENTS:
            self._fail(NotMcp(f"{self.address.description} sends no event stream"))
            return
        self._stream = EventStream(self.wire.event_limits)

    def on_data(self, data: bytes) -> None:
        self._read_stream(data)

    def _parse_events(self, stream: EventStream, data: bytes) -> Sequence[InboundItem]:
        items: list[InboundItem] = []
        for event in stream.events(data):
            if isinstance(event, OversizedMessage):
                items.append(stream.message(event))
            elif event.event == _ENDPOINT:
                if not self.ready:
                    self._on_endpoint(event.data)
                    if self.done:
                        return ()
            elif event.data and self.ready:
                items.append(stream.message(event))
        return items

    def _on_endpoint(self, where: bytes) -> None:
        place: ServerUrl | None = self.address.resolve_reference(where.decode(errors="replace").strip())
        if place is None:
            self._fail(NotMcp(f"{self.address.origin} wants messages posted to another origin, which is not allowed"))
            return
        self.ready = True
        self.set_timer(self.wire.settings.silence)
        self.wire.on_legacy_ready(place)

    def on_complete(self) -> None:
        """The server has ended the stream."""
        self._end(ConnectionLost(f"{self.address.origin} ended the stream"))

    def on_rejected(self, error: HttpError, body: bytes, head: ResponseHead) -> None:  # noqa: ARG002 - the error shows it
        """The server has no such stream."""
        self._end(error)

    def on_lost(self, error: TransportError, *, unseen: bool) -> None:  # noqa: ARG002 - nothing of ours was in it
        """The stream broke."""
        self._end(error)

    def _end(self, error: TransportError) -> None:
        self._close()
        self.wire.on_legacy_end(error if self.ready or self._first_error is None else self._first_error)

    def on_alarm(self) -> None:
        """The first event is overdue, or the stream was silent for too long."""
        if not self.ready:
            self._fail(NotMcp(f"{self.address.origin} did not name the URL for posts within {_ENDPOINT_TIMEOUT:g} s"))
        elif self.is_silent(self._last_data_at):
            seconds = self.wire.settings.silence
            self._fail(SilentTooLong(f"{self.address.origin} has said nothing for {seconds:g} s"))
