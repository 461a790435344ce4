"""HTTP as it was before (2024-11-05): one stream carries everything from the server, and says in its first event where to post to.

The session is the stream: when that ends, it is over. The place to post to is taken from within the same origin only, or a server could have us
tell somebody else what we say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from greenroom.protocol.lines import Overlong
from greenroom.protocol.salvage import too_long

from .errors import ConnectionLost, HttpError, NotMcp, ResponseTooLarge, SilentTooLong, TransportError
from .http_refusal import instance_of
from .http_stream import EventStream, sample
from .http_visit import EVENTS, Visit, content_type
from .seam import Broken

if TYPE_CHECKING:
    from .http_address import Address
    from .http_reader import Head
    from .http_wire import HttpWire
    from .seam import Heard

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
