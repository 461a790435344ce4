"""The response parser alone: whatever the input is, and however it is cut."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom import ConfigError
from greenroom.transports.client.http_address import ServerUrl
from greenroom.transports.client.http_connection_pool import ResponseHead, ResponseParser
from greenroom.transports.http1_codec import Malformed, ParserState

if TYPE_CHECKING:
    from collections.abc import Sequence

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello"
CHUNKS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nx: y\r\n\r\n"
NONE = b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n"
OPEN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n"


def read(pieces: Sequence[bytes], count: int = 1) -> tuple[list[tuple[int, bytes]], ResponseParser]:
    """The responses in the input, as status and body."""
    reader = ResponseParser(1024)
    found: list[tuple[int, bytes]] = []
    for piece in pieces:
        reader.feed(piece)
        while (event := reader.next()) is not ParserState.NEED_DATA:
            if isinstance(event, ResponseHead):
                found.append((event.status, b""))
            elif isinstance(event, bytes):
                found[-1] = (found[-1][0], found[-1][1] + event)
            elif len(found) < count:
                reader.start_next()
    return found, reader


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """The same bytes in pieces."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_the_pieces_of_the_input_make_no_difference(places: list[int]) -> None:
    data = LENGTH + CHUNKS + NONE + INTERIM + LENGTH
    found, reader = read(cut(data, places), count=4)
    assert found == [(200, b"hello"), (200, b"hello"), (204, b""), (200, b"hello")]
    assert reader.complete
    assert not reader.buffered


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_a_response_without_length_ends_with_the_connection(places: list[int]) -> None:
    found, reader = read(cut(OPEN, places))
    assert found == [(200, b"data: x\n\n")]
    assert reader.eof()
    assert not reader.complete


@given(st.binary(max_size=400), st.lists(st.integers(0, 10_000), max_size=6))
def test_any_input_is_parsed_or_refused(data: bytes, places: list[int]) -> None:
    for whole in (data, b"HTTP/1.1 " + data, LENGTH[:20] + data, CHUNKS[:50] + data):
        try:
            _, reader = read(cut(whole, places))
        except Malformed:
            continue
        assert reader.buffered <= len(whole)


@given(st.integers(1, 60), st.integers(0, 3))
def test_a_damaged_byte_is_refused_or_parsed_as_it_is(place: int, which: int) -> None:
    whole = bytearray(CHUNKS)
    whole[place] = b"\x00\n\r "[which]
    try:
        found, _ = read([bytes(whole)])
    except Malformed as refused:
        assert str(refused)
    else:
        assert len(found) <= 1


@pytest.mark.parametrize(
    ("location", "leads"),
    [
        ("/b", "/b"),
        ("b?c=d", "/a/b?c=d"),
        ("http://host:81/x", "/x"),
        ("http://HOST:81/x#part", "/x"),
        ("http://host/x", None),
        ("https://host:81/x", None),
        ("//other:81/x", None),
        ("http://host:81@evil/x", None),
        ("http://evil\\@host:81/x", None),
        ("javascript:alert(1)", None),
        ("http://host:99999/x", None),
        ("http://[host:81/x", None),
        ("/b\r\nx: y", None),
    ],
)
def test_references_are_resolved_within_the_origin(location: str, leads: str | None) -> None:
    found = ServerUrl.of("http://host:81/a/mcp?secret").resolve_reference(location)
    assert (None if found is None else found.target) == leads


@pytest.mark.parametrize("url", ["http://bob:hunter2/x@host/", "http://bob:hunter2[@host/", "ftp://bob:hunter2@host/"])
def test_an_invalid_url_is_not_repeated_in_the_error(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerUrl.of(url)
    assert "hunter2" not in str(caught.value)
