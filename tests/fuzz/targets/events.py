"""Server-sent events: parsed as the standard says, wherever the stream is cut; encoded events are parsed back."""

from __future__ import annotations

import re

from tests.fuzz.fuzz_target import Target, numbers, pieces, seeded

from greenroom.protocol.errors import LocalProtocolError
from greenroom.protocol.jsonrpc import OversizedMessage
from greenroom.protocol.sse import SseEvent, SseParser, encode_comment, encode_event

TEXTS = (
    b"id: g0:1\nevent: message\nretry: 100\ndata: a\ndata:b\n\n: keep-alive\n\ndata\n\n",
    b"\xef\xbb\xbfdata: a\r\n\r\nid\r\ndata: x\r\r",
    b"id: a\0b\nretry: 99999999999\nretry: -1\nretry: \xc2\xb2\ndata:  two\nother: y\n\n",
    b"data: " + b"x" * 300 + b"\n\ndata: y\n\n",
    b"event: \xff\xfe\nid: \xff\ndata: \xff\n\n",
)
WORDS = (
    b"data:",
    b"data: ",
    b"id: ",
    b"event: ",
    b"retry: ",
    b"\n",
    b"\r\n",
    b"\r",
    b"\n\n",
    b"\xef\xbb\xbf",
    b":",
    b"\0",
)
HUGE = 1 << 20
_BREAK = re.compile(rb"\r\n|\r|\n")


def check(data: bytes) -> None:
    front, stream = numbers(data, 4)
    assert read(stream, front[1:], HUGE) == standard(stream)
    limit = front[0]
    for each in read(stream, front[1:], limit):
        assert isinstance(each, OversizedMessage) or len(each.data) <= limit
    written(stream, front[3])


def read(stream: bytes, steps: bytes, limit: int) -> list[SseEvent | OversizedMessage]:
    parser = SseParser(limit)
    found: list[SseEvent | OversizedMessage] = []
    for piece in pieces(stream, steps):
        found += parser.feed(piece)
        assert parser.held <= limit + len(b"data: ")
    return found


def standard(stream: bytes) -> list[SseEvent]:
    """The standard's algorithm, on the whole stream at once."""
    *lines, _ = _BREAK.split(stream.removeprefix(b"\xef\xbb\xbf"))
    found: list[SseEvent] = []
    data: list[bytes] = []
    id = name = ""
    for line in lines:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"" if not line:
                if data:
                    found.append(SseEvent(b"\n".join(data), id, name or "message"))
                data, name = [], ""
            case b"data":
                data.append(value)
            case b"event":
                name = value.decode(errors="replace")
            case b"id" if b"\0" not in value:
                id = value.decode(errors="replace")
            case _:
                pass
    return found


def written(stream: bytes, number: int) -> None:
    """Assert that an encoded event is parsed as exactly one event."""
    name, _, data = stream.partition(b"\0")
    id = name[:20].decode(errors="replace")
    try:
        frame = encode_event(id, data, event=id if number & 1 else None, retry=number if number & 2 else None)
    except LocalProtocolError:
        assert "\n" in id or "\r" in id or "\0" in id
        return
    (found,) = read(encode_comment(id) + frame, bytes((number,)), HUGE)
    expected = id if number & 1 else "message"
    assert found == SseEvent(_BREAK.sub(b"\n", data), id, expected or "message")


TARGET = Target("events", check, lambda: seeded(TEXTS, b"\xff\xff\xff\xff", b"\x10\0\1\2"), WORDS)
