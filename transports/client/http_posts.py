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
from greenroom.protocol.messages import Failure, Overlong, Request, Response, parse
from greenroom.protocol.sse import Parser

from .errors import (
    LATER,
    NOT_FOUND,
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
from .interfaces import TURN, Broken, broken, read

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from greenroom.protocol.messages import Limits, Message, RequestId
    from greenroom.protocol.sse import Event

    from .http_address import Address
    from .http_pool import Head
    from .http_wire import HttpWire
    from .interfaces import Errand, Headers, Heard

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_REFUSED: Final = 8 * 1024
"""How much of a refusal is read."""
_CALM: Final = 0.005
_LONGEST_CALM: Final = 0.5
_SHOWN: Final = 400
_MOVED: Final = frozenset({307, 308})
_FIRST_REFUSAL: Final = 300
_UNPACKED: Final = (b"", b"identity")


class Visit:
    """One request, tried again where that is right.

    What carries it reads `method`, `address`, `headers` and, for a POST, `frame`, and tells the answer: one `head`, any number of `body`, and one
    `end`; or, at any point of that, `failed` and nothing after it. A kind of visit says in `accepted`, `take` and `over` what it does with an
    answer, in `rejected` with a refusal, and in `lost` when there was neither. Each comes at most once after the other, and never after `drop`.
    """

    # Each call makes one of these: what is as it is here in most of them is not written into every one.
    method: str = "POST"
    urgent: bool = True
    """Whether it does not wait for requests that are under way: the server may wait for it before it can answer those."""
    headers: Headers = ()
    errand: Errand | None = None
    """What it is on, for as long as a request is under way."""
    done = False
    """Whether it is over, and nothing more will be told."""
    _head: Head | None = None
    _refusal: bytearray | None = None
    _sent: Mapping[str, str] = {}
    _tried: frozenset[int] = frozenset()
    _moves = 0
    _task: asyncio.Task[None] | None = None
    _alarm: asyncio.TimerHandle | None = None
    _stream: EventStream | None = None
    _heard_at = 0.0
    _answered = False

    def __init__(
        self, wire: HttpWire, frame: bytes = b"", id: RequestId | None = None, *, ordered: bool = False
    ) -> None:
        """`frame` is the message, `id` the request's, when it is one. `ordered`: nothing is sent until this was taken note of."""
        self.wire = wire
        self.frame = frame
        self.id = id
        self.ordered = ordered

    # --- what kinds of visits do

    def accepted(self, head: Head) -> None:
        """An answer with a status that is none of a refusal."""

    def take(self, data: bytes) -> None:
        """More of it."""

    def over(self) -> None:
        """That was all of it."""

    def rejected(self, error: HttpError, body: bytes, head: Head) -> None:
        """The server refuses."""

    def lost(self, error: TransportError, *, unseen: bool) -> None:
        """There was no answer, or no end of it."""

    def rang(self) -> None:
        """It is time."""

    @property
    def address(self) -> Address:
        """Where it goes."""
        return self.wire.address

    def move(self, elsewhere: Address) -> None:
        """The server says that it is somewhere else."""
        self.wire.address = elsewhere

    def extra(self) -> Headers:
        """Headers of its own: where a stream goes on."""
        return () if self._stream is None else self._stream.where()

    @property
    def left(self) -> bool:
        """Whether anything of it may have left, and may be answered."""
        return self.errand is not None and self.errand.left

    # --- going

    def go(self) -> None:
        """Begin, or begin again."""
        self._head = self._refusal = None
        fixed = self.wire.known_headers
        if fixed is not None:
            self._leave(fixed)
        else:
            self._task = self.wire.task(self._ask())

    async def _ask(self) -> None:
        try:
            headers = await self.wire.credentials.headers()
        except TransportError as error:
            self._fail(error, unseen=True)
        except Exception as error:  # noqa: BLE001 - the credentials' code
            self._fail(Unauthorized(0, f"the credentials failed: {type(error).__name__}"), unseen=True)
        else:
            if not self.done:
                self._leave(headers)

    def _leave(self, credentials: Mapping[str, str]) -> None:
        self._sent = credentials
        try:
            self.headers = self.wire.headers(self, credentials)
        except ValueError as error:
            self._fail(Unauthorized(0, f"the credentials cannot be sent: {error}"), unseen=True)
            return
        self.wire.carrier.begin(self)

    def drop(self) -> None:
        """Drop it: the caller does not want the answer any more."""
        if not self.done:
            self._close()

    def _close(self) -> None:
        self.done = True
        if self.errand is not None:
            self._hang_up()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self.alarm(None)

    def _hang_up(self) -> None:
        errand, self.errand = self.errand, None
        if errand is not None:
            errand.drop()

    # --- what carries it tells

    def head(self, head: Head) -> None:
        """The answer begins."""
        self._head = head
        if head.status >= _FIRST_REFUSAL:
            self._refusal = bytearray()
        elif head.headers.get(b"content-encoding", b"").lower() not in _UNPACKED:
            self._fail(NotMcp(f"{self.address.origin} sends what is compressed, and nobody has asked it to"))
        else:
            self.accepted(head)

    def body(self, data: bytes) -> None:
        """More of the answer, or of the refusal."""
        if self._refusal is None:
            self.take(data)
        else:
            self._refusal += data
            if len(self._refusal) > _REFUSED:
                self._hang_up()
                self._decide()

    def end(self) -> None:
        """It is complete."""
        self.errand = None
        if self._refusal is None:
            self.over()
        else:
            self._decide()

    def failed(self, error: TransportError, *, unseen: bool) -> None:
        """It will not be."""
        self.errand = None
        if self._refusal is not None:
            self._decide()
        else:
            self._fail(error, unseen=unseen)

    def _fail(self, error: TransportError, *, unseen: bool = False) -> None:
        self._hang_up()
        if not self.done:
            self.lost(error, unseen=unseen)

    def _decide(self) -> None:
        """It is a refusal: try again, or say so."""
        head, body = self._head, bytes(self._refusal or b"")
        assert head is not None
        challenge = head.get(b"www-authenticate")
        if is_challenge(head):
            refused = Unauthorized(head.status, sample(body, _SHOWN), self.address.origin, challenge)
            # So a token may be renewed, and then be given more scopes; and that is all.
            if head.status not in self._tried:
                self._tried |= {head.status}
                self._task = self.wire.task(self._refused(refused, body, head, challenge))
                return
            error: HttpError = refused
        elif head.status in _MOVED and self._moves < self.wire.settings.redirects:
            self._moves += 1
            elsewhere = self.address.beside(head.get(b"location"))
            what = "it redirects to another server, which is not followed"
            if elsewhere is not None:
                self.move(elsewhere)
                if self._was_not_done(head):
                    self.go()
                    return
                what = "it redirects a request that another server may have been given before"
            error = HttpError(head.status, what, self.address.origin)
        elif head.status == TOO_LARGE:
            error = RequestTooLarge(len(self.frame), sample(body, _SHOWN), self.address.origin, retry_after(head))
        else:
            error = HttpError(head.status, sample(body, _SHOWN), self.address.origin, retry_after(head))
        self.rejected(error, body, head)

    def _was_not_done(self, head: Head) -> bool:
        """Whether it can be sent again without being done twice."""
        return self.method != "POST" or self.wire.was_not_done(head)

    async def _refused(self, error: Unauthorized, body: bytes, head: Head, challenge: str) -> None:
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
            self.rejected(error, body, head)

    # --- time

    def breathe(self, seconds: float = _CALM, *, behind: bool = False) -> None:
        """Read no further while the connection has not caught up with what it was told; looked at less and less often.

        `behind`: events are left of the turn, and are taken before anything more is read.
        """
        if self.errand is not None and not self.done:
            if self.wire.crowded():
                self.errand.pause()
                self.wire.later(seconds, lambda: self.breathe(min(2 * seconds, _LONGEST_CALM), behind=behind))
            elif behind:
                self.errand.pause()  # which also holds the end of the answer back
                self.wire.later(0, self._catch_up)
            else:
                self.errand.resume()

    def _catch_up(self) -> None:
        if self.errand is not None and not self.done:
            self.take(b"")

    def alarm(self, seconds: float | None, then: Callable[[], None] | None = None) -> None:
        """Have `rang` called in so many seconds, or `then`, and not as was said before."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if seconds is None else self.wire.later(seconds, then or self._ring)

    def is_silent(self, heard_at: float) -> bool:
        """Whether nothing has come for longer than settings allow. If not, it rings again when that may be so."""
        silence = self.wire.settings.silence
        assert silence is not None, "nobody listens for silence then"
        left = heard_at + silence - self.wire.now()
        if left > 0 or self.wire.crowded():
            self.alarm(max(left, 1.0))
            return False
        return True

    def _begin_stream(self) -> str:
        """The answer is a stream of events. It goes on from the mark of the one before, if there was one: that mark."""
        mark = "" if self._stream is None else self._stream.mark
        self._stream = EventStream(self.wire.event_limits, mark)
        if self.wire.settings.silence is not None:
            self._heard_at = self.wire.now()
            self.alarm(self.wire.settings.silence)
        return mark

    def _follow(self, data: bytes) -> None:
        """More of the stream: what is complete now is handed on, for as long as a turn lasts."""
        stream = self._stream
        assert stream is not None
        self._heard_at = self.wire.now() if self._alarm is not None else 0.0
        try:
            heard = self._messages(stream, data)
        except ResponseTooLarge as error:
            self._fail(error)
            return
        if heard:
            self._tell(heard)
        if stream.behind or not self._answered:
            self.breathe(behind=stream.behind)

    def _messages(self, stream: EventStream, data: bytes) -> Sequence[Heard]:
        return stream.feed(data)

    def _tell(self, heard: Sequence[Heard]) -> None:
        self.wire.heard(heard)

    def _again(self) -> None:
        self._alarm = None
        self.go()

    def _ring(self) -> None:
        self._alarm = None
        if not self.done:
            self.rang()


# --- Messages.

_CHATTER: Final = 64 * 1024
"""How much is read of an answer that is not needed, so that its connection can be used again."""
_LINGER: Final = 1.0
"""Seconds for which a stream that has brought its answer may take to end by itself."""
_ACCEPTED: Final = 202


class Notice(Visit):
    """A message that the server is to take note of. Where it is a request, the answer comes by another way."""

    _came = 0

    @property
    def address(self) -> Address:
        """Where messages are posted to, which in the old transport is a place of its own."""
        return self.wire.place

    def move(self, elsewhere: Address) -> None:
        """The server says that it is somewhere else."""
        self.wire.place = elsewhere

    @property
    def seen(self) -> bool:
        """Whether the server may have seen it: it is on its way, or something was answered."""
        return self.left or self._head is not None

    def go(self) -> None:
        """Send it; the server has so long to say that it has come."""
        if self._alarm is None:
            self.alarm(self.wire.settings.send_timeout)
        super().go()

    def take(self, data: bytes) -> None:
        """Read past it: it is not needed."""
        self._came += len(data)
        if self._came > _CHATTER:
            self.over()

    def over(self) -> None:
        """It was taken note of, or answered."""
        self._close()
        self.wire.settled(self)

    def _give_up(self, error: TransportError, *, resend: bool = False) -> None:
        self._close()
        self.wire.unheard(self, error, resend=resend)

    def _forgotten(self, error: HttpError, head: Head) -> bool:
        """Whether it was refused since the server does not know our session any more; then the wire goes on with that."""
        if error.status != NOT_FOUND or not self.wire.session:
            return False
        self._close()
        self.wire.session_gone(self, error, unseen=self.wire.was_not_done(head))
        return True

    def rejected(self, error: HttpError, body: bytes, head: Head) -> None:  # noqa: ARG002 - the error shows it
        """It was not."""
        if not self._forgotten(error, head):
            self._give_up(error, resend=self.wire.was_not_done(head))

    def lost(self, error: TransportError, *, unseen: bool) -> None:
        """It may have been, or not."""
        self._give_up(error, resend=unseen)

    def rang(self) -> None:
        """It took too long."""
        seconds = self.wire.settings.send_timeout
        self._fail(ConnectionLost(f"{self.address.origin} took no note of a message within {seconds:g} s"))


class Question(Notice):
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

    go = Visit.go  # how long an answer may take is for its caller to say

    # --- the answer

    def accepted(self, head: Head) -> None:
        """An answer, of one kind or another."""
        if not self.wire.session:
            self.wire.captured(self, head)
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

    def take(self, data: bytes) -> None:
        """A piece of it."""
        if self._stream is not None:
            self._follow(data)
        elif self._body is None:
            self._body = data
            self._check_size(len(data))
        else:
            if self._pieces is None:
                self._pieces = bytearray(self._body)  # a list would take fifty times as much for pieces of one byte
            self._pieces += data
            self._check_size(len(self._pieces))

    def _tell(self, heard: Sequence[Heard]) -> None:
        """Hand on what came, and notice the answer."""
        self._resumes = 0
        for each in heard:
            if type(each) is Response or type(each) is Failure:
                answered: RequestId | None = each.id
            elif type(each) is Broken:
                answered = each.error.answers
            else:
                continue
            self._answered = self._answered or answered == self.id
        self.wire.heard(heard)
        if self._answered and not self.done:
            self.alarm(_LINGER)

    def end(self) -> None:
        """It is complete: a JSON text, a stream that may have brought an answer, or a refusal."""
        self.errand = None
        if self._refusal is not None:
            self._decide()
            return
        if self._stream is not None:
            self._cut(ConnectionLost(f"{self.address.origin} ended the stream before the answer was on it"))
            return
        self._close()
        body = self._body if self._pieces is None else bytes(self._pieces)
        if not body:
            self._nothing()
            return
        message: Message | Broken
        try:
            message = parse(body, self.wire.response_limits)
        except RemoteProtocolError as error:
            message = broken(error, body, self.id)
        if type(message) is Failure and message.id is None:  # the server could not tell the request's id: it is ours
            message = Failure(self.id, message.error)
        fits = isinstance(message, Broken) or (isinstance(message, Response | Failure) and message.id == self.id)
        self.wire.heard((message,))
        if fits:
            self.wire.settled(self)
        else:
            wrong = NotMcp(f"{self.address.origin} answered something else than it was asked")
            self.wire.unheard(self, wrong, resend=False)

    def _nothing(self) -> None:
        """No answer at all. Some say so and answer on their other stream; others have nothing to say of what was cancelled."""
        assert self._head is not None
        status = self._head.status
        if status == _ACCEPTED:
            self.wire.settled(self, answered=False)
        else:
            self.wire.unheard(self, HttpError(status, "there was no answer in it", self.address.origin), resend=False)

    # --- what can go wrong

    def rejected(self, error: HttpError, body: bytes, head: Head) -> None:
        """A refusal: of the request, or of going on with its answer."""
        if self._resuming:
            self._not_resumed(error)
            return
        if self._forgotten(error, head):
            return
        if head.kind == JSON and body and error.status != TOO_MANY:  # that is sent again, whatever it says
            message = read(body, self.wire.response_limits)
            if type(message) is Failure and message.id == self.id:
                self._close()
                self.wire.heard((message,))
                self.wire.settled(self)
                return
        self._close()
        if not self.wire.falls_back(self, error):
            self.wire.unheard(self, error, resend=self.wire.was_not_done(head))

    def _not_resumed(self, error: HttpError) -> None:
        if error.status == NOT_FOUND and self.wire.session:
            self._give_up(ConnectionLost(f"{self.address.origin} does not know our session any more: {error}"))
            self.wire.session_gone(None, error, unseen=False)
        elif error.status in LATER:
            self._cut(error)
        else:
            self._give_up(ConnectionLost(f"the answer's stream broke, and is not to be had again: {error}"))

    def lost(self, error: TransportError, *, unseen: bool) -> None:
        """The connection broke, or there was none."""
        if self._stream is not None and not isinstance(error, NotMcp | ResponseTooLarge):
            self._cut(error)
        else:
            self._give_up(error, resend=unseen and not self._resuming)

    def _cut(self, error: TransportError) -> None:
        """The stream is over. It is taken up again where the answer was not on it, and the server has marked where it broke."""
        self._hang_up()
        stream = self._stream
        assert stream is not None
        self._retry = self._retry if stream.retry is None else stream.retry
        if self._answered:
            self.over()
        elif stream.oversized is not None:
            self._give_up(stream.oversized)
        elif not stream.mark or self._resumes >= self.wire.settings.resumes:
            self._give_up(error)
        else:
            self._resumes += 1
            self.method, self.urgent = "GET", True
            self._tried = frozenset()
            self.alarm(self.wire.patience(self._retry), self._again)

    def _give_up(self, error: TransportError, *, resend: bool = False) -> None:
        if self._answered:
            self.over()
        else:
            super()._give_up(error, resend=resend)

    def rang(self) -> None:
        """The answer is there and the stream does not end; or it has been silent for long."""
        if self._answered:
            self.over()
        elif self.is_silent(self._heard_at):
            seconds = self.wire.settings.silence
            self._cut(SilentTooLong(f"{self.address.origin} has said nothing for {seconds:g} s, not even a comment"))


# --- An event stream of a server's, read into what the connection is told. No sockets in here.
# What stands in `event` says nothing: every event with data is one message. One without data only moves the mark to come back to.

_EVENTLESS: Final = 2
"""So many times the size of an event may come without one."""
_LONGEST_MARK: Final = 1024
_REQUESTS: Final = 8
"""So many requests of the server's are taken in one turn: each is answered with a POST, on a connection that may have to be made."""


class EventStream:
    """One stream, from its beginning to its end."""

    __slots__ = ("_asked", "_behind", "_limits", "_parser", "_since", "oversized")

    def __init__(self, limits: Limits, mark: str = "") -> None:
        """`mark` is where a stream goes on that was cut."""
        self._limits = limits
        self._parser = Parser(limits.size)
        self._since = 0
        self._asked = 0  # requests of the server's in this turn
        self._behind: deque[Event | Overlong] = deque()
        if mark:
            self._parser.feed(b"id: %b\n\n" % mark.encode())
        self.oversized: ResponseTooLarge | None = None
        """That an event was dropped, of a request that is not known."""

    @property
    def mark(self) -> str:
        """Where to go on when it is cut; empty when the server has not said."""
        mark = self._parser.last_event_id
        return mark if mark.isprintable() and len(mark) <= _LONGEST_MARK else ""

    def where(self) -> Headers:
        """The header that says so: UTF-8, as headers carry it."""
        return (("last-event-id", self.mark.encode().decode("latin-1")),) if self.mark else ()

    @property
    def retry(self) -> float | None:
        """After how many seconds, if the server has said so."""
        retry = self._parser.retry
        return None if retry is None else retry / 1000

    @property
    def behind(self) -> bool:
        """Whether events wait for the next turn: until they were read, nothing more is to be fed."""
        return bool(self._behind)

    def events(self, data: bytes) -> Iterator[Event | Overlong]:
        """The events that are complete now, for as long as a turn lasts; feeding nothing goes on with those left.

        Raises `ResponseTooLarge` for one that goes on and on.
        """
        # 4 KiB may be 512 events that are no messages, and each of those takes 0.1 ms to refuse.
        self._behind.extend(self._parse(data))
        self._asked = 0
        until = perf_counter() + TURN
        while self._behind:
            yield self._behind.popleft()
            if self._asked >= _REQUESTS or perf_counter() > until:
                return

    def message(self, event: Event | Overlong) -> Message | Broken:
        """What an event of this turn says."""
        data = event if isinstance(event, Overlong) else event.data
        message = read(data, self._limits)
        if isinstance(data, Overlong) and isinstance(message, Broken) and message.error.answers is None:
            self.oversized = ResponseTooLarge(data.length, self._limits.size, "an event")
        self._asked += type(message) is Request
        return message

    def _parse(self, data: bytes) -> list[Event | Overlong]:
        found = self._parser.feed(data)
        self._since = 0 if found else self._since + len(data)
        if self._since > _EVENTLESS * self._limits.size and self._parser.held == 0:
            raise ResponseTooLarge(self._since, self._limits.size, "an event")
        return found

    def feed(self, data: bytes) -> list[Message | Broken]:
        """The messages in those events. Raises as `events` does."""
        return [self.message(event) for event in self.events(data) if isinstance(event, Overlong) or event.data]
