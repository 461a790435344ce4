"""Line framing: streams cut anywhere, and lines that are too long."""

from __future__ import annotations

import itertools
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.linearity import steps

from greenroom.protocol.jsonrpc import KEPT_EDGE, OversizedMessage
from greenroom.protocol.sse import UNENDED_LINE_FACTOR, LineFramer

LIMIT = 12


def read(stream: bytes, cuts: list[int] | None = None, limit: int = LIMIT) -> list[bytes | OversizedMessage]:
    """All lines of a stream that arrives in these pieces."""
    lines = LineFramer(limit)
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts or []), len(stream)]
    found = [line for start, end in itertools.pairwise(places) for line in lines.feed(stream[start:end])]
    last = lines.end()
    assert lines.held == 0
    return found if last is None else [*found, last]


_PIECES = st.lists(st.sampled_from([b"\n", b"\r\n", b"\r", b"a", b"bcd", b"x" * LIMIT, b"y" * (LIMIT + 1), b"z" * 40]))


@given(_PIECES.map(b"".join), st.lists(st.integers(0, 500)))
def test_lines_do_not_depend_on_where_the_stream_is_cut(stream: bytes, cuts: list[int]) -> None:
    """Only the reported length of an over-long line may differ: it may be reported before its end."""
    whole, cut = read(stream), read(stream, cuts)
    assert [line if isinstance(line, bytes) else None for line in cut] == [
        line if isinstance(line, bytes) else None for line in whole
    ]


@given(_PIECES.map(b"".join), st.lists(st.integers(0, 500)))
def test_the_framer_gives_the_lines_that_splitting_gives(stream: bytes, cuts: list[int]) -> None:
    honest = [line.removesuffix(b"\r") for line in stream.split(b"\n")]
    expected = [line if len(line) <= LIMIT else None for line in honest if line]
    assert [line if isinstance(line, bytes) else None for line in read(stream, cuts)] == expected


@given(
    st.lists(st.binary(min_size=1, max_size=30).filter(lambda line: not set(line) & set(b"\r\n"))),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_every_byte_at_a_time(lines: list[bytes], end: bytes) -> None:
    stream = b"".join(line + end for line in lines)
    assert read(stream, list(range(len(stream))), limit=30) == lines


def test_a_line_may_have_exactly_the_limit_whatever_ends_it() -> None:
    for end in (b"\n", b"\r\n"):
        for pieces in ([b"x" * LIMIT + end], [b"x" * LIMIT, end], [b"x" * LIMIT, end[:1], end[1:]]):
            lines = LineFramer(LIMIT)
            assert [line for piece in pieces for line in lines.feed(piece)] == [b"x" * LIMIT]


def test_the_lines_before_and_after_a_bad_one_are_given() -> None:
    lines = LineFramer(LIMIT)
    assert lines.feed(b"one\ntwo\n" + b"x" * 100) == [b"one", b"two", OversizedMessage(100, b"x" * 100, b"")]
    assert lines.feed(b"x" * 50 + b"\nthree\nfo") == [b"three"]
    assert lines.feed(b"ur\n") == [b"four"]


def test_an_over_long_line_that_ends_is_reported_once_with_both_its_ends() -> None:
    line = b"<" + b"x" * 1000 + b">"
    lines = LineFramer(700)
    assert lines.feed(line[:701]) == lines.feed(line[701:900]) == []
    assert lines.feed(line[900:] + b"\r\nok\n") == [
        OversizedMessage(1003, line[:KEPT_EDGE], (line + b"\r")[-KEPT_EDGE:]),
        b"ok",
    ]


def test_an_over_long_line_without_an_end_is_reported_once_without_waiting() -> None:
    lines = LineFramer(1000)
    fed = 0
    while not (found := lines.feed(b"x" * 100)):
        fed += 100
    assert fed == UNENDED_LINE_FACTOR * 1000
    assert found == [OversizedMessage(fed + 100, b"x" * KEPT_EDGE, b"")]
    for _ in range(100):
        assert lines.feed(b"x" * 100) == []
    assert lines.feed(b"\nafter\n") == [b"after"]
    assert lines.end() is None


def test_the_end_of_a_stream_ends_a_line() -> None:
    lines = LineFramer(LIMIT)
    assert lines.end() is None
    assert lines.feed(b"a\nlast") == [b"a"]
    assert lines.held == 4
    assert lines.end() == b"last"
    assert lines.feed(b"x" * 20) == []
    assert lines.end() == OversizedMessage(20, b"x" * 20, b"x" * 20)
    assert lines.feed(b"x" * 200) != []
    assert lines.end() is None


def test_two_hundred_megabytes_without_a_line_break_cost_no_memory() -> None:
    lines, chunk = LineFramer(), b"x" * 65_536
    tracemalloc.start()
    reports = [report for _ in range(200 * 16) for report in lines.feed(chunk)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(reports) == 1
    assert lines.held == 0
    assert peak < 3 * lines.limit
    assert lines.feed(b"\n{}\n") == [b"{}"]


def test_a_line_that_comes_byte_by_byte_takes_no_more_than_its_bytes() -> None:
    lines = LineFramer()
    tracemalloc.start()
    for _ in range(50_000):
        lines.feed(b"x")
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert lines.held == 50_000
    assert size < 100_000


def test_the_memory_of_a_big_line_is_given_back() -> None:
    lines = LineFramer()
    lines.feed(b"x" * 3_000_000)
    tracemalloc.start()
    lines.feed(b"x\n")
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert lines.held == 0
    assert size < 10_000


def test_empty_lines_cost_no_steps() -> None:
    few, many = (steps(lambda count=count: LineFramer().feed(b"\n" * count)) for count in (10, 10_000))  # type: ignore[misc]
    assert many == few
