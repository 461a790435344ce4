"""HTTP/1.1 parser for requests and encoder for response heads: incremental, bounded, linear and strict. Pure.

A proxy in front that parses a message differently lets a peer hide a request in the difference (request smuggling). So the parser guesses nothing: lines end
with CR LF, a header is one line, no space stands before its colon, the length is given once, in digits, never together with `Transfer-Encoding`, and any error
ends the connection. One request is read at a time: pipelined input stays in the buffer until `start_next`.

Parsing is linear in the size of the input: each repetition in the expressions is possessive (`++`, `*+`), so none backtracks, and each byte
of a head is examined by a fixed number of expressions. A head equal to the previous one on the connection, apart from the digits of its
length, is not parsed again. `docs/decisions/http-heads.md` says why this is written by hand.
"""

from __future__ import annotations

import re
import time
from enum import Enum, auto
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from .http_request import headers_by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HeaderLine: TypeAlias = tuple[bytes, bytes]

MAX_HEADERS: Final = 128
"""How many headers a request may have."""
_LONGEST_KEPT_HEAD: Final = 4096
"""How long a head may be to be kept for comparison with the next one: an idle connection must not hold much memory."""
_LENGTH_DIGITS: Final = 18
_CHUNK_LINE: Final = 1024
"""How many bytes the line before a chunk may have: its size, and extensions that are ignored."""
_CRLF: Final = b"\r\n"
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"\r\ncontent-length:"
_PRINTABLE: Final = 0x21

_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_REQUEST_LINE: Final = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]++) HTTP/([0-9]\.[0-9])")
_HEADER_LINE: Final = re.compile(rb"(?m)^(" + _TOKEN + rb"):[ \t]*+([\t\x20-\x7e\x80-\xff]*+)\r\n")
_BARE_LF: Final = re.compile(rb"(?<!\r)\n")
_CLOSE: Final = re.compile(rb"(?i)(?:^|,)[ \t]*+close[ \t]*+(?:,|$)")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15}+)[ \t]*+(?:;[\t\x20-\x7e\x80-\xff]*+)?+")


class Malformed(Exception):
    """The input is not a valid request. `status` is the status to refuse it with; nothing after it can be parsed."""

    def __init__(self, status: int, why: str) -> None:
        """`why` is for logs: the peer gets only the status."""
        super().__init__(why)
        self.status = status


class RequestHead:
    """The request line and headers of a request, and the framing that follows from them."""

    __slots__ = (
        "chunked",
        "expects_continue",
        "fields",
        "headers",
        "length",
        "method",
        "persistent",
        "previous",
        "target",
        "version",
        "websocket",
    )

    def __init__(self, method: str, target: bytes, version: str, headers: list[HeaderLine]) -> None:
        """Raises `Malformed` for headers that contradict each other, and for missing required ones."""
        self.previous: RequestHead | None = None
        self.fields: dict[str, str] | None = None
        self.method = method
        self.target = target
        self.version = version
        self.headers = headers
        said = dict(headers)
        if len(said) != len(headers):
            said = _by_name(headers)
        length, coding = said.get(b"content-length"), said.get(b"transfer-encoding")
        if coding is not None:
            if coding.lower() != b"chunked":
                raise Malformed(501, "the only supported transfer-encoding is chunked")
            if length is not None or version != "1.1":
                raise Malformed(400, "the body's length is given in an ambiguous way")
        if b"host" not in said and version == "1.1":
            raise Malformed(400, "exactly one Host header is required")
        self.chunked = coding is not None
        self.length = 0 if length is None else _content_length(length)
        # After CONNECT a proxy sees a tunnel, neither a body nor another request.
        self.persistent = (
            version == "1.1" and method != "CONNECT" and _CLOSE.search(said.get(b"connection", b"")) is None
        )
        self.expects_continue = version == "1.1" and said.get(b"expect", b"").lower() == b"100-continue"
        """Whether the peer waits for `100 Continue` before it sends the body."""
        self.websocket = method == "GET" and said.get(b"upgrade", b"").lower() == b"websocket"

    def with_length(self, length: int, headers: list[HeaderLine]) -> RequestHead:
        """The same head with another content length."""
        head = RequestHead.__new__(RequestHead)
        head.previous, head.fields = self, None
        head.method, head.target, head.version, head.headers = self.method, self.target, self.version, headers
        head.chunked, head.length, head.persistent = self.chunked, length, self.persistent
        head.expects_continue, head.websocket = self.expects_continue, self.websocket
        return head

    def folded(self) -> dict[str, str]:
        """The headers as text by lower-case name. Raises `DuplicateHeader`. For a repeated head only the length is converted again."""
        before = self.previous
        if before is None:
            return headers_by_name(self.headers)
        if before.fields is None:
            before.fields = headers_by_name(before.headers)
        folded = before.fields.copy()
        if "content-length" in folded:
            folded["content-length"] = str(self.length)
        return folded


