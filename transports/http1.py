"""HTTP/1.1 requests out of bytes: incremental, bounded, linear, and strict where two readers could disagree. Pure.

A proxy in front that reads a message differently lets a peer hide a request in the difference. So nothing is guessed here: line
ends are CR LF, a header is one line, no space stands before its colon, a length is said once and by digits alone, never beside
`Transfer-Encoding`, and whatever is wrong ends the connection. One request is read at a time: what was sent ahead of its
answer stays where it is until `again`.

The reading is linear in what a peer sends: each repetition in the expressions is possessive (`++`, `*+`), so none is ever tried a
second time with less, and each byte of a head is looked at by a fixed number of them. A request that repeats the head before it on
its connection, up to the digits of its length, is not read again. `docs/decisions/http-heads.md` says why this is written by hand.
"""

from __future__ import annotations

import re
import time
from enum import Enum, auto
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from .http_exchange import fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HeaderLine: TypeAlias = tuple[bytes, bytes]

FIELDS: Final = 128
"""How many headers a request may have."""
_LONGEST_REPEATED: Final = 4096
"""How many bytes a head may have to be kept for comparison with the next one: a connection must not hold much while it is idle."""
_LENGTH_DIGITS: Final = 18
_CHUNK_LINE: Final = 1024
"""How many bytes the line before a chunk may have: a size, and extensions that are ignored."""
_CRLF: Final = b"\r\n"
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\ncontent-length:"
_PRINTABLE: Final = 0x21

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_FIRST: Final = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]++) HTTP/([0-9]\.[0-9])")
_FIELD: Final = re.compile(rb"(?m)^(" + _TOKEN + rb"):[ \t]*+([\t\x20-\x7e\x80-\xff]*+)\r\n")
_BARE: Final = re.compile(rb"(?<!\r)\n")
_CLOSE: Final = re.compile(rb"(?i)(?:^|,)[ \t]*+close[ \t]*+(?:,|$)")
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15}+)[ \t]*+(?:;[\t\x20-\x7e\x80-\xff]*+)?+")


class Malformed(Exception):
    """This is no request, or none that can be trusted. `status` is what to refuse it with; nothing after it can be read."""

    def __init__(self, status: int, why: str) -> None:
        """`why` is for debugging: the peer gets the status."""
        super().__init__(why)
        self.status = status


class Head:
    """The first line and the headers of a request, and what follows from them."""

    __slots__ = (
        "before",
        "chunked",
        "expects",
        "fields",
        "headers",
        "length",
        "method",
        "persistent",
        "target",
        "version",
        "websocket",
    )

    def __init__(self, method: str, target: bytes, version: str, headers: list[HeaderLine]) -> None:
        """Raises `Malformed` for headers that contradict each other, or that HTTP asks for and are missing."""
        self.before: Head | None = None
        self.fields: dict[str, str] | None = None
        self.method = method
        self.target = target
        self.version = version
        self.headers = headers
        said = dict(headers)
        if len(said) != len(headers):
            said = _joined(headers)
        length, coding = said.get(b"content-length"), said.get(b"transfer-encoding")
        if coding is not None:
            if coding.lower() != b"chunked":
                raise Malformed(501, "no transfer-encoding but chunked is known")
            if length is not None or version != "1.1":
                raise Malformed(400, "the end of the body is said in a way that can be misread")
        if b"host" not in said and version == "1.1":
            raise Malformed(400, "a request has one host")
        self.chunked = coding is not None
        self.length = 0 if length is None else _number(length)
        # A proxy takes what follows CONNECT for a tunnel, and not for a body or the next request.
        self.persistent = (
            version == "1.1" and method != "CONNECT" and _CLOSE.search(said.get(b"connection", b"")) is None
        )
        self.expects = version == "1.1" and said.get(b"expect", b"").lower() == b"100-continue"
        """Whether the peer waits to be told that its body is wanted."""
        self.websocket = method == "GET" and said.get(b"upgrade", b"").lower() == b"websocket"

    def repeated(self, length: int, headers: list[HeaderLine]) -> Head:
        """The same head once more, with another length."""
        head = Head.__new__(Head)
        head.before, head.fields = self, None
        head.method, head.target, head.version, head.headers = self.method, self.target, self.version, headers
        head.chunked, head.length, head.persistent = self.chunked, length, self.persistent
        head.expects, head.websocket = self.expects, self.websocket
        return head

    def folded(self) -> dict[str, str]:
        """The headers by lower-cased name, as text. Raises `Twice`. Where a head is repeated, only its length is read again."""
        before = self.before
        if before is None:
            return fold(self.headers)
        if before.fields is None:
            before.fields = fold(before.headers)
        folded = before.fields.copy()
        if "content-length" in folded:
            folded["content-length"] = str(self.length)
        return folded


