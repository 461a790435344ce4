"""Requests of one wire and what becomes of each: messages on their way to the server, in a POST of their own, and the answers to them.

A request says who we are, tries a 401 and a 403 once more each, follows a redirect and reads a refusal. A message is only taken note of, or is
answered: by one JSON text, or by a stream of events in which the answer is one of them, with what belongs to it before it. A stream that breaks
before that is taken up again by a GET with the mark where it broke, if the server gave marks. A POST is sent a second time only when it was
refused, and surely not acted upon (`is_not_done`).
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final

from greenroom.protocol.errors import RemoteProtocolError
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcRequest, JsonRpcResponse, OversizedMessage, parse
from greenroom.protocol.sse import SseParser

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
    retry_after,
    sample,
)
from .interfaces import READ_TURN, InvalidMessage, invalid_message, parse_inbound

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from greenroom.protocol.jsonrpc import JsonRpcMessage, MessageLimits, RequestId
    from greenroom.protocol.sse import SseEvent

    from .http_address import ServerUrl
    from .http_connection_pool import ResponseHead
    from .http_wire import HttpWire
    from .interfaces import Headers, InboundItem, InFlightRequest

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_REFUSAL_SIZE: Final = 8 * 1024
"""How much of a refusal is read."""
_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.5
_SHOWN: Final = 400
_REDIRECTS: Final = frozenset({307, 308})
_FIRST_REFUSAL: Final = 300
_UNCOMPRESSED: Final = (b"", b"identity")


class OutgoingRequest:
    """One request, tried again where that is right.

    What carries it reads `method`, `address`, `headers` and, for a POST, `frame`, and tells the answer: one `on_head`, any number of `on_body`, and one
    `on_end`; or, at any point of that, `on_failure` and nothing after it. A kind of visit says in `on_accepted`, `on_data` and `on_complete` what it does with an
    answer, in `on_rejected` with a refusal, and in `on_lost` when there was neither. Each comes at most once after the other, and never after `drop`.
    """

    # Each call makes one of these: what is as it is here in most of them is not written into every one.
    method: str = "POST"
    urgent: bool = True
    """Whether it does not wait for requests that are under way: the server may wait for it before it can answer those."""
    headers: Headers = ()
    in_flight: InFlightRequest | None = None
    """What it is on, for as long as a request is under way."""
    done = False
    """Whether it is over, and nothing more will be told."""
    _head: ResponseHead | None = None
    _refusal: bytearray | None = None
    _sent: Mapping[str, str] = {}
    _tried: frozenset[int] = frozenset()
    _redirects_followed = 0
    _task: asyncio.Task[None] | None = None
    _alarm: asyncio.TimerHandle | None = None
    _stream: EventStream | None = None
    _last_data_at = 0.0
    _is_answered = False

    def __init__(
        self, wire: HttpWire, frame: bytes = b"", id: RequestId | None = None, *, ordered: bool = False
    ) -> None:
        """`frame` is the message, `id` the request's, when it is one. `ordered`: nothing is sent until this was taken note of."""
        self.wire = wire
        self.frame = frame
        self.id = id
        self.ordered = ordered

    # --- what kinds of visits do

    def on_accepted(self, head: ResponseHead) -> None:
        """An answer with a status that is none of a refusal."""

    def on_data(self, data: bytes) -> None:
        """More of it."""

    def on_complete(self) -> None:
        """That was all of it."""

    def on_rejected(self, error: HttpError, body: bytes, head: ResponseHead) -> None:
        """The server refuses."""

    def on_lost(self, error: TransportError, *, unseen: bool) -> None:
        """There was no answer, or no end of it."""

    def on_alarm(self) -> None:
        """It is time."""

    @property
    def address(self) -> ServerUrl:
        """Where it goes."""
        return self.wire.address

    def redirect_to(self, elsewhere: ServerUrl) -> None:
        """The server says that it is somewhere else."""
        self.wire.address = elsewhere

    def extra_headers(self) -> Headers:
        """Headers of its own: where a stream goes on."""
        return () if self._stream is None else self._stream.where()

    @property
    def may_have_been_sent(self) -> bool:
        """Whether anything of it may have left, and may be answered."""
        return self.in_flight is not None and self.in_flight.may_have_been_sent

    # --- going

    def go(self) -> None:
        """Begin, or begin again."""
        self._head = self._refusal = None
        fixed = self.wire.known_headers
        if fixed is not None:
            self._send(fixed)
        else:
            self._task = self.wire.task(self._get_credentials())

    async def _get_credentials(self) -> None:
        try:
            headers = await self.wire.credentials.headers()
        except TransportError as error:
            self._fail(error, unseen=True)
        except Exception as error:  # noqa: BLE001 - the credentials' code
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
        """Drop it: the caller does not want the answer any more."""
        if not self.done:
            self._close()

    def _close(self) -> None:
        self.done = True
        if self.in_flight is not None:
            self._hang_up()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self.alarm(None)

    def _hang_up(self) -> None:
        in_flight, self.in_flight = self.in_flight, None
        if in_flight is not None:
            in_flight.drop()

    # --- what carries it tells

    def on_head(self, head: ResponseHead) -> None:
        """The answer begins."""
        self._head = head
        if head.status >= _FIRST_REFUSAL:
            self._refusal = bytearray()
        elif head.headers.get(b"content-encoding", b"").lower() not in _UNCOMPRESSED:
            self._fail(NotMcp(f"{self.address.origin} sends what is compressed, and nobody has asked it to"))
        else:
            self.on_accepted(head)

    def on_body(self, data: bytes) -> None:
        """More of the answer, or of the refusal."""
        if self._refusal is None:
            self.on_data(data)
        else:
            self._refusal += data
            if len(self._refusal) > _REFUSAL_SIZE:
                self._hang_up()
                self._on_refusal()

    def on_end(self) -> None:
        """It is complete."""
        self.in_flight = None
        if self._refusal is None:
            self.on_complete()
        else:
            self._on_refusal()

    def on_failure(self, error: TransportError, *, unseen: bool) -> None:
        """It will not be."""
        self.in_flight = None
        if self._refusal is not None:
            self._on_refusal()
        else:
            self._fail(error, unseen=unseen)

    def _fail(self, error: TransportError, *, unseen: bool = False) -> None:
        self._hang_up()
        if not self.done:
            self.on_lost(error, unseen=unseen)

    def _on_refusal(self) -> None:
        """It is a refusal: try again, or say so."""
        head, body = self._head, bytes(self._refusal or b"")
        assert head is not None
        challenge = head.get(b"www-authenticate")
        if is_challenge(head):
            refused = Unauthorized(head.status, sample(body, _SHOWN), self.address.origin, challenge)
            # So a token may be renewed, and then be given more scopes; and that is all.
            if head.status not in self._tried:
                self._tried |= {head.status}
                self._task = self.wire.task(self._on_challenge(refused, body, head, challenge))
                return
            error: HttpError = refused
        elif head.status in _REDIRECTS and self._redirects_followed < self.wire.settings.redirects:
            self._redirects_followed += 1
            elsewhere = self.address.beside(head.get(b"location"))
            what = "it redirects to another server, which is not followed"
            if elsewhere is not None:
                self.redirect_to(elsewhere)
                if self._was_not_done(head):
                    self.go()
                    return
                what = "it redirects a request that another server may have been given before"
            error = HttpError(head.status, what, self.address.origin)
        elif head.status == TOO_LARGE:
            error = RequestTooLarge(len(self.frame), sample(body, _SHOWN), self.address.origin, retry_after(head))
        else:
            error = HttpError(head.status, sample(body, _SHOWN), self.address.origin, retry_after(head))
        self.on_rejected(error, body, head)

    def _was_not_done(self, head: ResponseHead) -> bool:
        """Whether it can be sent again without being done twice."""
        return self.method != "POST" or self.wire.was_not_done(head)

    async def _on_challenge(self, error: Unauthorized, body: bytes, head: ResponseHead, challenge: str) -> None:
        unseen = self._was_not_done(head)
        try:
            again = await self.wire.credentials.refused(head.status, challenge, self._sent)
        except TransportError as failed:
            self._fail(failed, unseen=unseen)
            return
        except Exception:  # noqa: BLE001 - the credentials' code
            again = False
        if self.done:
            return
        if again:
            self.wire.known_headers = None
            error.renewed = True
        if again and unseen:
            self.go()
        else:
            self.on_rejected(error, body, head)

    # --- time

    def pause_while_behind(self, seconds: float = _FIRST_PAUSE, *, has_backlog: bool = False) -> None:
        """Read no further while the connection has not caught up with what it was told; looked at less and less often.

        `has_backlog`: events are left of the turn, and are taken before anything more is read.
        """
        if self.in_flight is not None and not self.done:
            if self.wire.is_behind():
                self.in_flight.pause()
                self.wire.later(
                    seconds, lambda: self.pause_while_behind(min(2 * seconds, _LONGEST_PAUSE), has_backlog=has_backlog)
                )
            elif has_backlog:
                self.in_flight.pause()  # which also holds the end of the answer back
                self.wire.later(0, self._catch_up)
            else:
                self.in_flight.resume()

    def _catch_up(self) -> None:
        if self.in_flight is not None and not self.done:
            self.on_data(b"")

    def alarm(self, seconds: float | None, then: Callable[[], None] | None = None) -> None:
        """Have `on_alarm` called in so many seconds, or `then`, and not as was done_event before."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if seconds is None else self.wire.later(seconds, then or self._on_timer)

    def is_silent(self, last_data_at: float) -> bool:
        """Whether nothing has come for longer than settings allow. If not, it rings again when that may be so."""
        silence = self.wire.settings.silence
        assert silence is not None, "nobody listens for silence then"
        left = last_data_at + silence - self.wire.now()
        if left > 0 or self.wire.is_behind():
            self.alarm(max(left, 1.0))
            return False
        return True

    def _begin_stream(self) -> str:
        """The answer is a stream of events. It goes on from the mark of the one before, if there was one: that mark."""
        mark = "" if self._stream is None else self._stream.mark
        self._stream = EventStream(self.wire.event_limits, mark)
        if self.wire.settings.silence is not None:
            self._last_data_at = self.wire.now()
            self.alarm(self.wire.settings.silence)
        return mark

    def _read_stream(self, data: bytes) -> None:
        """More of the stream: what is complete now is handed on, for as long as a turn lasts."""
        stream = self._stream
        assert stream is not None
        self._last_data_at = self.wire.now() if self._alarm is not None else 0.0
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
        self._alarm = None
        self.go()

    def _on_timer(self) -> None:
        self._alarm = None
        if not self.done:
            self.on_alarm()


# --- Messages.

_IGNORED_BODY: Final = 64 * 1024
"""How much is read of an answer that is not needed, so that its connection can be used again."""
_LINGER: Final = 1.0
"""Seconds for which a stream that has brought its answer may take to end by itself."""
_ACCEPTED: Final = 202


class MessagePost(OutgoingRequest):
    """A message that the server is to take note of. Where it is a request, the answer comes by another way."""

    _ignored_bytes = 0

    @property
    def address(self) -> ServerUrl:
        """Where messages are posted to, which in the old transport is a place of its own."""
        return self.wire.post_url

    def redirect_to(self, elsewhere: ServerUrl) -> None:
        """The server says that it is somewhere else."""
        self.wire.post_url = elsewhere

    @property
    def seen(self) -> bool:
        """Whether the server may have seen it: it is on its way, or something was answered."""
        return self.may_have_been_sent or self._head is not None

    def go(self) -> None:
        """Send it; the server has so long to say that it has come."""
        if self._alarm is None:
            self.alarm(self.wire.settings.send_timeout)
        super().go()

    def on_data(self, data: bytes) -> None:
        """Read past it: it is not needed."""
        self._ignored_bytes += len(data)
        if self._ignored_bytes > _IGNORED_BODY:
            self.on_complete()

    def on_complete(self) -> None:
        """It was taken note of, or answered."""
        self._close()
        self.wire.on_settled(self)

    def _give_up(self, error: TransportError, *, resend: bool = False) -> None:
        self._close()
        self.wire.on_unanswered(self, error, resend=resend)

    def _is_session_gone(self, error: HttpError, head: ResponseHead) -> bool:
        """Whether it was refused since the server does not know our session any more; then the wire goes on with that."""
        if error.status != NOT_FOUND or not self.wire.session:
            return False
        self._close()
        self.wire.session_gone(self, error, unseen=self.wire.was_not_done(head))
        return True

    def on_rejected(self, error: HttpError, body: bytes, head: ResponseHead) -> None:  # noqa: ARG002 - the error shows it
        """It was not."""
        if not self._is_session_gone(error, head):
            self._give_up(error, resend=self.wire.was_not_done(head))

    def on_lost(self, error: TransportError, *, unseen: bool) -> None:
        """It may have been, or not."""
        self._give_up(error, resend=unseen)

    def on_alarm(self) -> None:
        """It took too long."""
        seconds = self.wire.settings.send_timeout
        self._fail(ConnectionLost(f"{self.address.origin} took no note of a message within {seconds:g} s"))


class RequestPost(MessagePost):
    """A request, whose answer comes by the same way."""

    urgent = False
    _body: bytes | None = None
    _pieces: bytearray | None = None
    _resumes = 0
    _retry: float | None = None

    @property
    def _resuming(self) -> bool:
        """Whether its stream is taken up again."""
        return self.method == "GET"

    @property
    def seen(self) -> bool:
        """Whether the server may have seen it, also while its stream is to be taken up again."""
        return self._resuming or super().seen

    go = OutgoingRequest.go  # how long an answer may take is for its caller to say

    # --- the answer

    def on_accepted(self, head: ResponseHead) -> None:
        """An answer, of one kind or another."""
        if not self.wire.session:
            self.wire.on_session_id(self, head)
            if self.done:
                return
        kind = head.kind
        if kind == EVENTS:
            self._begin_stream()
        elif self._resuming:
            self._fail(NotMcp(f"{self.address.origin} does not go on with a stream that broke"))
        elif kind not in ("", JSON) and head.status != _ACCEPTED and head.length != 0:
            self._fail(NotMcp(f"{self.address.description} answers with {kind[:80]}, which is not MCP"))
        elif head.length is not None:
            self._check_size(head.length)

    def _check_size(self, size: int) -> None:
        if size > self.wire.settings.max_response:
            self._fail(ResponseTooLarge(size, self.wire.settings.max_response))

    def on_data(self, data: bytes) -> None:
        """A piece of it."""
        if self._stream is not None:
            self._read_stream(data)
        elif self._body is None:
            self._body = data
            self._check_size(len(data))
        else:
            if self._pieces is None:
                self._pieces = bytearray(self._body)  # a list would take fifty times as much for pieces of one byte
            self._pieces += data
            self._check_size(len(self._pieces))

    def _deliver(self, items: Sequence[InboundItem]) -> None:
        """Hand on what came, and notice the answer."""
        self._resumes = 0
        for each in items:
            if type(each) is JsonRpcResponse or type(each) is JsonRpcError:
                answered: RequestId | None = each.id
            elif type(each) is InvalidMessage:
                answered = each.error.answers
            else:
                continue
            self._is_answered = self._is_answered or answered == self.id
        self.wire.deliver(items)
        if self._is_answered and not self.done:
            self.alarm(_LINGER)

    def on_end(self) -> None:
        """It is complete: a JSON text, a stream that may have brought an answer, or a refusal."""
        self.in_flight = None
        if self._refusal is not None:
            self._on_refusal()
            return
        if self._stream is not None:
            self._on_stream_cut(ConnectionLost(f"{self.address.origin} ended the stream before the answer was on it"))
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
        ):  # the server could not tell the request's id: it is ours
            message = JsonRpcError(self.id, message.error)
        fits = isinstance(message, InvalidMessage) or (
            isinstance(message, JsonRpcResponse | JsonRpcError) and message.id == self.id
        )
        self.wire.deliver((message,))
        if fits:
            self.wire.on_settled(self)
        else:
            wrong = NotMcp(f"{self.address.origin} answered something else than it was asked")
            self.wire.on_unanswered(self, wrong, resend=False)

    def _on_empty_response(self) -> None:
        """No answer at all. Some say so and answer on their other stream; others have nothing to say of what was cancelled."""
        assert self._head is not None
        status = self._head.status
        if status == _ACCEPTED:
            self.wire.on_settled(self, answered=False)
        else:
            self.wire.on_unanswered(
                self, HttpError(status, "there was no answer in it", self.address.origin), resend=False
            )

    # --- what can go wrong

    def on_rejected(self, error: HttpError, body: bytes, head: ResponseHead) -> None:
        """A refusal: of the request, or of going on with its answer."""
        if self._resuming:
            self._not_resumed(error)
            return
        if self._is_session_gone(error, head):
            return
        if head.kind == JSON and body and error.status != TOO_MANY:  # that is sent again, whatever it says
            message = parse_inbound(body, self.wire.response_limits)
            if type(message) is JsonRpcError and message.id == self.id:
                self._close()
                self.wire.deliver((message,))
                self.wire.on_settled(self)
                return
        self._close()
        if not self.wire.falls_back(self, error):
            self.wire.on_unanswered(self, error, resend=self.wire.was_not_done(head))

    def _not_resumed(self, error: HttpError) -> None:
        if error.status == NOT_FOUND and self.wire.session:
            self._give_up(ConnectionLost(f"{self.address.origin} does not know our session any more: {error}"))
            self.wire.session_gone(None, error, unseen=False)
        elif error.status in RETRY_LATER:
            self._on_stream_cut(error)
        else:
            self._give_up(ConnectionLost(f"the answer's stream broke, and is not to be had again: {error}"))

    def on_lost(self, error: TransportError, *, unseen: bool) -> None:
        """The connection broke, or there was none."""
        if self._stream is not None and not isinstance(error, NotMcp | ResponseTooLarge):
            self._on_stream_cut(error)
        else:
            self._give_up(error, resend=unseen and not self._resuming)

    def _on_stream_cut(self, error: TransportError) -> None:
        """The stream is over. It is taken up again where the answer was not on it, and the server has marked where it broke."""
        self._hang_up()
        stream = self._stream
        assert stream is not None
        self._retry = self._retry if stream.retry is None else stream.retry
        if self._is_answered:
            self.on_complete()
        elif stream.oversized is not None:
            self._give_up(stream.oversized)
        elif not stream.mark or self._resumes >= self.wire.settings.resumes:
            self._give_up(error)
        else:
            self._resumes += 1
            self.method, self.urgent = "GET", True
            self._tried = frozenset()
            self.alarm(self.wire.retry_delay(self._retry), self._again)

    def _give_up(self, error: TransportError, *, resend: bool = False) -> None:
        if self._is_answered:
            self.on_complete()
        else:
            super()._give_up(error, resend=resend)

    def on_alarm(self) -> None:
        """The answer is there and the stream does not end; or it has been silent for long."""
        if self._is_answered:
            self.on_complete()
        elif self.is_silent(self._last_data_at):
            seconds = self.wire.settings.silence
            self._on_stream_cut(
                SilentTooLong(f"{self.address.origin} has done_event nothing for {seconds:g} s, not even a comment")
            )


# --- An event stream of a server's, read into what the connection is told. No sockets in here.
# What stands in `event` says nothing: every event with data is one message. One without data only moves the mark to come back to.

_EVENTLESS: Final = 2
"""So many times the size of an event may come without one."""
_LONGEST_MARK: Final = 1024
_REQUESTS: Final = 8
"""So many requests of the server's are taken in one turn: each is answered with a POST, on a connection that may have to be made."""


