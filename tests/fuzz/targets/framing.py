"""Line framing: the same lines wherever the stream is cut, in order, and at most one line is buffered."""

from __future__ import annotations

from tests.fuzz.fuzz_target import Target, numbers, pieces, seeded

from greenroom.protocol.jsonrpc import KEPT_EDGE, OversizedMessage
from greenroom.protocol.sse import UNENDED_LINE_FACTOR, LineFramer

TEXTS = (b"", b"a\nbc\r\n\n\r\nd", b"x" * 400, b"x" * 300 + b"\r\n" + b"y" * 700 + b"\nz\n", b"\r\r\n\r", b"{}\n" * 40)
FRONTS = (b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x05\x00\x02\x07", b"\x20\x10\x01\x30")


def check(data: bytes) -> None:
    front, stream = numbers(data, 4)
    limit = front[0] + 1
    framer = LineFramer(limit)
    found: list[bytes | OversizedMessage] = []
    for piece in pieces(stream, front[1:]):
        found += framer.feed(piece)
        assert framer.held <= limit + 1
    last = framer.end()
    if last is not None:
        found.append(last)
    assert framer.end() is None
    expected = [line for line in stream.split(b"\n") if line.removesuffix(b"\r")]
    assert len(found) == len(expected), (found, expected)
    for line, each in zip(expected, found, strict=True):
        compare(line, each, limit)


def compare(line: bytes, found: bytes | OversizedMessage, limit: int) -> None:
    bare = line.removesuffix(b"\r")
    if not isinstance(found, OversizedMessage):
        assert found == bare
        assert len(found) <= limit
        return
    assert len(bare) > limit
    assert line.startswith(found.head)
    assert len(found.head) == min(KEPT_EDGE, found.length)
    if found.tail:
        assert found.length in (len(bare), len(line))
        assert line[: found.length].endswith(found.tail)
    else:
        assert UNENDED_LINE_FACTOR * limit < found.length <= len(line)


TARGET = Target("framing", check, lambda: seeded(TEXTS, *FRONTS), (b"\n", b"\r\n", b"\r"))
