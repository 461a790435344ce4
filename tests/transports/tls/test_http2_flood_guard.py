"""The gate: what passes, what it costs, and that it does not matter how the bytes were cut."""

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

from .raw_http2 import head


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 1) -> bytes:
    return head(kind, flags, stream, len(payload)) + payload


kinds = st.sampled_from([DATA, HEADERS, PRIORITY, RST_STREAM, GOAWAY, PING, 0x20])


@given(st.lists(st.tuples(kinds, st.binary(max_size=50)), max_size=20), st.data())
def test_what_passes_does_not_depend_on_how_it_was_cut(frames: list[tuple[int, bytes]], data: st.DataObject) -> None:
    sent = PREFACE + b"".join(frame(kind, payload, END_STREAM) for kind, payload in frames)
    gate, passed, at = Http2FloodGuard(1000, 0.0), b"", 0
    while at < len(sent):
        upto = at + data.draw(st.integers(1, len(sent) - at))
        passed += gate.feed(sent[at:upto], 0.0)
        at = upto
    kept = [(kind, payload) for kind, payload in frames if kind not in (GOAWAY, PRIORITY)]
    assert passed == PREFACE + b"".join(frame(kind, payload, END_STREAM) for kind, payload in kept)
    assert gate.goaway_received == any(kind == GOAWAY for kind, _ in frames)


def asked(gate: Http2FloodGuard, sent: bytes, now: float = 0.0) -> str:
    try:
        gate.feed(sent, now)
    except FloodDetected as flood:
        return str(flood)
    return ""


def opened(max_header: int = 1000) -> Http2FloodGuard:
    gate = Http2FloodGuard(max_header, 0.0)
    gate.feed(PREFACE, 0.0)
    return gate


def test_an_allowance_comes_back_with_time_and_with_answers() -> None:
    gate = opened()
    assert not asked(gate, frame(PING, bytes(8)) * 500)
    assert not asked(gate, frame(PING, bytes(8)) * 25, 1.0)
    gate.earn(100)
    assert not asked(gate, frame(PING, bytes(8)) * 200, 1.0)
    assert asked(gate, frame(PING, bytes(8)), 1.0) == "too many frames that ask for nothing"


def test_what_is_saved_up_has_an_end() -> None:
    gate = opened()
    gate.earn(1e9)
    assert not asked(gate, frame(PING, bytes(8)) * 500, 1e9)
    assert asked(gate, frame(PING, bytes(8)), 1e9)


def test_who_takes_requests_back_now_and_then_may_do_so_for_ever() -> None:
    gate = opened()
    for second in range(1, 10_000):
        gate.feed(b"", second / 10)
        gate.reset()
    gate.feed(b"", 1e6)
    gate.spend(BURST - 10.0, "everything but two")
    gate.reset()
    gate.reset()
    with pytest.raises(FloodDetected, match="taken back"):
        gate.reset()


def test_headers_are_counted_over_all_their_frames() -> None:
    gate = opened()
    for _ in range(3):
        assert not asked(gate, frame(HEADERS, bytes(600)) + frame(CONTINUATION, bytes(400), END_HEADERS))
    assert asked(gate, frame(HEADERS, bytes(600)) + frame(CONTINUATION, bytes(401))) == "more headers than max_header"


def test_an_end_without_data_costs_nothing() -> None:
    gate = opened()
    assert not asked(gate, frame(DATA, flags=END_STREAM) * 5000)
    assert asked(gate, frame(DATA) * 5000) == "too many frames with nothing in them"


@pytest.mark.parametrize("kind", [HEADERS, CONTINUATION])
def test_a_frame_with_headers_counts_as_many_steps(kind: int) -> None:
    gate, sent = opened(), frame(kind, flags=END_HEADERS) * 100
    assert HEADER_FRAME_STEPS == 8  # a request costs as much as reading eight frames of one byte
    passed = gate.feed(sent, 0.0, 32)
    assert (len(passed), gate.taken) == (4 * 9, 4 * 9)
    gate.feed(frame(DATA, b"x") * 100, 0.0, 32)
    assert gate.taken == 32 * 10
