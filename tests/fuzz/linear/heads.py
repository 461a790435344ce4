"""HTTP/1.1: heads of requests and of answers, and bodies in chunks of one byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz.linearity import KIB, Reader, repeated

from greenroom.transports.client.http_connection_pool import ResponseParser
from greenroom.transports.http1_codec import MAX_HEADERS, Malformed, ParserState, RequestParser

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX: Final = 1 << 20
_REQUEST: Final = b"POST /mcp HTTP/1.1\r\nhost: x\r\n"
_ANSWER: Final = b"HTTP/1.1 200 OK\r\n"
_END: Final = b"\r\n\r\n"
_CHUNKED: Final = b"transfer-encoding: chunked" + _END

_LINES: Final = {
    "blanks, NUL": (b"x:", b" ", b"\0"),
    "blanks": (b"x:", b" ", b""),
    "words, NUL": (b"x: ", b"a ", b"\0"),
    "words and blanks, NUL": (b"x: ", b"aa  \t", b"\0"),
    "a word, NUL": (b"x: ", b"a", b"\0"),
    "a name without end": (b"", b"a", b""),
    "a name, a blank": (b"", b"a", b" : b"),
    "colons": (b"x", b":", b"\0"),
    "line feeds": (b"", b"\n", b""),
    "names and line feeds": (b"", b"a:\n", b""),
    "carriage returns": (b"x: ", b"\r", b""),
    "connection: commas": (b"connection: ", b",", b""),
    "connection: closed": (b"connection: ", b"closed ,", b"x"),
    "content-length: digits": (b"content-length: ", b"1", b""),
    "transfer-encoding: chunked": (b"transfer-encoding: ", b"chunked,", b""),
    "lengths in a value": (b"x: ", b"content-length:", b""),
}


def _shape(front: bytes, unit: bytes, end: bytes) -> Callable[[int], bytes]:
    def made(size: int) -> bytes:
        return repeated(unit, size, front, end)

    return made


def _many(front: bytes) -> Callable[[int], bytes]:
    count = MAX_HEADERS - 1

    def made(size: int) -> bytes:
        return front + (b"x: %b\r\n" % repeated(b"y ", max(2, size // count - 5))) * count + b"\r\n"

    return made


def _headers(front: bytes) -> dict[str, Callable[[int], bytes]]:
    shapes = {name: _shape(front + first, unit, end + _END) for name, (first, unit, end) in _LINES.items()}
    shapes["as many as there may be"] = _many(front)
    shapes["one-byte chunks"] = _shape(front + _CHUNKED, b"1\r\nx\r\n", b"0\r\n\r\n")
    return shapes


def _read(reader: RequestParser | ResponseParser, data: bytes) -> None:
    reader.feed(data)
    while reader.next() not in (ParserState.NEED_DATA, ParserState.MESSAGE_END):
        pass


def _request(data: bytes) -> None:
    _read(RequestParser(_MAX), data)


def _answer(data: bytes) -> None:
    _read(ResponseParser(_MAX), data)


def _in_pieces(data: bytes) -> None:
    requests = RequestParser(_MAX)
    for start in range(0, len(data), 64):
        _read(requests, data[start : start + 64])


_REQUESTS: Final = {
    "a target, NUL": _shape(b"GET /", b"a", b"\0 HTTP/1.1\r\nhost: x" + _END),
    "a target of versions": _shape(b"GET ", b"HTTP/1.", b" HTTP/1.1\r\nhost: x" + _END),
    "a method without end": _shape(b"", b"a", _END),
    "trailers": _shape(_REQUEST + _CHUNKED + b"0\r\n", b"x: y\r\n", b"\r\n"),
    "a trailer of blanks": _shape(_REQUEST + _CHUNKED + b"0\r\nx:", b" ", b"\0\r\n"),
}
_PIECES: Final = {
    "one-byte chunks": _shape(_REQUEST + _CHUNKED, b"1\r\nx\r\n", b"0\r\n\r\n"),
    "a body": _shape(_REQUEST + b"content-length: 65000" + _END, b"x", b""),
}
_ANSWERS: Final = {"a reason, NUL": _shape(b"HTTP/1.1 200 ", b"a ", b"\0" + _END)}

_LARGE: Final = (8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB)
"""Smaller heads are cached for the next request, which costs small sizes something that large ones do not pay."""

READERS = (
    Reader("requests", _request, _headers(_REQUEST) | _REQUESTS, (Malformed,), _LARGE),
    Reader("pieces", _in_pieces, _PIECES, (Malformed,)),
    Reader("answers", _answer, _headers(_ANSWER) | _ANSWERS, (Malformed,)),
)
