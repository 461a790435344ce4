"""The HTTP/2 flood guard: what it forwards, what frames cost, and that the pieces of the input make no difference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.transports.http2_connection import (
    BURST,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADER_FRAME_STEPS,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    FloodDetected,
    Http2FloodGuard,
)

from .raw_http2 import frame_header


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 1) -> bytes:
    return frame_header(kind, flags, stream, len(payload)) + payload


kinds = st.sampled_from([DATA, HEADERS, PRIORITY, RST_STREAM, GOAWAY, PING, 0x20])


@given(st.lists(st.tuples(kinds, st.binary(max_size=50)), max_size=20), st.data())
def test_forwarded_frames_do_not_depend_on_the_pieces_of_the_input(
    frames: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    sent = PREFACE + b"".join(frame(kind, payload, END_STREAM) for kind, payload in frames)
    guard, passed, at = Http2FloodGuard(1000, 0.0), b"", 0
    while at < len(sent):
        upto = at + data.draw(st.integers(1, len(sent) - at))
        passed += guard.feed(sent[at:upto], 0.0)
        at = upto
    kept = [(kind, payload) for kind, payload in frames if kind not in (GOAWAY, PRIORITY)]
    assert passed == PREFACE + b"".join(frame(kind, payload, END_STREAM) for kind, payload in kept)
    assert guard.goaway_received == any(kind == GOAWAY for kind, _ in frames)


def asked(guard: Http2FloodGuard, sent: bytes, now: float = 0.0) -> str:
    try:
        guard.feed(sent, now)
    except FloodDetected as flood:
        return str(flood)
    return ""


def opened(max_header: int = 1000) -> Http2FloodGuard:
    guard = Http2FloodGuard(max_header, 0.0)
    guard.feed(PREFACE, 0.0)
    return guard


def test_the_allowance_returns_with_time_and_with_responses() -> None:
    guard = opened()
    assert not asked(guard, frame(PING, bytes(8)) * 500)
    assert not asked(guard, frame(PING, bytes(8)) * 25, 1.0)
    guard.earn(100)
    assert not asked(guard, frame(PING, bytes(8)) * 200, 1.0)
    assert asked(guard, frame(PING, bytes(8)), 1.0) == "too many frames that carry no request or data"


def test_the_allowance_has_a_maximum() -> None:
    guard = opened()
    guard.earn(1e9)
    assert not asked(guard, frame(PING, bytes(8)) * 500, 1e9)
    assert asked(guard, frame(PING, bytes(8)), 1e9)


def test_occasional_resets_are_allowed_for_ever() -> None:
    guard = opened()
    for second in range(1, 10_000):
        guard.feed(b"", second / 10)
        guard.reset()
    guard.feed(b"", 1e6)
    guard.spend(BURST - 10.0, "everything but two")
    guard.reset()
    guard.reset()
    with pytest.raises(FloodDetected, match="reset before their response"):
        guard.reset()


def test_header_blocks_are_counted_over_all_their_frames() -> None:
    guard = opened()
    for _ in range(3):
        assert not asked(guard, frame(HEADERS, bytes(600)) + frame(CONTINUATION, bytes(400), END_HEADERS))
    assert (
        asked(guard, frame(HEADERS, bytes(600)) + frame(CONTINUATION, bytes(401))) == "a header block over max_header"
    )


def test_an_end_of_stream_without_data_costs_nothing() -> None:
    guard = opened()
    assert not asked(guard, frame(DATA, flags=END_STREAM) * 5000)
    assert asked(guard, frame(DATA) * 5000) == "too many empty frames"


@pytest.mark.parametrize("kind", [HEADERS, CONTINUATION])
def test_a_frame_with_headers_counts_as_several_steps(kind: int) -> None:
    guard, sent = opened(), frame(kind, flags=END_HEADERS) * 100
    assert HEADER_FRAME_STEPS == 8  # a request costs as much as parsing eight frames of one byte
    passed = guard.feed(sent, 0.0, 32)
    assert (len(passed), guard.taken) == (4 * 9, 4 * 9)
    guard.feed(frame(DATA, b"x") * 100, 0.0, 32)
    assert guard.taken == 32 * 10