def _content_length(value: bytes) -> int:
    if not value.isdigit() or len(value) > _LENGTH_DIGITS:
        raise Malformed(400, "content-length is not a number")
    return int(value)


def _by_name(headers: list[HeaderLine]) -> dict[bytes, bytes]:
    """The headers by name where some occur more than once."""
    said: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        said.setdefault(name, []).append(value)
    for name in (b"host", b"content-length", b"transfer-encoding"):
        if len(said.get(name, ())) > 1:
            raise Malformed(400, f"{name.decode()} came twice")  # another parser might use the other value
    return {name: b", ".join(values) for name, values in said.items()}


class ParserState(Enum):
    """A parser's state, where `next` has neither a head nor a piece of a body."""

    NEED_DATA = auto()
    """More input is needed."""
    MESSAGE_END = auto()
    """The request is complete; returned once, then `NEED_DATA` until `start_next`."""


class _PreviousHead(NamedTuple):
    """The head parsed last, untouched by applications, and its bytes before and after the digits of its length; without a length, `start` is all of them."""

    head: RequestHead
    start: bytes
    end: bytes = b""
    header_index: int = 0
    """The position of the content length among the headers."""


class RequestParser:
    """The request parser of one connection: `feed` it, and call `next` until it returns `NEED_DATA`.

    Each `next` is one step; its cost is constant plus the bytes it removes from the buffer. A body in tiny chunks takes many steps, so a
    caller that shares its thread has to count them.
    """

    __slots__ = (
        "_at",
        "_buffer",
        "_chunked",
        "_left",
        "_max_head",
        "_next",
        "_previous",
        "_seen",
        "_trailers",
        "complete",
    )

    def __init__(self, max_head: int) -> None:
        """`max_head` bounds the request line and headers together, and the trailers."""
        self._max_head = max_head
        self._buffer = b""
        self._at = 0  # everything before this offset was consumed
        self._seen = 0  # no end of a head lies before this offset
        self._left = 0  # bytes left of the body, or of the chunk
        self._trailers = 0
        self._chunked = False
        self._previous: _PreviousHead | None = None
        self.complete = False
        """Whether the request was read to its end."""
        self._next: Callable[[], RequestHead | bytes | ParserState] = self._head

    @property
    def buffered(self) -> int:
        """How many buffered bytes were not consumed yet."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> None:
        """Add input."""
        if self.buffered:
            self._buffer = self._buffer[self._at :] + data
            self._seen -= self._at
        else:
            self._buffer = data
            self._seen = 0
        self._at = 0

    def next(self) -> RequestHead | bytes | ParserState:
        """The head of a request, a piece of its body, or the state. Raises `Malformed`."""
        return self._next()

    def start_next(self) -> None:
        """The request was answered: parse the next one."""
        self.complete = False
        self._seen = self._at
        self._next = self._head

    # --- the steps, in the order of a message

    def _head(self) -> RequestHead | ParserState:
        head = self._read_repeated() or self._read()
        if head is None:
            return ParserState.NEED_DATA
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

    def _read_repeated(self) -> RequestHead | None:
        """Return the previous head again if the input repeats its bytes, with at most other digits of the length.

        A client's calls on one connection mostly repeat their heads byte for byte, so one comparison replaces the regular expressions.
        Parsing each head instead is measured in `docs/decisions/http-heads.md`.
        """
        before, buffer, at = self._previous, self._buffer, self._at
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
            headers[before.header_index] = (b"content-length", digits)
            length = int(digits)
        self._at = stop + len(before.end)
        return before.head.with_length(length, headers)

    def _read(self) -> RequestHead | None:
        buffer, at = self._buffer, self._at
        end = buffer.find(_HEAD_END, max(at, self._seen - 3))
        if end < 0 or end - at > self._max_head:
            self._check_incomplete(buffer, end)
            self._seen = len(buffer)
            return None
        self._at = end + 4
        block = buffer[at : self._at]
        first = block.index(_CRLF) + 2
        head = RequestHead(*_parse_request_line(block[: first - 2]), parse_headers(block[first:-2]))
        if len(block) + _LENGTH_DIGITS <= min(_LONGEST_KEPT_HEAD, self._max_head):
            self._previous = _previous_head(head, block)
        return head

    def _check_incomplete(self, buffer: bytes, end: int) -> None:
        """Refuse incomplete input that cannot become a request any more."""
        if end >= 0 or len(buffer) - self._at > self._max_head:
            raise Malformed(431, "the headers are too long")
        if self.buffered and buffer[self._at] < _PRINTABLE:
            raise Malformed(400, "a request cannot begin like this")
        if _BARE_LF.search(buffer, max(self._at, self._seen)):
            raise Malformed(400, "lines end with CR LF")

    def _body(self) -> bytes | ParserState:
        buffer, at = self._buffer, self._at
        here = len(buffer) - at
        if not here:
            return ParserState.NEED_DATA
        if here < self._left:
            self._left -= here
            self._at = len(buffer)
        else:
            self._at = at + self._left
            self._next = self._after if self._chunked else self._end
        return buffer[at : self._at]

    def _size(self) -> bytes | ParserState:
        line = self._line(_CHUNK_LINE, 400)
        if line is None:
            return ParserState.NEED_DATA
        found = _CHUNK_SIZE.fullmatch(line)
        if found is None:
            raise Malformed(400, "invalid chunk size")
        self._left = int(found[1], 16)
        self._next = self._body if self._left else self._trailer
        return b""

    def _after(self) -> bytes | ParserState:
        two = self._buffer[self._at : self._at + 2]
        if two == _CRLF:
            self._at += 2
            self._next = self._size
            return b""
        if _CRLF.startswith(two):
            return ParserState.NEED_DATA
        raise Malformed(400, "a chunk is longer than it says")

    def _trailer(self) -> bytes | ParserState:
        """Validate trailers; they are not passed on."""
        line = self._line(self._max_head - self._trailers, 431)
        if line is None:
            return ParserState.NEED_DATA
        if line:
            self._trailers += len(line) + 2
            parse_headers(line + _CRLF)
        else:
            self._next = self._end
        return b""

    def _line(self, limit: int, status: int) -> bytes | None:
        buffer, at = self._buffer, self._at
        end = buffer.find(_CRLF, at, at + max(limit, 0) + 2)
        if end >= 0:
            self._at = end + 2
            return buffer[at:end]
        if self.buffered > limit + 1:
            raise Malformed(status, "a line is too long")
        if buffer.find(b"\n", at) >= 0:
            raise Malformed(400, "lines end with CR LF")
        return None

    def _end(self) -> ParserState:
        self.complete = True
        self._next = self._wait_for_next
        return ParserState.MESSAGE_END

    def _wait_for_next(self) -> ParserState:
        return ParserState.NEED_DATA


def _previous_head(head: RequestHead, block: bytes) -> _PreviousHead | None:
    kept = head.with_length(
        head.length, head.headers.copy()
    )  # copied, since an application may change the headers it is given
    kept.previous = None
    digits = b"%d" % head.length
    said = block.lower().find(_LENGTH)
    if said < 0:
        return _PreviousHead(kept, block)
    if (b"content-length", digits) not in kept.headers:
        return None  # the length has leading zeros, so its digits cannot be located by value
    start = block.index(digits, said)
    return _PreviousHead(
        kept, block[:start], block[start + len(digits) :], kept.headers.index((b"content-length", digits))
    )


def _parse_request_line(line: bytes) -> tuple[str, bytes, str]:
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise Malformed(400, "invalid request line")
    version = found[3].decode("ascii")
    if version not in ("1.1", "1.0"):
        raise Malformed(505, "only HTTP/1.1 and 1.0 are supported")
    return found[1].decode("ascii"), found[2], version


def parse_headers(lines: bytes, *, many: int = 431, wrong: int = 400) -> list[HeaderLine]:
    """Parse lines that each end with CR LF into headers with lower-case names.

    Raises `Malformed` with the status `many` for too many headers, and `wrong` for an invalid line.
    """
    count = lines.count(b"\n")
    if count > MAX_HEADERS:
        raise Malformed(many, "too many headers")
    found = _HEADER_LINE.findall(lines)
    # A match begins at the start of a line and contains no line end. With as many matches as line ends, no line is left unmatched.
    if len(found) != count:
        raise Malformed(wrong, "invalid header line")
    return [(name.lower(), value.rstrip(b" \t")) for name, value in found]


# --- Response heads, and how the end of a body is marked. Pure.
# No header can be read as two: names are tokens, values have no line breaks, and only this module writes the body's length.

_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_LONGEST_CACHED_VALUE: Final = 256
_UNCACHED: Final = frozenset({b"content-length", b"mcp-session-id"})
"""Headers whose value differs in each response: cached, their values would keep memory from being returned to the system."""
_BODILESS: Final = frozenset({204, 304})
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
CLOSE: Final = b"connection: close\r\n"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
TOO_MANY_CONNECTIONS: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\nretry-after: 1\r\n\r\n"
)


class Framing(Enum):
    """The mark that ends a body."""

    LENGTH = auto()
    """The content length in the head."""
    CHUNKS = auto()
    """An empty chunk."""
    CLOSE = auto()
    """The end of the connection, for HTTP/1.0."""
    NONE = auto()
    """There is no body, whatever the head says."""


class EncodedHead(NamedTuple):
    """A response head as bytes, and the framing of the body after it."""

    head: bytes
    framing: Framing
    length: int
    closing: bool


def encode_head(
    status: int, headers: Iterable[tuple[bytes, bytes]], *, method: str, version: str, persistent: bool, now: float
) -> EncodedHead:
    """Encode a response head. Raises `ValueError` for headers that must not be sent."""
    lines = [_status(status), *_date(int(now))]
    length: int | None = None
    for name, value in headers:
        line = (
            _line(name, value) if name in _UNCACHED or len(value) > _LONGEST_CACHED_VALUE else _cached_line(name, value)
        )
        if line.startswith(b"content-length:"):
            if length is not None or not value.isdigit():
                raise ValueError(f"a response has one numeric content-length, not {value!r}")
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
    return EncodedHead(b"".join(lines), framing, length or 0, not persistent)


def encode_response(status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes, now: float) -> bytes:
    """Encode the whole response to a POST on a connection that stays open.

    `headers` contain neither the content length nor connection headers.
    """
    lines = [_status(status), *_date(int(now))]
    lines += [
        _line(name, value) if name in _UNCACHED or len(value) > _LONGEST_CACHED_VALUE else _cached_line(name, value)
        for name, value in headers
    ]
    lines += (b"content-length: %d\r\n\r\n" % len(body), body)
    return b"".join(lines)


def encode_refusal(status: int, now: float) -> bytes:
    """Encode the whole response to an invalid request; it closes the connection."""
    return b"".join((_status(status), *_date(int(now)), b"content-length: 0\r\n", CLOSE, b"\r\n"))


@lru_cache(maxsize=128)
def _status(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    if not 200 <= status <= 999:  # noqa: PLR2004 - the others come before the answer
        raise ValueError(f"a response cannot have the status {status}")
    return b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode("ascii"))


@lru_cache(maxsize=2)
def _date(second: int) -> tuple[bytes]:
    year, month, day, hour, minute, at, weekday, *_ = time.gmtime(second)
    text = f"{_DAYS[weekday]}, {day:02} {_MONTHS[month - 1]} {year:04} {hour:02}:{minute:02}:{at:02} GMT"
    return (b"date: %b\r\n" % text.encode("ascii"),)


def wall_clock() -> float:
    """The wall-clock time, for `Date` headers."""
    return time.time()


def _line(name: bytes, value: bytes) -> bytes:
    name, value = bytes(name).strip().lower(), bytes(value).strip()
    if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
        raise ValueError(f"invalid header {name!r}: {value!r}")
    return b"%b: %b\r\n" % (name, value)


_cached_line = lru_cache(maxsize=256)(_line)
