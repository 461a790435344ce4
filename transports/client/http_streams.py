"""Requests of a wire that carry no message of its connection.

They are the stream for what belongs to no request, the last word of a session, the question whether the server still has it, and the one stream of
the old transport.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from greenroom.protocol.messages import Overlong, encode_request

from .errors import (
    LATER,
    NOT_FOUND,
    ConnectionLost,
    HttpError,
    NotMcp,
    SilentTooLong,
    TransportError,
    instance_of,
)
from .http_posts import EVENTS, EventStream, Question, Visit
from .interfaces import Gap

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .http_address import Address
    from .http_pool import Head
    from .http_wire import HttpWire
    from .interfaces import Heard

# --- The stream for what belongs to no request: opened after the handshake, and again whenever it ends; and the last word of a session.
# A server that has none says so (405, mostly), and that is that. Between two such streams nothing is lost if the server marks its events and
# keeps them; if it does not, the connection is told of a gap.

_LONGEST: Final = 30.0
_LASTING: Final = 5.0
"""Seconds that a stream has to live for its end to be no failure, if nothing came on it."""
_DOUBLINGS: Final = 5


class Listening(Visit):
    """One wire's, for as long as the wire lives."""

    method = "GET"
    _begun = False  # whether there ever was one
    _retry: float | None = None
    _failures = 0
    _since = 0.0
    _news = False

    def accepted(self, head: Head) -> None:
        """The stream begins; any other answer ends the visit."""
        if head.kind != EVENTS:
            self._close()
            return
        self.wire.in_doubt = False
        mark = self._begin_stream()
        self._since = self.wire.now()
        self._news = False
        again, self._begun = self._begun, True
        if again and not mark:
            self.wire.heard((Gap("the stream was cut, and the server does not mark where"),))

    def take(self, data: bytes) -> None:
        """More of it."""
        self._follow(data)

    def _tell(self, heard: Sequence[Heard]) -> None:
        self._news = True
        self.wire.heard(heard)

    def over(self) -> None:
        """The server has ended it, as servers do; some at once, each time."""
        lasting = self._news or self.wire.now() - self._since > _LASTING
        self._doubt(new=lasting)
        self._failures = 0 if lasting else self._failures + 1
        self._later()

    def rejected(self, error: HttpError, body: bytes, head: Head) -> None:  # noqa: ARG002 - the status says enough
        """There is none, or not just now."""
        if error.status == NOT_FOUND and self._begun and self.wire.session:
            self._close()
            self.wire.session_gone(None, error, unseen=False)
        elif error.status in LATER and (self._begun or self._failures < self.wire.settings.resumes):
            self._failures += 1
            self._later()
        else:
            self._close()

    def lost(self, error: TransportError, *, unseen: bool) -> None:  # noqa: ARG002 - it is opened again, whatever it was
        """It broke."""
        self._doubt(new=False)
        self._failures += 1
        self._later()

    def _doubt(self, *, new: bool) -> None:
        """The server may be gone, and its session with it; not so where its streams always end at once."""
        if self._begun and self.wire.session and (new or not self._failures):
            self.wire.in_doubt = True

    def _later(self) -> None:
        """Open it again after a while: what the server said, and longer each time that there was none."""
        self._hang_up()
        if self._stream is not None and self._stream.retry is not None:
            self._retry = self._stream.retry
        self._tried = frozenset()
        seconds = self.wire.patience(self._retry)
        if self._failures > 1:
            seconds = max(seconds, min(seconds * 2 ** min(self._failures - 1, _DOUBLINGS), _LONGEST))
        self.alarm(seconds, self._again)

    def rang(self) -> None:
        """It may have been silent for too long."""
        if self.is_silent(self._heard_at):
            self._later()


class Farewell(Visit):
    """The session is given back. Whatever the server says to that, it is over."""

    method = "DELETE"

    def __init__(self, wire: HttpWire) -> None:
        """Not said yet."""
        super().__init__(wire)
        self.said = asyncio.Event()

    def over(self) -> None:
        """It knows."""
        self._close()
        self.said.set()

    def rejected(self, error: HttpError, body: bytes, head: Head) -> None:  # noqa: ARG002 - that is its own affair
        """The server refused it: end."""
        self.over()

    def lost(self, error: TransportError, *, unseen: bool) -> None:  # noqa: ARG002 - as above
        """It is away."""
        self.over()


_PATIENCE: Final = 5.0
"""Seconds that a server may take to say that it still has the session, before calls are sent all the same."""


class Probe(Question):
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
            self.alarm(_PATIENCE)
        super().go()

    def rang(self) -> None:
        """It took too long, or its stream does not end."""
        self.over()


# --- HTTP as it was before (2024-11-05): one stream carries everything from the server, and says in its first event where to post to.
# The session is the stream: when that ends, it is over. The place to post to is taken from within the same origin only, or a server could have us
# tell another server what we say.

_ENDPOINT: Final = "endpoint"
_SAYS_WITHIN: Final = 10.0
"""Seconds that the first event may take."""


class OldStream(Visit):
    """The stream of one wire."""

    method = "GET"

    def __init__(self, wire: HttpWire, instead: HttpError | None) -> None:
        """`instead` is how the newer transport was refused, which is what to tell if this is not the old one either."""
        super().__init__(wire)
        self._instead = instead
        self.ready = False
        """Whether it is known where to post to."""

    def go(self) -> None:
        """Open it."""
        self.alarm(_SAYS_WITHIN)
        super().go()

    def accepted(self, head: Head) -> None:
        """It has to be a stream."""
        self.wire.instance = instance_of(head)
        if head.kind != EVENTS:
            self._fail(NotMcp(f"{self.address.description} has no stream of events"))
            return
        self._stream = EventStream(self.wire.event_limits)

    def take(self, data: bytes) -> None:
        """More of it."""
        self._follow(data)

    def _messages(self, stream: EventStream, data: bytes) -> Sequence[Heard]:
        heard: list[Heard] = []
        for event in stream.events(data):
            if isinstance(event, Overlong):
                heard.append(stream.message(event))
            elif event.event == _ENDPOINT:
                if not self.ready:
                    self._learn(event.data)
                    if self.done:
                        return ()
            elif event.data and self.ready:
                heard.append(stream.message(event))
        return heard

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
        """The first event is overdue, or nothing came for too long."""
        if not self.ready:
            self._fail(NotMcp(f"{self.address.origin} did not say where to post to within {_SAYS_WITHIN:g} s"))
        elif self.is_silent(self._heard_at):
            seconds = self.wire.settings.silence
            self._fail(SilentTooLong(f"{self.address.origin} has said nothing for {seconds:g} s"))
