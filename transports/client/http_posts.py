"""Messages on their way to the server, each in a POST of its own: those that are only taken note of, and those that are answered.

An answer is one JSON text, or a stream of events in which it is one of them, with what belongs to it before it. A stream that breaks
before that is taken up again by a GET with the mark where it broke, if the server gave marks. A POST is sent a second time only when it was
refused, and surely not acted upon (`http_refusal`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from greenroom.protocol.messages import Failure, Response, encode_request, too_long
from greenroom.protocol.sse import Overlong

from .errors import ConnectionLost, HttpError, NotMcp, ResponseTooLarge, SilentTooLong, TransportError
from .http_reader import EventStream, read, sample
from .http_visit import EVENTS, JSON, Visit, content_type, instance_of
from .seam import Broken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.protocol.messages import RequestId

    from .http_address import Address
    from .http_reader import Head
    from .http_wire import HttpWire
    from .seam import Heard

_PATIENCE: Final = 5.0
"""Seconds that a server may take to say that it still has the session, before calls are sent all the same."""
_CHATTER: Final = 64 * 1024
"""How much is read of an answer that nobody needs, so that its connection can be used again."""
_LINGER: Final = 1.0
"""Seconds for which a stream that has brought its answer may take to end by itself."""
_ACCEPTED: Final = 202
_NOT_FOUND: Final = 404
_TOO_MANY: Final = 429
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
        unseen = self.wire.was_not_done(head)
        if error.status == _NOT_FOUND and self.wire.session:
            self.wire.session_gone(self, error, unseen=unseen)
        else:
            self.wire.unheard(self, error, resend=unseen)

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
        self._pieces: bytearray | None = None
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

    @property
    def seen(self) -> bool:
        """Whether the server may have seen it, also while its stream is to be taken up again."""
        return self._resuming or super().seen

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
            self.wire.captured(self, head)
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
            if stream.behind or not self._answered:
                self.breathe(behind=stream.behind)
            return
        if self._body is None:
            self._body = data
            size = len(data)
        else:
            if self._pieces is None:
                self._pieces = bytearray(self._body)  # a list would take fifty times as much for pieces of one byte
            self._pieces += data
            size = len(self._pieces)
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
        body = self._body if self._pieces is None else bytes(self._pieces)
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
                self.wire.session_gone(None, error, unseen=False)
            elif error.status in _LATER:
                self._cut(error)
            else:
                self._give_up(ConnectionLost(f"the answer's stream broke, and is not to be had again: {error}"))
            return
        unseen = self.wire.was_not_done(head)
        if error.status == _NOT_FOUND and self.wire.session:
            self._close()
            self.wire.session_gone(self, error, unseen=unseen)
            return
        if (
            content_type(head) == JSON and body and error.status != _TOO_MANY
        ):  # that one is to be sent again, whatever it says
            message = read(body, self.wire.response_limits)
            if type(message) is Failure and message.id == self.id:
                self._close()
                self.wire.heard((message,))
                self.wire.settled(self)
                return
        self._close()
        if not self.wire.falls_back(self, error):
            self.wire.unheard(self, error, resend=unseen)

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


class Probe(Question):
    """Whether the server still has our session: a ping of the wire's own, before calls that must not be done twice.

    The stream of the session has ended. Where the server was started again meanwhile, a call would be answered with 404, and could not be told
    from one that another server has done; a ping can be.
    """

    __slots__ = ()

    def __init__(self, wire: HttpWire, number: int) -> None:
        """The connection's own ids are numbers, so this one is a text."""
        id = f"still-there-{number}"
        super().__init__(wire, encode_request(id, "ping"), id, ordered=True)

    def go(self) -> None:
        """Ask; what is not answered in time is no reason to wait any longer."""
        if self._alarm is None:
            self.alarm(_PATIENCE)
        super().go()

    def rang(self) -> None:
        """It took too long, or its stream does not end."""
        self._close()
        self.wire.settled(self)


# --- HTTP as it was before (2024-11-05): one stream carries everything from the server, and says in its first event where to post to.
# The session is the stream: when that ends, it is over. The place to post to is taken from within the same origin only, or a server could have us
# tell somebody else what we say.

_ENDPOINT: Final = "endpoint"
_SAYS_WITHIN: Final = 10.0
"""Seconds that the first event may take."""


class OldStream(Visit):
    """The stream of one wire."""

    __slots__ = ("_heard_at", "_instead", "_stream", "ready")

    method: ClassVar[str] = "GET"

    def __init__(self, wire: HttpWire, instead: HttpError | None) -> None:
        """`instead` is how the newer transport was refused, which is what to tell if this is not the old one either."""
        super().__init__(wire)
        self._instead = instead
        self._stream = EventStream(wire.event_limits)
        self._heard_at = 0.0
        self.ready = False
        """Whether it is known where to post to."""

    def go(self) -> None:
        """Open it."""
        self.alarm(_SAYS_WITHIN)
        super().go()

    def accepted(self, head: Head) -> None:
        """It has to be a stream."""
        self.wire.instance = instance_of(head)
        if content_type(head) != EVENTS:
            self._fail(NotMcp(f"{self.address.description} has no stream of events"))

    def take(self, data: bytes) -> None:
        """More of it."""
        self._heard_at = self.wire.now()
        heard: list[Heard] = []
        try:
            for event in self._stream.events(data):
                if isinstance(event, Overlong):
                    heard.append(Broken(too_long(event, self.wire.event_limits.size), sample(event.head)))
                elif event.event == _ENDPOINT:
                    if not self.ready:
                        self._learn(event.data)
                        if self.done:
                            return
                elif event.data and self.ready:
                    heard.append(self._stream.message(event))
        except ResponseTooLarge as error:
            self._fail(error)
            return
        if heard:
            self.wire.heard(heard)
        self.breathe(behind=self._stream.behind)

    def _learn(self, where: bytes) -> None:
        place: Address | None = self.address.beside(where.decode(errors="replace").strip())
        if place is None:
            self._fail(
                NotMcp(f"{self.address.origin} wants messages to be posted to another server, which is not done")
            )
            return
        self.ready = True
        self.alarm(self.wire.settings.silence)
        self.wire.old_ready(place)

    def over(self) -> None:
        """The server has ended it."""
        self._end(ConnectionLost(f"{self.address.origin} ended the stream"))

    def rejected(self, error: HttpError, body: bytes, head: Head) -> None:  # noqa: ARG002 - the error shows it
        """There is none."""
        self._end(error)

    def lost(self, error: TransportError, *, unseen: bool) -> None:  # noqa: ARG002 - nothing of ours was in it
        """It broke."""
        self._end(error)

    def _end(self, error: TransportError) -> None:
        self._close()
        self.wire.old_over(error if self.ready or self._instead is None else self._instead)

    def rang(self) -> None:
        """Nothing came for too long."""
        if not self.ready:
            self._fail(NotMcp(f"{self.address.origin} did not say where to post to within {_SAYS_WITHIN:g} s"))
        elif self.is_silent(self._heard_at):
            seconds = self.wire.settings.silence
            self._fail(SilentTooLong(f"{self.address.origin} has said nothing for {seconds:g} s"))
