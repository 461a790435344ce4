"""Requests of a wire that carry no message of its connection.

They are the stream for what belongs to no request, the last word of a session, the question whether the server still has it, and the one stream of
the old transport.
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
from .interfaces import StreamGap
from .outgoing_requests import EVENTS, EventStream, OutgoingRequest, RequestPost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .http_address import ServerUrl
    from .http_connection_pool import ResponseHead
    from .http_wire import HttpWire
    from .interfaces import InboundItem

# --- The stream for what belongs to no request: opened after the handshake, and again whenever it ends; and the last word of a session.
# A server that has none says so (405, mostly), and that is that. Between two such streams nothing is lost if the server marks its events and
# keeps them; if it does not, the connection is told of a gap.

_LONGEST_BACKOFF: Final = 30.0
_LONG_LIVED: Final = 5.0
"""Seconds that a stream has to live for its end to be no failure, if nothing came on it."""
_DOUBLINGS: Final = 5


class StandaloneStream(OutgoingRequest):
    """One wire's, for as long as the wire lives."""

    method = "GET"
    _begun = False  # whether there ever was one
    _retry: float | None = None
    _failures = 0
    _since = 0.0
    _had_events = False

    def on_accepted(self, head: ResponseHead) -> None:
        """The stream begins; any other answer ends the visit."""
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
        """More of it."""
        self._read_stream(data)

    def _deliver(self, items: Sequence[InboundItem]) -> None:
        self._had_events = True
        self.wire.deliver(items)

    def on_complete(self) -> None:
        """The server has ended it, as servers do; some at once, each time."""
        lasting = self._had_events or self.wire.now() - self._since > _LONG_LIVED
        self._doubt_session(new=lasting)
        self._failures = 0 if lasting else self._failures + 1
        self._reopen_later()

    def on_rejected(self, error: HttpError, body: bytes, head: ResponseHead) -> None:  # noqa: ARG002 - the status says enough
        """There is none, or not just now."""
        if error.status == NOT_FOUND and self._begun and self.wire.session:
            self._close()
            self.wire.session_gone(None, error, unseen=False)
        elif error.status in RETRY_LATER and (self._begun or self._failures < self.wire.settings.resumes):
            self._failures += 1
            self._reopen_later()
        else:
            self._close()

    def on_lost(self, error: TransportError, *, unseen: bool) -> None:  # noqa: ARG002 - it is opened again, whatever it was
        """It broke."""
        self._doubt_session(new=False)
        self._failures += 1
        self._reopen_later()

    def _doubt_session(self, *, new: bool) -> None:
        """The server may be gone, and its session with it; not so where its streams always end at once."""
        if self._begun and self.wire.session and (new or not self._failures):
            self.wire.session_in_doubt = True

    def _reopen_later(self) -> None:
        """Open it again after a while: what the server done_event, and longer each time that there was none."""
        self._hang_up()
        if self._stream is not None and self._stream.retry is not None:
            self._retry = self._stream.retry
        self._tried = frozenset()
        seconds = self.wire.retry_delay(self._retry)
        if self._failures > 1:
            seconds = max(seconds, min(seconds * 2 ** min(self._failures - 1, _DOUBLINGS), _LONGEST_BACKOFF))
        self.alarm(seconds, self._again)

    def on_alarm(self) -> None:
        """It may have been silent for too long."""
        if self.is_silent(self._last_data_at):
            self._reopen_later()


class SessionDelete(OutgoingRequest):
    """The session is given back. Whatever the server says to that, it is over."""

    method = "DELETE"

    def __init__(self, wire: HttpWire) -> None:
        """Not done_event yet."""
        super().__init__(wire)
        self.done_event = asyncio.Event()

    def on_complete(self) -> None:
        """It knows."""
        self._close()
        self.done_event.set()

    def on_rejected(self, error: HttpError, body: bytes, head: ResponseHead) -> None:  # noqa: ARG002 - that is its own affair
        """The server refused it: end."""
        self.on_complete()

    def on_lost(self, error: TransportError, *, unseen: bool) -> None:  # noqa: ARG002 - as above
        """It is away."""
        self.on_complete()


