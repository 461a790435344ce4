"""Outgoing HTTP requests of a wire: messages, each in a POST of its own, and the replies to them.

A request is authenticated, retried once after a 401 and once after a 403 if there are other credentials, and follows redirects. A message is acknowledged, or
answered by one JSON text or by an event stream that contains the reply and what precedes it. A stream that breaks before the reply is resumed by a GET with the
last event id, if the server sent ids. A POST is sent a second time only if it was refused and surely not executed (`is_not_done`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.protocol.errors import RemoteProtocolError
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcResponse, parse

from .errors import (
    NOT_FOUND,
    RETRY_LATER,
    TOO_LARGE,
    TOO_MANY,
    ConnectionLost,
    HttpError,
    NotMcp,
    RequestTooLarge,
    ResponseTooLarge,
    SilentTooLong,
    TransportError,
    Unauthorized,
    is_challenge,
    kinds_tried,
    retry_after,
    sample,
)
from .event_stream import EventStream
from .interfaces import InvalidMessage, headers_for_request, invalid_message, parse_inbound

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from greenroom.protocol.jsonrpc import JsonRpcMessage, RequestId

    from .http_address import ServerUrl
    from .http_connection_pool import ResponseHead
    from .http_wire import HttpWire
    from .interfaces import Headers, InboundItem, InFlightRequest

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_REFUSAL_SIZE: Final = 8 * 1024
"""How much of a refusal's body is read."""
_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.5
_SHOWN: Final = 400
_REDIRECTS: Final = frozenset({307, 308})
_FIRST_REFUSAL: Final = 300
_UNCOMPRESSED: Final = (b"", b"identity")