def _number(value: bytes) -> int:
    if not value.isdigit() or len(value) > _LENGTH_DIGITS:
        raise Malformed(400, "content-length is no number")
    return int(value)


def _joined(headers: list[HeaderLine]) -> dict[bytes, bytes]:
    """The headers by name, where some come more than once."""
    said: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        said.setdefault(name, []).append(value)
    for name in (b"host", b"content-length", b"transfer-encoding"):
        if len(said.get(name, ())) > 1:
            raise Malformed(400, f"{name.decode()} came twice")  # another reader may take the other one
    return {name: b", ".join(values) for name, values in said.items()}


class State(Enum):
    """Where a reader stands, where that is no piece of a body."""

    HUNGRY = auto()
    """It needs more bytes."""
    END = auto()
    """The request is complete; given once, then `HUNGRY` until `again`."""


class _Before(NamedTuple):
    """A head that was read, as no application has it, and its bytes around the digits of its length; without one, `start` is all of them."""

    head: Head
    start: bytes
    end: bytes = b""
    place: int = 0
    """Which of the headers is the length."""


class Requests:
    """The reader of one connection: `feed` it, and take what `next` gives until it is hungry.

    Each `next` is one step, and costs no more than a constant and what it takes out of the buffer. A body in small pieces takes many:
    a caller that shares its thread counts them.
    """

    __slots__ = (
        "_at",
        "_before",
        "_buffer",
        "_chunked",
        "_left",
        "_max_head",
        "_next",
        "_seen",
        "_trailers",
        "complete",
    )

    def __init__(self, max_head: int) -> None:
        """`max_head` bounds the first line and the headers, all together, and the trailers."""
        self._max_head = max_head
        self._buffer = b""
        self._at = 0  # what is before has been taken
        self._seen = 0  # and before this is no end of a head
        self._left = 0  # of a body, or a chunk
        self._trailers = 0
        self._chunked = False
        self._before: _Before | None = None
        self.complete = False
        """Whether the request has been read to its end."""
        self._next: Callable[[], Head | bytes | State] = self._head

    @property
    def ahead(self) -> int:
        """How many bytes are here that were not taken yet."""
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
        """The request has been answered: read the next one."""
        self.complete = False
        self._seen = self._at
        self._next = self._head

    # --- what comes next, one after the other

    def _head(self) -> Head | State:
        head = self._repeated() or self._read()
        if head is None:
            return State.HUNGRY
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

    def _repeated(self) -> Head | None:
        """The head before this one again, if only the digits of the length may differ."""
        before, buffer, at = self._before, self._buffer, self._at
        if before is None or not buffer.startswith(before.start, at):
            return None
        stop = at + len(before.start)
        headers = before.head.headers.copy()
        length = 0
        if before.end:
            first, stop = stop, buffer.find(b"\r", stop, stop + _LENGTH_DIGITS + 1)
            digits = buffer[first:stop]
            if stop < 0 or not digits.isdigit() or not buffer.startswith(before.end, stop):
                return None
            headers[before.place] = (b"content-length", digits)
            length = int(digits)
        self._at = stop + len(before.end)
        return before.head.repeated(length, headers)

    def _read(self) -> Head | None:
        buffer, at = self._buffer, self._at
        end = buffer.find(_HEAD_END, max(at, self._seen - 3))
        if end < 0 or end - at > self._max_head:
            self._look_ahead(buffer, end)
            self._seen = len(buffer)
            return None
        self._at = end + 4
        block = buffer[at : self._at]
        first = block.index(_CRLF) + 2
        head = Head(*_first(block[: first - 2]), read_fields(block[first:-2]))
        if len(block) + _LENGTH_DIGITS <= min(_LONGEST_REPEATED, self._max_head):
            self._before = _remembered(head, block)
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
        """Headers behind the body: they have to be right, and are not handed on."""
        line = self._line(self._max_head - self._trailers, 431)
        if line is None:
            return State.HUNGRY
        if line:
            self._trailers += len(line) + 2
            read_fields(line + _CRLF)
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


def _remembered(head: Head, block: bytes) -> _Before | None:
    kept = head.repeated(head.length, head.headers.copy())  # an application may change what it is given
    kept.before = None
    digits = b"%d" % head.length
    said = block.lower().find(_LENGTH)
    if said < 0:
        return _Before(kept, block)
    if (b"content-length", digits) not in kept.headers:
        return None  # it has zeros in front
    start = block.index(digits, said)
    return _Before(kept, block[:start], block[start + len(digits) :], kept.headers.index((b"content-length", digits)))


def _first(line: bytes) -> tuple[str, bytes, str]:
    found = _FIRST.fullmatch(line)
    if found is None:
        raise Malformed(400, "this is no request line")
    version = found[3].decode("ascii")
    if version not in ("1.1", "1.0"):
        raise Malformed(505, "only HTTP/1.1 and 1.0 are spoken here")
    return found[1].decode("ascii"), found[2], version