class EventStream:
    """One stream, from its beginning to its end."""

    __slots__ = ("_asked", "_backlog", "_limits", "_parser", "_since", "oversized")

    def __init__(self, limits: MessageLimits, mark: str = "") -> None:
        """`mark` is where a stream goes on that was cut."""
        self._limits = limits
        self._parser = SseParser(limits.size)
        self._since = 0
        self._asked = 0  # requests of the server's in this turn
        self._backlog: deque[SseEvent | OversizedMessage] = deque()
        if mark:
            self._parser.feed(b"id: %b\n\n" % mark.encode())
        self.oversized: ResponseTooLarge | None = None
        """That an event was dropped, of a request that is not known."""

    @property
    def mark(self) -> str:
        """Where to go on when it is cut; empty when the server has not done_event."""
        mark = self._parser.last_event_id
        return mark if mark.isprintable() and len(mark) <= _LONGEST_MARK else ""

    def where(self) -> Headers:
        """The header that says so: UTF-8, as headers carry it."""
        return (("last-event-id", self.mark.encode().decode("latin-1")),) if self.mark else ()

    @property
    def retry(self) -> float | None:
        """After how many seconds, if the server has done_event so."""
        retry = self._parser.retry
        return None if retry is None else retry / 1000

    @property
    def has_backlog(self) -> bool:
        """Whether events wait for the next turn: until they were read, nothing more is to be fed."""
        return bool(self._backlog)

    def events(self, data: bytes) -> Iterator[SseEvent | OversizedMessage]:
        """The events that are complete now, for as long as a turn lasts; feeding nothing goes on with those left.

        Raises `ResponseTooLarge` for one that goes on and on.
        """
        # 4 KiB may be 512 events that are no messages, and each of those takes 0.1 ms to refuse.
        self._backlog.extend(self._parse(data))
        self._asked = 0
        until = perf_counter() + READ_TURN
        while self._backlog:
            yield self._backlog.popleft()
            if self._asked >= _REQUESTS or perf_counter() > until:
                return

    def message(self, event: SseEvent | OversizedMessage) -> JsonRpcMessage | InvalidMessage:
        """What an event of this turn says."""
        data = event if isinstance(event, OversizedMessage) else event.data
        message = parse_inbound(data, self._limits)
        if isinstance(data, OversizedMessage) and isinstance(message, InvalidMessage) and message.error.answers is None:
            self.oversized = ResponseTooLarge(data.length, self._limits.size, "an event")
        self._asked += type(message) is JsonRpcRequest
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
