"""HTTP/1.1 requests out of bytes: incremental, bounded, and strict where two readers could disagree. Pure.

A proxy in front that reads a message differently lets somebody hide a request in the difference. So nothing is guessed here: line
ends are CR LF, a header is one line, no space stands before its colon, a length is said once and by digits alone, never beside
`Transfer-Encoding`, and whatever is wrong ends the connection. One request is read at a time: what was sent ahead of its
answer stays where it is until `again`.

Why by hand: of a call's time under Hypercorn, a third went into its parser. Nearly all lines of a connection's requests are the same
from one to the next, so here each of those is looked at once and then remembered. Never what is one peer's or one request's own, as the
id of a session: the memory between two such that stay cannot be given back, however little they are.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

HeaderLine: TypeAlias = tuple[bytes, bytes]
_T = TypeVar("_T")

FIELDS: Final = 128
"""How many headers a request may have."""
_LONGEST_REMEMBERED: Final = 256
_MOST_REMEMBERED: Final = 1024
_ALIKE: Final = frozenset(
    (
        *(b"host", b"connection", b"user-agent", b"accept", b"accept-encoding", b"accept-language", b"content-type"),
        *(
            b"origin",
            b"cache-control",
            b"mcp-protocol-version",
            b"sec-fetch-mode",
            b"sec-fetch-site",
            b"sec-fetch-dest",
        ),
    )
)
"""Headers that many peers send in the same words; all others are looked at anew each time, for a third of a microsecond."""
_LENGTH_DIGITS: Final = 18
_CHUNK_LINE: Final = 1024
"""How many bytes the line before a chunk may have; nobody says more there than a size."""
_CRLF: Final = b"\r\n"
_HEAD_END: Final = b"\r\n\r\n"
_PRINTABLE: Final = 0x21

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_FIRST: Final = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/([0-9]\.[0-9])")
_FIELD: Final = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\x21-\x7e\x80-\xff]+(?:[ \t]+[\x21-\x7e\x80-\xff]+)*)?[ \t]*")
_BARE: Final = re.compile(rb"(?<!\r)\n")
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")


class Malformed(Exception):
    """This is no request, or none that can be trusted. `status` is what to refuse it with; nothing after it can be read."""

    def __init__(self, status: int, why: str) -> None:
        """`why` is for whoever debugs: the peer gets the status."""
        super().__init__(why)
        self.status = status


class Head:
    """The first line and the headers of a request, and what follows from them."""

    __slots__ = ("chunked", "expects", "headers", "length", "method", "persistent", "target", "version", "websocket")

    def __init__(self, method: str, target: bytes, version: str, headers: list[HeaderLine]) -> None:
        """Raises `Malformed` for headers that contradict each other, or that HTTP asks for and are missing."""
        self.method = method
        self.target = target
        self.version = version
        self.headers = headers
        self.chunked = False
        self.length = 0
        self.persistent = version == "1.1"
        self.expects = False
        """Whether the peer waits to be told that its body is wanted."""
        self.websocket = False
        self._look()

    def _look(self) -> None:
        hosts = lengths = codings = 0
        for name, value in self.headers:
            if name == b"host":
                hosts += 1
            elif name == b"content-length":
                lengths += 1
                if not value.isdigit() or len(value) > _LENGTH_DIGITS:
                    raise Malformed(400, "content-length is no number")
                self.length = int(value)
            elif name == b"transfer-encoding":
                codings += 1
                self.chunked = value.lower() == b"chunked"
                if not self.chunked:
                    raise Malformed(501, "no transfer-encoding but chunked is known")
            elif name == b"connection":
                if b"close" in _words(value):
                    self.persistent = False
            elif name == b"expect":
                self.expects = value.lower() == b"100-continue" and self.version == "1.1"
            elif name == b"upgrade":
                self.websocket = self.method == "GET" and value.lower() == b"websocket"
        if hosts > 1 or (not hosts and self.version == "1.1"):
            raise Malformed(400, "a request has one host")
        if lengths > 1 or codings > 1 or (lengths and codings):
            raise Malformed(400, "the end of the body is said twice")  # and by somebody else maybe read from the other
        if codings and self.version != "1.1":
            raise Malformed(400, "HTTP/1.0 has no transfer-encoding")


class State(Enum):
    """Where a reader stands, where that is no piece of a body."""

    HUNGRY = auto()
    """It needs more bytes."""
    END = auto()
    """The request is complete; given once, then `HUNGRY` until `again`."""


class Requests:
    """The reader of one connection: `feed` it, and take what `next` gives until it is hungry."""

    __slots__ = ("_at", "_buffer", "_chunked", "_left", "_max_head", "_next", "_seen", "_trailers", "complete")

    def __init__(self, max_head: int) -> None:
        """`max_head` bounds the first line and the headers, all together, and the trailers."""
        self._max_head = max_head
        self._buffer = b""
        self._at = 0  # what is before has been taken
        self._seen = 0  # and before this is no end of a head
        self._left = 0  # of a body, or a chunk
        self._trailers = 0
        self._chunked = False
        self.complete = False
        """Whether the request has been read to its end."""
        self._next: Callable[[], Head | bytes | State] = self._head

    @property
    def ahead(self) -> int:
        """How many bytes are here that nobody has taken yet."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> None:
        """More has come."""
        if self.ahead:
            self._buffer = self._buffer[self._at :] + data
            self._seen -= self._at
        else:
            self._buffer = data
            self._seen = 0
        self._at = 0

    def next(self) -> Head | bytes | State:
        """The head of a request, a piece of its body, or how it stands. Raises `Malformed`."""
        return self._next()

    def again(self) -> None:
        """The request has been answered: the next one, please."""
        self.complete = False
        self._seen = self._at
        self._next = self._head

    # --- what comes next, one after the other

    def _head(self) -> Head | State:
        buffer, at = self._buffer, self._at
        end = buffer.find(_HEAD_END, max(at, self._seen - 3))
        if end < 0 or end - at > self._max_head:
            self._look_ahead(buffer, end)
            self._seen = len(buffer)
            return State.HUNGRY
        self._at = end + 4
        first, *lines = buffer[at:end].split(_CRLF)
        if len(lines) > FIELDS:
            raise Malformed(431, "too many headers")
        method, target, version = _first(first)
        head = Head(method, target, version, [_field(line) for line in lines])
        if head.chunked:
            self._chunked = True
            self._trailers = 0
            self._next = self._size
        elif head.length:
            self._chunked = False
            self._left = head.length
            self._next = self._body
        else:
            self._next = self._end
        return head

    def _look_ahead(self, buffer: bytes, end: int) -> None:
        """Refuse early what can become no request any more."""
        if end >= 0 or len(buffer) - self._at > self._max_head:
            raise Malformed(431, "the headers are too long")
        if self.ahead and buffer[self._at] < _PRINTABLE:
            raise Malformed(400, "no request begins like this")
        if _BARE.search(buffer, max(self._at, self._seen)):
            raise Malformed(400, "lines end with CR LF")

    def _body(self) -> bytes | State:
        buffer, at = self._buffer, self._at
        here = len(buffer) - at
        if not here:
            return State.HUNGRY
        if here < self._left:
            self._left -= here
            self._at = len(buffer)
        else:
            self._at = at + self._left
            self._next = self._after if self._chunked else self._end
        return buffer[at : self._at]

    def _size(self) -> bytes | State:
        line = self._line(_CHUNK_LINE, 400)
        if line is None:
            return State.HUNGRY
        found = _SIZE.fullmatch(line)
        if found is None:
            raise Malformed(400, "no chunk begins like this")
        self._left = int(found[1], 16)
        self._next = self._body if self._left else self._trailer
        return b""

    def _after(self) -> bytes | State:
        two = self._buffer[self._at : self._at + 2]
        if two == _CRLF:
            self._at += 2
            self._next = self._size
            return b""
        if _CRLF.startswith(two):
            return State.HUNGRY
        raise Malformed(400, "a chunk is longer than it says")

    def _trailer(self) -> bytes | State:
        """Headers behind the body: they have to be right, and nobody reads them."""
        line = self._line(self._max_head - self._trailers, 431)
        if line is None:
            return State.HUNGRY
        if line:
            self._trailers += len(line) + 2
            _read_field(line)
        else:
            self._next = self._end
        return b""

    def _line(self, limit: int, status: int) -> bytes | None:
        buffer, at = self._buffer, self._at
        end = buffer.find(_CRLF, at, at + max(limit, 0) + 2)
        if end >= 0:
            self._at = end + 2
            return buffer[at:end]
        if self.ahead > limit + 1:
            raise Malformed(status, "a line is too long")
        if buffer.find(b"\n", at) >= 0:
            raise Malformed(400, "lines end with CR LF")
        return None

    def _end(self) -> State:
        self.complete = True
        self._next = self._wait
        return State.END

    def _wait(self) -> State:
        return State.HUNGRY