def read_fields(lines: bytes, *, many: int = 431, wrong: int = 400) -> list[HeaderLine]:
    """The headers in lines that each end with CR LF, names in lower case.

    Raises `Malformed` with the status `many` for too many of them, and `wrong` for a line that is no header.
    """
    count = lines.count(b"\n")
    if count > FIELDS:
        raise Malformed(many, "too many headers")
    found = _FIELD.findall(lines)
    # A match begins behind a line's end and has none inside: with as many matches as there are line ends, nothing stands between two.
    if len(found) != count:
        raise Malformed(wrong, "this is no header")
    return [(name.lower(), value.rstrip(b" \t")) for name, value in found]


# --- The head of an HTTP/1.1 answer, and how its body is told from what follows. Pure.
# No header gets out that could be read as two: names are tokens, values have no line breaks, and how long a body is is said here alone.

_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_LONGEST_REMEMBERED: Final = 256
_CHANGING: Final = frozenset({b"content-length", b"mcp-session-id"})
"""Headers that say something else each time: what is remembered of them would keep the memory around it from being given back."""
_BODILESS: Final = frozenset({204, 304})
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
CLOSE: Final = b"connection: close\r\n"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\nretry-after: 1\r\n\r\n"


class Framing(Enum):
    """What ends a body."""

    LENGTH = auto()
    """Its length, which the head says."""
    CHUNKS = auto()
    """An empty chunk."""
    CLOSE = auto()
    """The connection's end: HTTP/1.0 knows no better."""
    NONE = auto()
    """There is none, whatever the head says of it."""


class Shape(NamedTuple):
    """A head as bytes, and what goes after it."""

    head: bytes
    framing: Framing
    length: int
    closing: bool


def head(
    status: int, headers: Iterable[tuple[bytes, bytes]], *, method: str, version: str, persistent: bool, now: float
) -> Shape:
    """The head of an answer. Raises `ValueError` for headers that must not be sent."""
    lines = [_status(status), *_date(int(now))]
    length: int | None = None
    for name, value in headers:
        line = _line(name, value) if name in _CHANGING or len(value) > _LONGEST_REMEMBERED else _known(name, value)
        if line.startswith(b"content-length:"):
            if length is not None or not value.isdigit():
                raise ValueError(f"a content-length is one number, not {value!r}")
            length = int(value)
        elif line.startswith(b"transfer-encoding:"):
            continue
        elif line.startswith(b"connection:"):
            if b"close" in value.lower():
                persistent = False
            continue
        lines.append(line)
    if method == "HEAD" or status in _BODILESS:
        framing = Framing.NONE
    elif length is not None:
        framing = Framing.LENGTH
    elif version == "1.1":
        framing = Framing.CHUNKS
        lines.append(b"transfer-encoding: chunked\r\n")
    else:
        framing = Framing.CLOSE
        persistent = False
    lines.append(b"\r\n" if persistent else CLOSE + b"\r\n")
    return Shape(b"".join(lines), framing, length or 0, not persistent)


def answer(status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes, now: float) -> bytes:
    """A whole answer to a POST on a connection that goes on. `headers` say nothing of the connection, or of the body's length."""
    lines = [_status(status), *_date(int(now))]
    lines += [
        _line(name, value) if name in _CHANGING or len(value) > _LONGEST_REMEMBERED else _known(name, value)
        for name, value in headers
    ]
    lines += (b"content-length: %d\r\n\r\n" % len(body), body)
    return b"".join(lines)


def refusal(status: int, now: float) -> bytes:
    """The whole answer to what is no request; it is the last on its connection."""
    return b"".join((_status(status), *_date(int(now)), b"content-length: 0\r\n", CLOSE, b"\r\n"))


@lru_cache(maxsize=128)
def _status(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    if not 200 <= status <= 999:  # noqa: PLR2004 - the others come before the answer
        raise ValueError(f"no answer has the status {status}")
    return b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode("ascii"))


@lru_cache(maxsize=2)
def _date(second: int) -> tuple[bytes]:
    year, month, day, hour, minute, at, weekday, *_ = time.gmtime(second)
    text = f"{_DAYS[weekday]}, {day:02} {_MONTHS[month - 1]} {year:04} {hour:02}:{minute:02}:{at:02} GMT"
    return (b"date: %b\r\n" % text.encode("ascii"),)


def wall() -> float:
    """What the clock on the wall says: dates are about that one."""
    return time.time()


def _line(name: bytes, value: bytes) -> bytes:
    name, value = bytes(name).strip().lower(), bytes(value).strip()
    if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
        raise ValueError(f"no header can be made of {name!r}: {value!r}")
    return b"%b: %b\r\n" % (name, value)


_known = lru_cache(maxsize=256)(_line)
