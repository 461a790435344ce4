"""Server-sent events: encoding, and parsing of streams that are cut anywhere or malformed."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.errors import LocalProtocolError
from greenroom.protocol.jsonrpc import KEPT_EDGE, OversizedMessage
from greenroom.protocol.sse import KEEP_ALIVE, SseEvent, SseParser, encode_comment, encode_event

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMIT = 40


def read(stream: bytes, cuts: Iterable[int] = (), limit: int = LIMIT) -> list[SseEvent | OversizedMessage]:
    """All events of a stream that arrives in these pieces."""
    parser = SseParser(limit)
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [found for start, end in itertools.pairwise(places) for found in parser.feed(stream[start:end])]


@pytest.mark.row("ST-08")
def test_a_frame_is_id_data_and_a_blank_line() -> None:
    assert encode_event("g0:7", b'{"a":1}') == b'id: g0:7\ndata: {"a":1}\n\n'
    assert encode_event("", b"{}") == b"data: {}\n\n"
    assert encode_event("1", b"{}", event="message") == b"event: message\nid: 1\ndata: {}\n\n"


@pytest.mark.row("ST-10")
@pytest.mark.row("ST-11")
def test_an_event_with_empty_data_sets_a_position_and_a_retry() -> None:
    assert encode_event("g0:0", b"") == b"id: g0:0\ndata: \n\n"
    assert encode_event("p1:3", b"", retry=500) == b"id: p1:3\nretry: 500\ndata: \n\n"
    assert encode_event("", None, retry=500) == b"retry: 500\n\n"
    assert read(encode_event("g0:0", b"", retry=500)) == [SseEvent(b"", "g0:0")]


@pytest.mark.row("ST-11")
def test_a_comment_yields_no_event() -> None:
    assert encode_comment("keep-alive") == KEEP_ALIVE == b": keep-alive\n\n"
    assert encode_comment("two\nlines\r\nthree\rfour") == b": two\n: lines\n: three\n: four\n\n"
    assert read(
        KEEP_ALIVE + encode_event("1", b"a") + encode_comment("x\ny") + KEEP_ALIVE + encode_event("2", b"b")
    ) == [
        SseEvent(b"a", "1"),
        SseEvent(b"b", "2"),
    ]


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "a\0b", "1\r\n\r\nid: 2"])
def test_an_id_or_a_name_that_would_break_the_frame_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError, match="no line break"):
        encode_event(text, b"{}")
    with pytest.raises(LocalProtocolError, match="no line break"):
        encode_event("1", b"{}", event=text)


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), max_size=10)
_DATA = st.binary(max_size=30).map(lambda data: data.replace(b"\r", b"\n"))


@given(st.lists(st.tuples(_TEXT, _DATA, _TEXT)), st.lists(st.integers(0, 10_000)))
def test_encoded_events_are_parsed_back_however_the_stream_is_cut(
    events: list[tuple[str, bytes, str]], cuts: list[int]
) -> None:
    stream = b"".join(encode_event(id, data, name) + KEEP_ALIVE for id, data, name in events)
    last = ""
    expected: list[SseEvent] = []
    for id, data, name in events:
        last = id or last
        expected.append(SseEvent(data, last, name or "message"))
    assert read(stream, cuts) == expected


_SCRAPS = st.lists(
    st.sampled_from(
        [
            *(
                b"data",
                b"data:",
                b"data: ",
                b"id: ",
                b"id",
                b"event: e",
                b"retry: 10",
                b"retry:x",
                b": c",
                b":",
                b"foo: bar",
            ),
            *(
                b"a",
                b"\0",
                b"\xff",
                b"\xef\xbb\xbf",
                b" ",
                b"x" * 50,
                b"\n",
                b"\r",
                b"\r\n",
                b"\n\n",
                b"\r\r",
                b"\r\n\r\n",
            ),
        ]
    )
).map(b"".join)


def shape(found: list[SseEvent | OversizedMessage]) -> list[SseEvent | None]:
    return [each if isinstance(each, SseEvent) else None for each in found]


@given(_SCRAPS, st.lists(st.integers(0, 1000)))
def test_events_do_not_depend_on_where_the_stream_is_cut(stream: bytes, cuts: list[int]) -> None:
    whole = shape(read(stream))
    assert shape(read(stream, cuts)) == whole
    assert shape(read(stream, range(len(stream)))) == whole


@given(_SCRAPS)
def test_the_kind_of_line_break_makes_no_difference(stream: bytes) -> None:
    plain = stream.replace(b"\r", b"")
    assert shape(read(plain)) == shape(read(plain.replace(b"\n", b"\r\n"))) == shape(read(plain.replace(b"\n", b"\r")))


@given(st.binary(max_size=300), st.lists(st.integers(0, 300)))
def test_any_bytes_can_be_parsed(stream: bytes, cuts: list[int]) -> None:
    parser = SseParser(LIMIT)
    for found in parser.feed(stream) + read(stream, cuts):
        assert isinstance(found, OversizedMessage) or len(found.data) <= LIMIT
    assert parser.held <= LIMIT + 6


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\ndata: b\n\n", [SseEvent(b"a\nb")]),
        (b"data:a\n\ndata\n\ndata: \n\ndata:  b\n\n", [SseEvent(b"a"), SseEvent(b""), SseEvent(b""), SseEvent(b" b")]),
        (b"data\ndata\n\n", [SseEvent(b"\n")]),
        (b"\xef\xbb\xbfdata: a\n\n", [SseEvent(b"a")]),
        (b"\xef\xbb\xbf\ndata: a\n\n", [SseEvent(b"a")]),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [SseEvent(b"a")]),
        (
            b"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n",
            [SseEvent(b"a", "1"), SseEvent(b"b", "1"), SseEvent(b"c", "")],
        ),
        (b"id: 1\n\ndata: a\n\n", [SseEvent(b"a", "1")]),
        (b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n", [SseEvent(b"a", "1"), SseEvent(b"b", "1")]),
        (b"event: e\ndata: a\n\ndata: b\n\n", [SseEvent(b"a", "", "e"), SseEvent(b"b")]),
        (b"event: e\n\ndata: b\n\n", [SseEvent(b"b")]),
        (b"Data: a\ndata : b\n data: c\n\n", []),
        (b"data: a", []),
        (b"data: a\n", []),
        (b"data: a\r\r", [SseEvent(b"a")]),
    ],
)
def test_the_parser_reads_the_standards_examples(stream: bytes, expected: list[SseEvent]) -> None:
    assert read(stream) == read(stream, range(len(stream))) == expected


def test_the_parser_keeps_the_last_event_id_and_the_retry() -> None:
    parser = SseParser()
    parser.feed(b"retry: 1500\nid: g0:4\ndata: a\n")
    assert (parser.last_event_id, parser.retry) == ("", 1500)
    parser.feed(b"\nretry: -1\nretry: 1.5\nretry: \xd9\xa1\nretry: 9999999999\nretry:\n\n")
    assert (parser.last_event_id, parser.retry) == ("g0:4", 1500)


def test_an_event_may_have_exactly_the_limit() -> None:
    for prefix in (b"data: ", b"data:"):
        data = b"x" * LIMIT
        assert read(prefix + data + b"\n\n") == [SseEvent(data)]
        assert read(prefix + data + b"x\n\n") == [OversizedMessage(LIMIT + 1, data + b"x", data + b"x")]
    half = b"data: " + b"x" * (LIMIT // 2) + b"\n"
    assert shape(read(half + half + b"\n")) == [None]


def test_an_over_long_event_takes_its_place_among_the_others() -> None:
    stream = encode_event("1", b"a") + encode_event("2", b"<" + b"x" * 1000 + b">") + encode_event("3", b"c")
    found = read(stream)
    assert found[0] == SseEvent(b"a", "1")
    assert found[2] == SseEvent(b"c", "3")
    assert isinstance(found[1], OversizedMessage)
    assert found[1].length == 1002
    assert found[1].head == b"<" + b"x" * (KEPT_EDGE - 1)
    assert found[1].tail == b"x" * (KEPT_EDGE - 1) + b">"


@pytest.mark.parametrize(
    "piece", [b"x" * 65_536, b"data: " + b"x" * 1000 + b"\n", b"data:\n", b"data: x\n", b": c\n", b"id: 1\n"]
)
def test_an_event_that_never_ends_costs_no_memory(piece: bytes) -> None:
    parser = SseParser(10_000)
    times = 2_000_000 // max(len(piece), 200)
    tracemalloc.start()
    for _ in range(times):
        assert parser.feed(piece) == []
    size, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert parser.held <= 10_006
    assert peak < 400_000
    assert size < 40_000
    parser.feed(b"\n\n")
    assert parser.feed(b"data: after\n\n")[-1:] in ([SseEvent(b"after")], [SseEvent(b"after", "1")])