_PING_TIMEOUT: Final = 5.0
"""Seconds that a server may take to say that it still has the session, before calls are sent all the same."""


class SessionPing(RequestPost):
    """Whether the server still has our session: a ping of the wire's own, before calls that must not be done twice.

    The stream of the session has ended. Where the server was started again meanwhile, a call would be answered with 404, and could not be told
    from one that another server has done; a ping can be.
    """

    def __init__(self, wire: HttpWire, number: int) -> None:
        """The connection's own ids are numbers, so this one is a text."""
        id = f"still-there-{number}"
        super().__init__(wire, encode_request(id, "ping"), id, ordered=True)

    def go(self) -> None:
        """Ask; what is not answered in time is no reason to wait any longer."""
        if self._alarm is None:
            self.alarm(_PING_TIMEOUT)
        super().go()

    def on_alarm(self) -> None:
        """It took too long, or its stream does not end."""
        self.on_complete()


# --- HTTP as it was before (2024-11-05): one stream carries everything from the server, and says in its first event where to post to.
# The session is the stream: when that ends, it is over. The place to post to is taken from within the same origin only, or a server could have us
# tell another server what we say.

_ENDPOINT: Final = "endpoint"
_ENDPOINT_TIMEOUT: Final = 10.0
"""Seconds that the first event may take."""


class LegacySseStream(OutgoingRequest):
    """The stream of one wire."""

    method = "GET"

    def __init__(self, wire: HttpWire, instead: HttpError | None) -> None:
        """`instead` is how the newer transport was refused, which is what to tell if this is not the old one either."""
        super().__init__(wire)
        self._first_error = instead
        self.ready = False
        """Whether it is known where to post to."""

    def go(self) -> None:
        """Open it."""
        self.alarm(_ENDPOINT_TIMEOUT)
        super().go()

    def on_accepted(self, head: ResponseHead) -> None:
        """It has to be a stream."""
        self.wire.instance = instance_of(head)
        if head.kind != EVENTS:
            self._fail(NotMcp(f"{self.address.description} has no stream of events"))
            return
        self._stream = EventStream(self.wire.event_limits)

    def on_data(self, data: bytes) -> None:
        """More of it."""
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
        place: ServerUrl | None = self.address.beside(where.decode(errors="replace").strip())
        if place is None:
            self._fail(
                NotMcp(f"{self.address.origin} wants messages to be posted to another server, which is not done")
            )
            return
        self.ready = True
        self.alarm(self.wire.settings.silence)
        self.wire.on_legacy_ready(place)

    def on_complete(self) -> None:
        """The server has ended it."""
        self._end(ConnectionLost(f"{self.address.origin} ended the stream"))

    def on_rejected(self, error: HttpError, body: bytes, head: ResponseHead) -> None:  # noqa: ARG002 - the error shows it
        """There is none."""
        self._end(error)

    def on_lost(self, error: TransportError, *, unseen: bool) -> None:  # noqa: ARG002 - nothing of ours was in it
        """It broke."""
        self._end(error)

    def _end(self, error: TransportError) -> None:
        self._close()
        self.wire.on_legacy_end(error if self.ready or self._first_error is None else self._first_error)

    def on_alarm(self) -> None:
        """The first event is overdue, or nothing came for too long."""
        if not self.ready:
            self._fail(NotMcp(f"{self.address.origin} did not say where to post to within {_ENDPOINT_TIMEOUT:g} s"))
        elif self.is_silent(self._last_data_at):
            seconds = self.wire.settings.silence
            self._fail(SilentTooLong(f"{self.address.origin} has done_event nothing for {seconds:g} s"))
