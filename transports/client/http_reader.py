"""HTTP/1.1 answers out of bytes: incremental, bounded, and as strict as the reader of requests, whose bodies it reads in the same way. Pure.

Nothing is guessed here either: who frames an answer in two ways at once, or in a way that nobody knows, may be hiding a second
one in it, which the next request on this connection would be given. Informational answers are passed over. An answer that only the
connection's end ends is read to that end, which `eof` tells.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from greenroom.protocol.errors import RemoteProtocolError
from greenroom.protocol.messages import Request, parse, too_long
from greenroom.protocol.sse import Overlong, Parser
from greenroom.transports.http1 import HeaderLine, Malformed, Requests, State, read_fields

from .errors import ResponseTooLarge
from .seam import TURN, Broken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.protocol.json import Limits
    from greenroom.protocol.messages import Message, RequestId
    from greenroom.protocol.sse import Event

    from .errors import TransportError
    from .http_address import Address

INTERIM: Final = 16
"""How many informational answers may come before the real one."""
_STATUS: Final = re.compile(rb"HTTP/(1\.[01]) ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*+)?+")
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH_DIGITS: Final = 18
_SWITCHING: Final = 101
_FIRST_REAL: Final = 200
_BODILESS: Final = frozenset({204, 304})


class Head:
    """The status and the headers of an answer, and what follows from them. Of a header that came twice, the last is kept."""

    __slots__ = ("chunked", "headers", "length", "persistent", "status")

    def __init__(self, status: int, version: bytes, lines: list[HeaderLine]) -> None:
        """Raises `Malformed` for headers that contradict each other."""
        self.status = status
        self.headers = headers = dict(lines)
        self.chunked = False
        self.length: int | None = None
        self.persistent = version == b"1.1"
        connection = headers.get(b"connection")
        if connection is not None:
            words = connection.lower()
            self.persistent = b"close" not in words and (self.persistent or b"keep-alive" in words)
        length, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
        if len(headers) != len(lines):
            _check_twice(lines)
        if coding is not None:
            if length is not None or version != b"1.1" or coding.lower() != b"chunked":
                raise Malformed(502, "the end of the answer is told in a way that can be misread")
            self.chunked = True
        elif length is not None:
            if not length.isdigit() or len(length) > _LENGTH_DIGITS:
                raise Malformed(502, "content-length is no number")
            self.length = int(length)

    def get(self, name: bytes) -> str:
        """A header's value as text; empty when it is missing."""
        return self.headers.get(name, b"").decode("latin-1")


class Answers(Requests):
    """The reader of one connection: `feed` it, and take what `next` gives until it is hungry; `again` for the next answer."""

    __slots__ = ("_bodiless", "_interim", "_open_ended")

    def __init__(self, max_head: int, *, bodiless: bool = False) -> None:
        """`bodiless` for answers to HEAD."""
        super().__init__(max_head)
        self._bodiless = bodiless
        self._interim = 0
        self._open_ended = False

    def next(self) -> Head | bytes | State:  # type: ignore[override]  # another head, and otherwise the same
        """The head of an answer, a piece of its body, or how it stands. Raises `Malformed`."""
        return self._next()  # type: ignore[return-value]

    def again(self) -> None:
        """The answer has been read: the next one, please."""
        super().again()
        self._interim = 0
        self._open_ended = False

    def eof(self) -> bool:
        """The connection has ended: whether that was the end of an answer, rather than the middle of one."""
        return self._open_ended

    def _head(self) -> Head | State:  # type: ignore[override]  # as above
        while True:
            buffer, at = self._buffer, self._at
            end = buffer.find(_HEAD_END, max(at, self._seen - 3))
            if end < 0 or end - at > self._max_head:
                self._look_ahead(buffer, end)
                self._seen = len(buffer)
                return State.HUNGRY
            self._at = self._seen = end + 4
            first = buffer.index(b"\r\n", at) + 2
            status, version = _first(buffer[at : first - 2])
            if status >= _FIRST_REAL:
                return self._begin(Head(status, version, read_fields(buffer[first : end + 2], many=502, wrong=502)))
            self._interim += 1
            if status == _SWITCHING or self._interim > INTERIM:
                raise Malformed(502, "it wants to speak something else, or never to come to the point")

    def _begin(self, head: Head) -> Head:
        if self._bodiless or head.status in _BODILESS or head.length == 0:
            self._next = self._end
        elif head.chunked:
            self._chunked = True
            self._trailers = 0
            self._next = self._size
        elif head.length is not None:
            self._chunked = False
            self._left = head.length
            self._next = self._body
        else:
            head.persistent = False
            self._open_ended = True
            self._next = self._rest
        return head

    def _rest(self) -> bytes | State:
        piece = self._buffer[self._at :]
        self._at = len(self._buffer)
        return piece or State.HUNGRY


def _first(line: bytes) -> tuple[int, bytes]:
    found = _STATUS.fullmatch(line)
    if found is None:
        raise Malformed(502, "this is no answer of HTTP/1.1")
    return int(found[2]), found[1]


def _check_twice(lines: list[HeaderLine]) -> None:
    names = [name for name, _ in lines]
    for name in (b"content-length", b"transfer-encoding", b"content-type", b"mcp-session-id"):
        if names.count(name) > 1:
            raise Malformed(502, f"{name.decode()} came twice")


# --- The seam between a wire and what carries its HTTP: one request out, and one answer back, piece by piece.
# There are two that carry. `Pool` is ours, straight on the event loop's transports. `ThroughHttpx` is for what users bring: a client or a
# transport of httpx, or a proxy. Everything here happens in the loop's thread, and nothing blocks.

Headers: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be carried. `headers` say nothing of how long the body is, which is the carrier's to know."""

    method: str
    address: Address
    headers: Headers
    body: bytes = b""
    urgent: bool = False
    """It does not wait for others to be done: somebody there may be waiting for it before they can be."""


class Asker(Protocol):
    """Who gets the answer: one `head`, any number of `body`, and one `end`; or, at any point of that, `failed` and nothing after it."""

    def head(self, head: Head) -> None:
        """The answer begins."""

    def body(self, data: bytes) -> None:
        """More of it."""

    def end(self) -> None:
        """That was all."""

    def failed(self, error: TransportError, *, unseen: bool) -> None:
        """Nothing more will come. `unseen` says that not a byte of the request has left."""


class Errand(Protocol):
    """One order under way."""

    @property
    def left(self) -> bool:
        """Whether anything of it may have left."""
        ...

    def drop(self) -> None:
        """Nobody wants the answer: the asker hears nothing more. Nothing when it is over."""

    def pause(self) -> None:
        """Let the answer wait where it is."""

    def resume(self) -> None:
        """Go on."""


class Carrier(Protocol):
    """What carries orders."""

    def begin(self, order: Order, asker: Asker) -> Errand:
        """Take one on. Nothing is told to the asker before this has returned."""
        ...

    async def close(self) -> None:
        """Drop everything, and let go of the connections."""


# --- An event stream of a server's, read into what the connection is told. No sockets in here.
# What stands in `event` says nothing: every event with data is one message. One without data only moves the mark to come back to.

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