class OutgoingRequest:
    """One HTTP request, retried where that is right.

    The carrier reads `method`, `address`, `headers` and, for a POST, `frame`, and reports the response: one `on_head`, any number of
    `on_body`, and one `on_end`; or, at any point, `on_failure` and nothing after it. A subclass handles an accepted response in
    `on_accepted`, `on_data` and `on_complete`, a refusal in `on_rejected`, and a missing response in `on_lost`. Each is called at most once
    per attempt, and never after `drop`.
    """

    # Each call makes one of these, so defaults are class attributes: writing them into every instance costs time and memory.
    method: str = "POST"
    urgent: bool = True
    """Whether it is sent although the limit of requests in flight is reached: the server may need it before it can answer those."""
    lasts = False
    """Whether its response goes on until one side ends it: it takes none of the places for requests."""
    headers: Headers = ()
    mirrored: Headers = ()
    """The headers that repeat parts of a request that stands alone: it has no session, and no resumption."""
    in_flight: InFlightRequest | None = None
    """The request at its carrier, while it is in flight."""
    done = False
    """Whether it is finished: no callback follows."""
    _head: ResponseHead | None = None
    _refusal: bytearray | None = None
    _sent: Mapping[str, str] = {}
    _tried: frozenset[int] = frozenset()
    _redirects_followed = 0
    _task: asyncio.Task[None] | None = None
    _timer: asyncio.TimerHandle | None = None
    _stream: EventStream | None = None
    _last_data_at = 0.0
    _is_answered = False

    def __init__(
        self, wire: HttpWire, frame: bytes = b"", id: RequestId | None = None, *, ordered: bool = False
    ) -> None:
        """`frame` is the message, `id` the request's id, for a request. `ordered`: nothing else is sent before this is acknowledged."""
        self.wire = wire
        self.frame = frame
        self.id = id
        self.ordered = ordered

    # --- for subclasses

    def on_accepted(self, head: ResponseHead) -> None:
        """A response that is no refusal begins."""

    def on_data(self, data: bytes) -> None:
        """More of the response."""

    def on_complete(self) -> None:
        """The response is complete."""

    def on_rejected(self, error: HttpError, body: bytes, head: ResponseHead) -> None:
        """The server has refused the request."""

    def on_lost(self, error: TransportError, *, unseen: bool) -> None:
        """There was no response, or no end of it."""

    def on_alarm(self) -> None:
        """The timer has fired."""

    @property
    def address(self) -> ServerUrl:
        """The URL it is sent to."""
        return self.wire.address

    def redirect_to(self, elsewhere: ServerUrl) -> None:
        """Follow a permanent redirect for later requests, too."""
        self.wire.address = elsewhere

    def extra_headers(self) -> Headers:
        """Additional headers: where a stream is resumed."""
        return () if self._stream is None else self._stream.resume_header()

    @property
    def may_have_been_sent(self) -> bool:
        """Whether any byte may have been sent, so that a response may come."""
        return self.in_flight is not None and self.in_flight.may_have_been_sent

    # --- sending

    def start(self) -> None:
        """Send it, or send it again."""
        self._head = self._refusal = None
        fixed = self.wire.known_headers
        if fixed is not None:
            self._send(fixed)
        else:
            self._task = self.wire.task(self._get_credentials())

    async def _get_credentials(self) -> None:
        try:
            headers = await headers_for_request(self.wire.credentials, self.method, self.address.url)
        except TransportError as error:
            self._fail(error, unseen=True)
        except Exception as error:  # noqa: BLE001 - the credentials may be user code
            self._fail(Unauthorized(0, f"the credentials failed: {type(error).__name__}"), unseen=True)
        else:
            if not self.done:
                self._send(headers)

    def _send(self, credentials: Mapping[str, str]) -> None:
        self._sent = credentials
        try:
            self.headers = self.wire.headers(self, credentials)
        except ValueError as error:
            self._fail(Unauthorized(0, f"the credentials cannot be sent: {error}"), unseen=True)
            return
        self.wire.carrier.start(self)

    def drop(self) -> None:
        """Give up the request: its reply is not wanted any more."""
        if not self.done:
            self._close()

    def _close(self) -> None:
        self.done = True
        if self.in_flight is not None:
            self._drop_in_flight()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self.set_timer(None)

    def _drop_in_flight(self) -> None:
        in_flight, self.in_flight = self.in_flight, None
        if in_flight is not None:
            in_flight.drop()

    # --- called by the carrier

    def on_head(self, head: ResponseHead) -> None:
        """The response begins."""
        self._head = head
        if self.wire.on_nonce is not None and (nonce := head.get(b"dpop-nonce")):
            self.wire.on_nonce(self.address.url, nonce)
        if head.status >= _FIRST_REFUSAL:
            self._refusal = bytearray()
        elif head.headers.get(b"content-encoding", b"").lower() not in _UNCOMPRESSED:
            self._fail(NotMcp(f"{self.address.origin} sends a compressed response that was not asked for"))
        else:
            self.on_accepted(head)

    def on_body(self, data: bytes) -> None:
        """More of the response or of the refusal."""
        if self._refusal is None:
            self.on_data(data)
        else:
            self._refusal += data
            if len(self._refusal) > _REFUSAL_SIZE:
                self._drop_in_flight()
                self._on_refusal()

    def on_end(self) -> None:
        """The response is complete."""
        self.in_flight = None
        if self._refusal is None:
            self.on_complete()
        else:
            self._on_refusal()

    def on_failure(self, error: TransportError, *, unseen: bool) -> None:
        """The response will not be complete."""
        self.in_flight = None
        if self._refusal is not None:
            self._on_refusal()
        else:
            self._fail(error, unseen=unseen)

    def _fail(self, error: TransportError, *, unseen: bool = False) -> None:
        self._drop_in_flight()
        if not self.done:
            self.on_lost(error, unseen=unseen)

    def _on_refusal(self) -> None:
        """The response is a refusal: retry, or report it."""
        head, body = self._head, bytes(self._refusal or b"")
        assert head is not None
        if is_challenge(head):
            denied = Unauthorized(head.status, sample(body, _SHOWN), self.address.origin, head.get(b"www-authenticate"))
            if (tried := kinds_tried(self._tried, head)) is not None:
                self._tried = tried
                self._task = self.wire.task(self._on_challenge(denied, body, head))
                return
            error: HttpError = denied
        elif head.status in _REDIRECTS and self._redirects_followed < self.wire.settings.redirects:
            self._redirects_followed += 1
            elsewhere = self.address.resolve_reference(head.get(b"location"))
            what = "it redirects to another server, which is not followed"
            if elsewhere is not None:
                self.redirect_to(elsewhere)
                if self._was_not_done(head):
                    self.start()
                    return
                what = "it redirects a request that another server may have been given before"
            error = HttpError(head.status, what, self.address.origin)
        elif head.status == TOO_LARGE:
            error = RequestTooLarge(len(self.frame), sample(body, _SHOWN), self.address.origin, retry_after(head))
        else:
            error = HttpError(head.status, sample(body, _SHOWN), self.address.origin, retry_after(head))
        self.on_rejected(error, body, head)

    def _was_not_done(self, head: ResponseHead) -> bool:
        """Whether it can be sent again without being executed twice."""
        return self.method != "POST" or self.wire.was_not_done(head)

    async def _on_challenge(self, error: Unauthorized, body: bytes, head: ResponseHead) -> None:
        unseen = self._was_not_done(head)
        try:
            again = await self.wire.credentials.refused(head.status, error.challenge, self._sent)
        except TransportError as failed:
            self._fail(failed, unseen=unseen)
            return
        except Exception:  # noqa: BLE001 - the credentials may be user code
            again = False
        if self.done:
            return
        if again:
            self.wire.known_headers = None
            error.renewed = True
        if again and unseen:
            self.start()
        else:
            self.on_rejected(error, body, head)

    # --- pauses and timers

    def pause_while_behind(self, seconds: float = _FIRST_PAUSE, *, has_backlog: bool = False) -> None:
        """Pause reading while the connection is behind, checking at growing intervals; a backlog of events is delivered before reading on."""
        if self.in_flight is not None and not self.done:
            if self.wire.is_behind():
                self.in_flight.pause()
                self.wire.later(
                    seconds, lambda: self.pause_while_behind(min(2 * seconds, _LONGEST_PAUSE), has_backlog=has_backlog)
                )
            elif has_backlog:
                self.in_flight.pause()  # this also holds back the end of the response
                self.wire.later(0, self._catch_up)
            else:
                self.in_flight.resume()

    def _catch_up(self) -> None:
        if self.in_flight is not None and not self.done:
            self.on_data(b"")

    def set_timer(self, seconds: float | None, then: Callable[[], None] | None = None) -> None:
        """Set the timer to call `on_alarm`, or `then`, after so many seconds, in place of an earlier one."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.wire.later(seconds, then or self._on_timer)

    def is_silent(self, last_data_at: float) -> bool:
        """Whether nothing has arrived for longer than the settings allow. If not, the timer is set to check again."""
        silence = self.wire.settings.silence
        assert silence is not None, "is_silent needs a silence timeout"
        left = last_data_at + silence - self.wire.now()
        if left > 0 or self.wire.is_behind():
            self.set_timer(max(left, 1.0))
            return False
        return True

    def _begin_stream(self) -> str:
        """Start to read an event stream; returns the event id at which it resumes, if any."""
        mark = "" if self._stream is None else self._stream.mark
        self._stream = EventStream(self.wire.event_limits, mark)
        if self.wire.settings.silence is not None:
            self._last_data_at = self.wire.now()
            self.set_timer(self.wire.settings.silence)
        return mark

    def _read_stream(self, data: bytes) -> None:
        """Process more of the stream, for at most one turn."""
        stream = self._stream
        assert stream is not None
        self._last_data_at = self.wire.now() if self._timer is not None else 0.0
        try:
            items = self._parse_events(stream, data)
        except ResponseTooLarge as error:
            self._fail(error)
            return
        if items:
            self._deliver(items)
        if stream.has_backlog or not self._is_answered:
            self.pause_while_behind(has_backlog=stream.has_backlog)

    def _parse_events(self, stream: EventStream, data: bytes) -> Sequence[InboundItem]:
        return stream.feed(data)

    def _deliver(self, items: Sequence[InboundItem]) -> None:
        self.wire.deliver(items)

    def _again(self) -> None:
        self._timer = None
        self.start()

    def _on_timer(self) -> None:
        self._timer = None
        if not self.done:
            self.on_alarm()


# --- Messages

_IGNORED_BODY: Final = 64 * 1024
"""How much of an unneeded response is read, so that its connection can be used again."""
_LINGER: Final = 1.0
"""Seconds that a stream may stay open after it has brought its reply."""
_ACCEPTED: Final = 202
_UNREAD: Final = frozenset({400, NOT_FOUND})
"""Statuses of errors that name no request, since the server did not read its id."""


class MessagePost(OutgoingRequest):
    """A POST of a message that the server only acknowledges. A reply, if it is a request, comes another way."""

    _ignored_bytes = 0

    @property
    def address(self) -> ServerUrl:
        """The URL for posts, which the legacy transport has separately."""
        return self.wire.post_url

    def redirect_to(self, elsewhere: ServerUrl) -> None:
        self.wire.post_url = elsewhere

    @property
    def may_have_been_received(self) -> bool:
        """Whether the server may have received it: it was sent, or a response has begun."""
        return self.may_have_been_sent or self._head is not None

    def start(self) -> None:
        """Send it; the server has the send timeout to acknowledge it."""
        if self._timer is None:
            self.set_timer(self.wire.settings.send_timeout)
        super().start()

    def on_data(self, data: bytes) -> None:
        """Skip the body: it is not needed."""
        self._ignored_bytes += len(data)
        if self._ignored_bytes > _IGNORED_BODY:
            self.on_complete()

    def on_complete(self) -> None:
        """It was acknowledged."""
        self._close()
        self.wire.on_settled(self)

    def _give_up(self, error: TransportError, *, resend: bool = False) -> None:
        self._close()
        self.wire.on_unanswered(self, error, resend=resend)

    def _is_session_gone(self, error: HttpError, head: ResponseHead) -> bool:
        """Whether it was refused because the server has lost our session; then the wire deals with that."""
        if error.status != NOT_FOUND or not self.wire.session or self.mirrored:
            return False
        self._close()
        self.wire.session_gone(self, error, unseen=self.wire.was_not_done(head))
        return True

    def on_rejected(self, error: HttpError, body: bytes, head: ResponseHead) -> None:  # noqa: ARG002 - the error contains it
        if not self._is_session_gone(error, head):
            self._give_up(error, resend=self.wire.was_not_done(head))

    def on_lost(self, error: TransportError, *, unseen: bool) -> None:
        self._give_up(error, resend=unseen)

    def on_alarm(self) -> None:
        """The acknowledgement is overdue."""
        seconds = self.wire.settings.send_timeout
        self._fail(ConnectionLost(f"{self.address.origin} did not acknowledge a message within {seconds:g} s"))


class RequestPost(MessagePost):
    """A POST of a request whose reply comes in the response."""

    urgent = False
    _body: bytes | None = None
    _pieces: bytearray | None = None
    _resumes = 0
    _retry: float | None = None

    @property
    def _resuming(self) -> bool:
        """Whether its stream is being resumed."""
        return self.method == "GET"

    @property
    def may_have_been_received(self) -> bool:
        """Whether the server may have received it; also while its stream waits to be resumed."""
        return self._resuming or super().may_have_been_received

    start = OutgoingRequest.start  # no timeout here: the caller has a deadline

    # --- the reply

    def on_accepted(self, head: ResponseHead) -> None:
        """A reply begins, of one of the two formats."""
        if not self.wire.session:
            self.wire.on_session_id(self, head)
            if self.done:
                return
        kind = head.kind
        if kind == EVENTS:
            self._begin_stream()
        elif self._resuming:
            self._fail(NotMcp(f"{self.address.origin} does not resume a stream that broke"))
        elif kind not in ("", JSON) and head.status != _ACCEPTED and head.length != 0:
            self._fail(NotMcp(f"{self.address.description} answers with {kind[:80]}, which is not MCP"))
        elif head.length is not None:
            self._check_size(head.length)

    def _check_size(self, size: int) -> None:
        if size > self.wire.settings.max_response:
            self._fail(ResponseTooLarge(size, self.wire.settings.max_response))

    def on_data(self, data: bytes) -> None:
        if self._stream is not None:
            self._read_stream(data)
        elif self._body is None:
            self._body = data
            self._check_size(len(data))
        else:
            if self._pieces is None:
                self._pieces = bytearray(
                    self._body
                )  # a list of pieces would take fifty times as much memory for pieces of one byte
            self._pieces += data
            self._check_size(len(self._pieces))

    def _deliver(self, items: Sequence[InboundItem]) -> None:
        """Deliver items, and notice the reply among them."""
        self._resumes = 0
        for each in items:
            if type(each) is JsonRpcResponse or type(each) is JsonRpcError:
                answered: RequestId | None = each.id
            elif type(each) is InvalidMessage:
                answered = each.error.response_to
            else:
                continue
            self._is_answered = self._is_answered or answered == self.id
        self.wire.deliver(items, during=self.id)
        if self._is_answered and not self.done:
            self.set_timer(_LINGER)

    def on_end(self) -> None:
        """The response is complete: a JSON text, the end of a stream, or a refusal."""
        self.in_flight = None
        if self._refusal is not None:
            self._on_refusal()
            return
        if self._stream is not None:
            self._on_stream_cut(ConnectionLost(f"{self.address.origin} ended the stream before the reply"))
            return
        self._close()
        body = self._body if self._pieces is None else bytes(self._pieces)
        if not body:
            self._on_empty_response()
            return
        message: JsonRpcMessage | InvalidMessage
        try:
            message = parse(body, self.wire.response_limits)
        except RemoteProtocolError as error:
            message = invalid_message(error, body, self.id)
        if (
            type(message) is JsonRpcError and message.id is None
        ):  # the server could not read the request's id, so the error is for this request
            message = JsonRpcError(self.id, message.error)
        fits = isinstance(message, InvalidMessage) or (
            isinstance(message, JsonRpcResponse | JsonRpcError) and message.id == self.id
        )
        self.wire.deliver((message,))
        if fits:
            self.wire.on_settled(self)
        else:
            wrong = NotMcp(f"{self.address.origin} answered with a message that is not the reply")
            self.wire.on_unanswered(self, wrong, resend=False)

    def _on_empty_response(self) -> None:
        """An empty response. Some servers answer 202 and reply on the standalone stream; a cancelled request gets no reply."""
        assert self._head is not None
        status = self._head.status
        if status == _ACCEPTED and not self.mirrored:
            self.wire.on_settled(self, answered=False)
        else:
            self.wire.on_unanswered(self, HttpError(status, "the response is empty", self.address.origin), resend=False)

    # --- failures

    def on_rejected(self, error: HttpError, body: bytes, head: ResponseHead) -> None:
        """The request, or the resumption of its stream, was refused."""
        if self._resuming:
            self._not_resumed(error)
            return
        if self._is_session_gone(error, head):
            return
        if head.kind == JSON and body and error.status != TOO_MANY:  # 429 is retried, whatever its body says
            message = parse_inbound(body, self.wire.response_limits)
            if type(message) is JsonRpcError and message.id == self.id:
                self._close()
                self.wire.deliver((message,))
                self.wire.on_settled(self)
                return
            if type(message) is JsonRpcError and message.id is None and self.mirrored and error.status in _UNREAD:
                error.answer = message.error
        self._close()
        if not self.wire.falls_back(self, error):
            self.wire.on_unanswered(self, error, resend=self.wire.was_not_done(head))

    def _not_resumed(self, error: HttpError) -> None:
        if error.status == NOT_FOUND and self.wire.session:
            self._give_up(ConnectionLost(f"{self.address.origin} has lost our session: {error}"))
            self.wire.session_gone(None, error, unseen=False)
        elif error.status in RETRY_LATER:
            self._on_stream_cut(error)
        else:
            self._give_up(ConnectionLost(f"the reply's stream broke and cannot be resumed: {error}"))

    def on_lost(self, error: TransportError, *, unseen: bool) -> None:
        """The connection broke, or could not be made."""
        if self._stream is not None and not isinstance(error, NotMcp | ResponseTooLarge):
            self._on_stream_cut(error)
        else:
            self._give_up(error, resend=unseen and not self._resuming)

    def _on_stream_cut(self, error: TransportError) -> None:
        """The stream has ended. It is resumed if the reply was not on it, and the server sent an event id."""
        self._drop_in_flight()
        stream = self._stream
        assert stream is not None
        self._retry = self._retry if stream.retry is None else stream.retry
        if self._is_answered:
            self.on_complete()
        elif stream.oversized is not None:
            self._give_up(stream.oversized)
        elif not stream.mark or self.mirrored or self._resumes >= self.wire.settings.resumes:
            self._give_up(error)
        else:
            self._resumes += 1
            self.method, self.urgent = "GET", True
            self._tried = frozenset()
            self.set_timer(self.wire.retry_delay(self._retry), self._again)

    def _give_up(self, error: TransportError, *, resend: bool = False) -> None:
        if self._is_answered:
            self.on_complete()
        else:
            super()._give_up(error, resend=resend)

    def on_alarm(self) -> None:
        """The stream stays open after its reply, or is silent for too long."""
        if self._is_answered:
            self.on_complete()
        elif self.is_silent(self._last_data_at):
            seconds = self.wire.settings.silence
            self._on_stream_cut(
                SilentTooLong(f"{self.address.origin} has said nothing for {seconds:g} s, not even a comment")
            )
