"""An event stream of a server's, read into what the connection is told. No sockets in here.

What stands in `event` says nothing: every event with data is one message. One without data only moves the mark to come back to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.protocol.errors import RemoteProtocolError
from greenroom.protocol.lines import Overlong
from greenroom.protocol.messages import parse
from greenroom.protocol.salvage import too_long
from greenroom.protocol.sse import Parser

from .errors import ResponseTooLarge
from .seam import Broken

if TYPE_CHECKING:
    from greenroom.protocol.json import Limits
    from greenroom.protocol.messages import Message, RequestId
    from greenroom.protocol.sse import Event

_SAMPLE: Final = 120
_PATIENCE: Final = 2
_LONGEST_MARK: Final = 1024


def sample(data: bytes) -> str:
    """The beginning of what came, as one line that a report can show."""
    text = data[: 4 * _SAMPLE].decode(errors="replace")
    return "".join(each if each.isprintable() else " " for each in text)[:_SAMPLE].strip()


def read(data: bytes, limits: Limits, asked: RequestId | None = None) -> Message | Broken:
    """The message in it. `asked` is the one request that what is broken can have been meant for, if there is one."""
    try:
        return parse(data, limits)
    except RemoteProtocolError as error:
        if error.answers is None:
            error.answers = asked
        return Broken(error, sample(data))


class EventStream:
    """One stream, from its beginning to its end."""

    __slots__ = ("_limits", "_parser", "_since", "oversized")

    def __init__(self, limits: Limits, mark: str = "") -> None:
        """`mark` is where a stream goes on that was cut."""
        self._limits = limits
        self._parser = Parser(limits.size)
        self._since = 0
        if mark:
            self._parser.feed(b"id: %b\n\n" % mark.encode())
        self.oversized: ResponseTooLarge | None = None
        """That an event was dropped, and nobody can say whose."""

    @property
    def mark(self) -> str:
        """Where to go on when it is cut; empty when the server has not said."""
        mark = self._parser.last_event_id
        return mark if mark.isprintable() and len(mark) <= _LONGEST_MARK else ""

    def where(self) -> tuple[tuple[str, str], ...]:
        """The header that says so: UTF-8, as headers carry it."""
        return (("last-event-id", self.mark.encode().decode("latin-1")),) if self.mark else ()

    @property
    def retry(self) -> float | None:
        """After how many seconds, if the server has said so."""
        retry = self._parser.retry
        return None if retry is None else retry / 1000

    def events(self, data: bytes) -> list[Event | Overlong]:
        """The events that are complete now. Raises `ResponseTooLarge` for one that goes on and on."""
        found = self._parser.feed(data)
        self._since = 0 if found else self._since + len(data)
        if self._since > _PATIENCE * self._limits.size and self._parser.held == 0:
            raise ResponseTooLarge(self._since, self._limits.size, "an event")
        return found

    def feed(self, data: bytes) -> list[Message | Broken]:
        """The messages that are complete now. Raises as `events` does."""
        heard: list[Message | Broken] = []
        for event in self.events(data):
            if isinstance(event, Overlong):
                error = too_long(event, self._limits.size)
                if error.answers is None:
                    self.oversized = ResponseTooLarge(event.length, self._limits.size, "an event")
                heard.append(Broken(error, sample(event.head)))
            elif event.data:
                heard.append(read(event.data, self._limits))
        return heard
