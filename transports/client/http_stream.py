"""An event stream of a server's, read into what the connection is told. No sockets in here.

What stands in `event` says nothing: every event with data is one message. One without data only moves the mark to come back to.
"""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING, Final

from greenroom.protocol.errors import RemoteProtocolError
from greenroom.protocol.lines import Overlong
from greenroom.protocol.messages import Request, parse
from greenroom.protocol.salvage import too_long
from greenroom.protocol.sse import Parser

from .errors import ResponseTooLarge
from .seam import TURN, Broken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.protocol.json import Limits
    from greenroom.protocol.messages import Message, RequestId
    from greenroom.protocol.sse import Event

_SAMPLE: Final = 120
_PATIENCE: Final = 2
_LONGEST_MARK: Final = 1024
_REQUESTS: Final = 8
"""So many requests of the server's are taken in one turn: each is answered with a POST, on a connection that may have to be made."""


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

    __slots__ = ("_asked", "_behind", "_limits", "_parser", "_since", "oversized")

    def __init__(self, limits: Limits, mark: str = "") -> None:
        """`mark` is where a stream goes on that was cut."""
        self._limits = limits
        self._parser = Parser(limits.size)
        self._since = 0
        self._asked = 0  # so many requests of the server's in this turn
        self._behind: deque[Event | Overlong] = deque()
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

    def message(self, event: Event) -> Message | Broken:
        """What an event of this turn says."""
        message = read(event.data, self._limits)
        self._asked += type(message) is Request
        return message

    def _parse(self, data: bytes) -> list[Event | Overlong]:
        found = self._parser.feed(data)
        self._since = 0 if found else self._since + len(data)
        if self._since > _PATIENCE * self._limits.size and self._parser.held == 0:
            raise ResponseTooLarge(self._since, self._limits.size, "an event")
        return found

    def feed(self, data: bytes) -> list[Message | Broken]:
        """The messages in those events. Raises as `events` does."""
        heard: list[Message | Broken] = []
        for event in self.events(data):
            if isinstance(event, Overlong):
                error = too_long(event, self._limits.size)
                if error.answers is None:
                    self.oversized = ResponseTooLarge(event.length, self._limits.size, "an event")
                heard.append(Broken(error, sample(event.head)))
            elif event.data:
                heard.append(self.message(event))
        return heard
