"""The stream for what belongs to no request: opened after the handshake, and again whenever it ends; and the last word of a session.

A server that has none says so (405, mostly), and that is that. Between two such streams nothing is lost if the server marks its events and
keeps them; if it does not, the connection is told of a gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from .errors import HttpError, ResponseTooLarge, TransportError
from .http_stream import EventStream
from .http_visit import EVENTS, Visit, content_type
from .seam import Gap

if TYPE_CHECKING:
    import asyncio

    from .http_reader import Head
    from .http_wire import HttpWire

_NOT_FOUND: Final = 404
_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_LONGEST: Final = 30.0
_LASTING: Final = 5.0
"""Seconds that a stream has to live for its end to be no failure, if nothing came on it."""
_DOUBLINGS: Final = 5


class Listening(Visit):
    """One wire's, for as long as the wire lives."""

    __slots__ = ("_begun", "_failures", "_heard_at", "_news", "_retry", "_since", "_stream")

    method: ClassVar[str] = "GET"

    def __init__(self, wire: HttpWire) -> None:
        """Not open yet."""
        super().__init__(wire)
        self._stream: EventStream | None = None
        self._begun = False  # whether there ever was one
        self._retry: float | None = None
        self._failures = 0
        self._heard_at = 0.0
        self._since = 0.0
        self._news = False

    def extra(self) -> tuple[tuple[str, str], ...]:
        """Where to go on, if that is known."""
        return () if self._stream is None else self._stream.where()

    def accepted(self, head: Head) -> None:
        """Whatever is no stream is as good as none."""
        if content_type(head) != EVENTS:
            self._close()
            return
        self.wire.in_doubt = False
        mark = "" if self._stream is None else self._stream.mark
        self._stream = EventStream(self.wire.event_limits, mark)
        self._since = self.wire.now()
        self._news = False
        again, self._begun = self._begun, True
        if again and not mark:
            self.wire.heard((Gap("the stream was cut, and the server does not mark where"),))
        if self.wire.settings.silence is not None:
            self._heard_at = self.wire.now()
            self.alarm(self.wire.settings.silence)

    def take(self, data: bytes) -> None:
        """More of it."""
        assert self._stream is not None
        self._heard_at = self.wire.now()
        try:
            heard = self._stream.feed(data)
        except ResponseTooLarge as error:
            self._fail(error)
            return
        if heard:
            self._news = True
            self.wire.heard(heard)
        self.breathe(behind=self._stream.behind)

    def over(self) -> None:
        """The server has ended it, as servers do; some at once, each time."""
        lasting = self._news or self.wire.now() - self._since > _LASTING
        self._doubt(new=lasting)
        self._failures = 0 if lasting else self._failures + 1
        self._later()

    def rejected(self, error: HttpError, body: bytes, head: Head) -> None:  # noqa: ARG002 - the status says enough
        """There is none, or not just now."""
        if error.status == _NOT_FOUND and self._begun and self.wire.session:
            self._close()
            self.wire.session_gone(None, error, unseen=False)
        elif error.status in _LATER and (self._begun or self._failures < self.wire.settings.resumes):
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
        self.alarm(None)
        if self._stream is not None and self._stream.retry is not None:
            self._retry = self._stream.retry
        self._tried = frozenset()
        seconds = self.wire.patience(self._retry)
        if self._failures > 1:
            seconds = max(seconds, min(seconds * 2 ** min(self._failures - 1, _DOUBLINGS), _LONGEST))
        self._alarm = self.wire.later(seconds, self._again)

    def _again(self) -> None:
        self._alarm = None
        self.go()

    def rang(self) -> None:
        """It may have been silent for too long."""
        if self.is_silent(self._heard_at):
            self._later()


class Farewell(Visit):
    """The session is given back. Whatever the server says to that, it is over."""

    __slots__ = ("_said",)

    method: ClassVar[str] = "DELETE"

    def __init__(self, wire: HttpWire, said: asyncio.Future[None]) -> None:
        """`said` is set when it is over."""
        super().__init__(wire)
        self._said = said

    def over(self) -> None:
        """It knows."""
        self._close()
        if not self._said.done():
            self._said.set_result(None)

    def rejected(self, error: HttpError, body: bytes, head: Head) -> None:  # noqa: ARG002 - that is its own affair
        """It does not do that."""
        self.over()

    def lost(self, error: TransportError, *, unseen: bool) -> None:  # noqa: ARG002 - as above
        """It is away."""
        self.over()
