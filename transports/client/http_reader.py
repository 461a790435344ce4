"""HTTP/1.1 answers out of bytes: incremental, bounded, and as strict as the reader of requests, whose bodies it reads in the same way. Pure.

Nothing is guessed here either: who frames an answer in two ways at once, or in a way that nobody knows, may be hiding a second
one in it, which the next request on this connection would be given. Informational answers are passed over. An answer that only the
connection's end ends is read to that end, which `eof` tells.
"""

from __future__ import annotations

import re
from typing import Final

from greenroom.transports.http1 import HeaderLine, Malformed, Requests, State, read_fields

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
