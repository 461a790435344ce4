"""Messages on their way to the server, each in a POST of its own: those that are only taken note of, and those that are answered.

An answer is one JSON text, or a stream of events in which it is one of them, with what belongs to it before it. A stream that breaks
before that is taken up again by a GET with the mark where it broke, if the server gave marks; a POST is never sent a second time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.protocol.messages import Failure, Response

from .errors import ConnectionLost, HttpError, NotMcp, ResponseTooLarge, SilentTooLong, TransportError
from .http_stream import EventStream, read
from .http_visit import EVENTS, JSON, Visit, content_type
from .seam import Broken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.protocol.messages import RequestId

    from .http_address import Address
    from .http_reader import Head
    from .http_wire import HttpWire
    from .seam import Heard

_CHATTER: Final = 64 * 1024
"""How much is read of an answer that nobody needs, so that its connection can be used again."""
_LINGER: Final = 1.0
"""Seconds for which a stream that has brought its answer may take to end by itself."""
_ACCEPTED: Final = 202
_NOT_FOUND: Final = 404
_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class Notice(Visit):
    """A message that the server is to take note of. Where it is a request, the answer comes by another way."""

    __slots__ = ("_came", "_frame", "id", "ordered")

    def __init__(self, wire: HttpWire, frame: bytes, id: RequestId | None, *, ordered: bool) -> None:
        """`ordered`: nothing is sent until this was taken note of."""
        super().__init__(wire)
        self._frame = frame
        self._came = 0
        self.id = id
        self.ordered = ordered

    @property
    def frame(self) -> bytes:
        """The message."""
        return self._frame

    @property
    def address(self) -> Address:
        """Where messages are posted to, which in the old transport is a place of its own."""
        return self.wire.place

    def move(self, elsewhere: Address) -> bool:
        """The server says that it is somewhere else."""
        self.wire.place = elsewhere
        return True

    def go(self) -> None:
        """Send it; the server has so long to say that it has come."""
        if self._alarm is None:
            self.alarm(self.wire.settings.send_timeout)
        super().go()

    def take(self, data: bytes) -> None:
        """Nobody needs that."""
        self._came += len(data)
        if self._came > _CHATTER:
            self._hang_up()
            self.over()

    def over(self) -> None:
        """It was taken note of."""
        self._close()
        self.wire.settled(self)

    def rejected(self, error: HttpError, body: bytes, head: Head) -> None:  # noqa: ARG002 - the error shows it
        """It was not."""
        self._close()
        if error.status == _NOT_FOUND and self.wire.session:
            self.wire.session_gone(self, error)
        else:
            self.wire.unheard(self, error, resend=False)

    def lost(self, error: TransportError, *, unseen: bool) -> None:
        """It may have been, or not."""
        self._close()
        self.wire.unheard(self, error, resend=unseen)

    def rang(self) -> None:
        """It took too long."""
        seconds = self.wire.settings.send_timeout
        self._fail(ConnectionLost(f"{self.address.origin} took no note of a message within {seconds:g} s"))


class Question(Notice):
    """A request, whose answer comes by the same way."""

    __slots__ = ("_answered", "_body", "_heard_at", "_limit", "_pieces", "_resumes", "_resuming", "_retry", "_stream")

    def __init__(self, wire: HttpWire, frame: bytes, id: RequestId, *, ordered: bool) -> None:
        """`id` is what its answer will have."""
        super().__init__(wire, frame, id, ordered=ordered)
        self._body: bytes | None = None
        self._pieces: list[bytes] | None = None
        self._limit = wire.settings.max_response
        self._stream: EventStream | None = None
        self._answered = False
        self._resuming = False
        self._resumes = 0
        self._retry: float | None = None
        self._heard_at = 0.0

    @property
    def urgent(self) -> bool:
        """It takes its turn."""
        return False

    @property
    def method(self) -> str:  # type: ignore[override]  # which changes when a stream is taken up again
        """How it is asked."""
        return "GET" if self._resuming else "POST"

    @property
    def frame(self) -> bytes:
        """The request; nothing any more when its answer has begun to come."""
        return b"" if self._resuming else self._frame

    def extra(self) -> tuple[tuple[str, str], ...]:
        """Where to go on."""
        return self._stream.where() if self._resuming and self._stream is not None else ()

    def go(self) -> None:
        """Ask. How long that may take is for whoever waits to say."""
        Visit.go(self)

    # --- the answer

    def accepted(self, head: Head) -> None:
        """An answer, of one kind or another."""
        if not self.wire.session:
            self.wire.captured(self, head.get(b"mcp-session-id"))
            if self.done:
                return
        if content_type(head) == EVENTS:
            mark = "" if self._stream is None else self._stream.mark
            self._stream = EventStream(self.wire.event_limits, mark)
            if self.wire.settings.silence is not None:
                self._heard_at = self.wire.now()
                self.alarm(self.wire.settings.silence)
        elif self._resuming:
            self._fail(NotMcp(f"{self.address.origin} does not go on with a stream that broke"))
        elif (kind := content_type(head)) not in ("", JSON) and head.status != _ACCEPTED and head.length != 0:
            self._fail(NotMcp(f"{self.address.description} answers with {kind[:80]}, which is not MCP"))
        elif head.length is not None and head.length > self._limit:
            self._fail(ResponseTooLarge(head.length, self._limit))

    def take(self, data: bytes) -> None:
        """A piece of it."""
        stream = self._stream
        if stream is not None:
            self._heard_at = self.wire.now() if self._alarm is not None else 0.0
            try:
                heard = stream.feed(data)
            except ResponseTooLarge as error:
                self._give_up(error)
                return
            if heard:
                self._resumes = 0
                self._tell(heard)
            return
        if self._body is None:
            self._body = data
            size = len(data)
        elif self._pieces is None:
            self._pieces = [self._body, data]
            size = self._came = len(self._body) + len(data)
        else:
            self._pieces.append(data)
            size = self._came = self._came + len(data)
        if size > self._limit:
            self._fail(ResponseTooLarge(size, self._limit))

    def _tell(self, heard: Sequence[Heard]) -> None:
        """Hand on what came, and notice the answer."""
        for each in heard:
            if type(each) is Response or type(each) is Failure:
                answered: RequestId | None = each.id
            elif type(each) is Broken:
                answered = each.error.answers
            else:
                continue
            self._answered = self._answered or answered == self.id
        self.wire.heard(heard)
        if self.done:
            return
        if self._answered:
            self.alarm(_LINGER)
        else:
            self.breathe()

    def over(self) -> None:
        """It is complete: a JSON text, or a stream that may have brought an answer."""
        if self._stream is not None:
            if self._answered:
                self._close()
                self.wire.settled(self)
            else:
                self._cut(ConnectionLost(f"{self.address.origin} ended the stream before the answer was on it"))
            return
        self._close()
        body = self._body if self._pieces is None else b"".join(self._pieces)
        if not body:
            self._nothing()
            return
        message = read(body, self.wire.response_limits, self.id)
        if type(message) is Failure and message.id is None:  # whoever could not tell whose it is: it is ours
            message = Failure(self.id, message.error)
        fits = isinstance(message, Broken) or (isinstance(message, Response | Failure) and message.id == self.id)
        self.wire.heard((message,))
        if fits:
            self.wire.settled(self)
        else:
            self.wire.unheard(
                self, NotMcp(f"{self.address.origin} answered something else than it was asked"), resend=False
            )

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
            if error.status == _NOT_FOUND and self.wire.session:
                self._give_up(ConnectionLost(f"{self.address.origin} does not know our session any more: {error}"))
                self.wire.session_gone(None, error)
            elif error.status in _LATER:
                self._cut(error)
            else:
                self._give_up(ConnectionLost(f"the answer's stream broke, and is not to be had again: {error}"))
            return
        if error.status == _NOT_FOUND and self.wire.session:
            self._close()
            self.wire.session_gone(self, error)
            return
        if content_type(head) == JSON and body:
            message = read(body, self.wire.response_limits)
            if type(message) is Failure and message.id == self.id:
                self._close()
                self.wire.heard((message,))
                self.wire.settled(self)
                return
        self._close()
        if not self.wire.falls_back(self, error):
            self.wire.unheard(self, error, resend=False)

    def lost(self, error: TransportError, *, unseen: bool) -> None:
        """The connection broke, or there was none."""
        if self._stream is not None and not isinstance(error, NotMcp | ResponseTooLarge):
            self._cut(error)
        else:
            self._give_up(error, resend=unseen and not self._resuming)

    def _cut(self, error: TransportError) -> None:
        """The stream is over, and the answer was not on it: it is taken up again, if the server has marked where."""
        self._hang_up()
        stream = self._stream
        assert stream is not None
        if self._answered:
            self._close()
            self.wire.settled(self)
            return
        self._retry = self._retry if stream.retry is None else stream.retry
        if stream.oversized is not None:
            self._give_up(stream.oversized)
        elif not stream.mark or self._resumes >= self.wire.settings.resumes:
            self._give_up(error)
        else:
            self._resumes += 1
            self._resuming = True
            self._tried = frozenset()
            self.alarm(None)
            self._alarm = self.wire.later(self.wire.patience(self._retry), self._again)

    def _again(self) -> None:
        self._alarm = None
        self.go()

    def _give_up(self, error: TransportError, *, resend: bool = False) -> None:
        self._close()
        if self._answered:
            self.wire.settled(self)
        else:
            self.wire.unheard(self, error, resend=resend)

    def rang(self) -> None:
        """The answer is there and the stream does not end; or it has been silent for long."""
        if self._answered:
            self._close()
            self.wire.settled(self)
        elif self.is_silent(self._heard_at):
            seconds = self.wire.settings.silence
            self._cut(SilentTooLong(f"{self.address.origin} has said nothing for {seconds:g} s, not even a comment"))