@lru_cache(maxsize=64)
def _words(value: bytes) -> frozenset[bytes]:
    return frozenset(word.strip() for word in value.lower().split(b","))


_firsts: dict[bytes, tuple[str, bytes, str]] = {}
_fields: dict[bytes, HeaderLine] = {}


def _first(line: bytes) -> tuple[str, bytes, str]:
    known = _firsts.get(line)
    if known is not None:
        return known
    found = _FIRST.fullmatch(line)
    if found is None:
        raise Malformed(400, "this is no request line")
    version = found[3].decode("ascii")
    if version not in ("1.1", "1.0"):
        raise Malformed(505, "only HTTP/1.1 and 1.0 are spoken here")
    read = found[1].decode("ascii"), found[2], version
    if b"?" not in line:  # where the old transport has a session's id
        _remember(_firsts, line, read)
    return read


def _field(line: bytes) -> HeaderLine:
    known = _fields.get(line)
    if known is not None:
        return known
    read = _read_field(line)
    if read[0] in _ALIKE:
        _remember(_fields, line, read)
    return read


def _remember(known: dict[bytes, _T], line: bytes, read: _T) -> None:
    if len(line) <= _LONGEST_REMEMBERED:
        if len(known) >= _MOST_REMEMBERED:  # somebody makes them up
            known.clear()
        known[line] = read


def _read_field(line: bytes) -> HeaderLine:
    found = _FIELD.fullmatch(line)
    if found is None:
        raise Malformed(400, "this is no header")
    return found[1].lower(), found[2] or b""
