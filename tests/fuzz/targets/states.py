"""Sealed states and the fields of a retry: a text opens only if it is the very one that was sealed, for its owner and request, and in time."""

from __future__ import annotations

import json
import secrets
from typing import Any
from unittest import mock

from tests.fuzz.fuzz_target import Target, numbers, seeded

from greenroom.protocol.errors import ErrorCode, McpError, RemoteProtocolError
from greenroom.protocol.input_required import (
    QUESTION_METHODS,
    BadRequestState,
    RecordedAnswer,
    RequestState,
    check_response,
    read_responses,
    request_digest,
)
from greenroom.protocol.jsonrpc import decode, is_object
from greenroom.protocol.sealing import KeyRing

OWNERS = ("principal ada", "principal eve")
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tools/call", {"name": "a", "arguments": {"b": 1}}),
    ("tools/call", {"name": "a"}),
    ("prompts/get", {"name": "a"}),
)
TIMES = (0.0, 2000.0)
EXPIRES = 1000.0
PURPOSE = "request state"
REASONS = {"tampered", "expired", "other_request"}


def sealed() -> tuple[KeyRing, RequestState, str]:
    """A ring, a state of its first owner's first call, and its text: the same in each run."""
    ring = KeyRing([b"k" * 32])
    answers = [RecordedAnswer(b"digest", {"action": "accept"})]
    state = RequestState(expires=EXPIRES, request=request_digest(*CALLS[0]), answers=answers, value={"step": 1})
    with mock.patch.object(secrets, "token_bytes", bytes):
        return ring, state, state.seal(ring, OWNERS[0])


RING, STATE, TEXT = sealed()
FIELDS = (
    b'{"inputResponses":{"name":{"action":"accept","content":{"name":"Ada"}}},"requestState":"x"}',
    b'{"inputResponses":{"a":{"role":"user","content":{"type":"text","text":"a"},"model":"m"},"b":{"roots":[]}}}',
    b'{"inputResponses":null,"requestState":7}',
    b'{"inputResponses":{"a":[]}}',
)
PAYLOADS = (b'[1000.0,"AAAA",1,"",[],null]', b"{}", b'[1e999,"",0,"",null]', b'[1,"",1,"",[["AA==",{}]],{"a":[1]}]')
WORDS = (
    *(b"inputResponses", b"requestState", b"action", b"accept", b"decline", b"content", b"roots", b"uri", b"model"),
    *(b'{"', b'":', b'"}', b"null", b"[]", b"{}", b"1e400", b"AQ", b"=", b"-", b"_", b"\\ud800", b"\xff"),
    *(TEXT[:15].encode(), TEXT[15:31].encode(), TEXT[-22:].encode()),
)


def check(data: bytes) -> None:
    front, rest = numbers(data, 3)
    owner, (method, params), now = OWNERS[front[0] % 2], CALLS[front[1] % 3], TIMES[front[2] % 2]
    text = rest.decode("utf-8", "replace")
    opens(text, owner, method, params, now, only=(TEXT, OWNERS[0], CALLS[0], TIMES[0]))
    payload(rest, owner, method, params, now)
    retry(rest)


def opens(text: str, owner: str, method: str, params: dict[str, Any], now: float, only: tuple[Any, ...]) -> None:
    try:
        state = RequestState.open(RING, text, owner, method, params, now)
    except BadRequestState as error:
        refused(error)
        assert (text, owner, (method, params), now) != only
        if owner != only[1] or text != only[0]:
            assert error.reason == "tampered"
    else:
        assert (text, owner, (method, params), now) == only
        assert state == STATE


def payload(data: bytes, owner: str, method: str, params: dict[str, Any], now: float) -> None:
    """A text that this server has sealed, whatever is in it, opens as a state or is refused."""
    try:
        state = RequestState.open(RING, RING.seal(PURPOSE, data, owner.encode()), owner, method, params, now)
    except BadRequestState as error:
        refused(error)
        assert error.reason != "tampered"
    else:
        assert state.expires > now
        assert state.request == request_digest(method, params)


def refused(error: BadRequestState) -> None:
    assert error.code == ErrorCode.INVALID_PARAMS
    assert error.reason in REASONS
    assert error.data == {"reason": error.reason}
    assert len(error.message) < 300


def retry(data: bytes) -> None:
    try:
        params = decode(data)
    except RemoteProtocolError:
        return
    if not is_object(params):
        return
    try:
        responses, state = read_responses(params)
    except McpError as error:
        named(error)
        return
    assert state is None or params["requestState"] is state
    assert responses is None or responses is params["inputResponses"]
    for key, response in (responses or {}).items():
        for method in QUESTION_METHODS:
            try:
                assert check_response(method, response, key) is response
            except McpError as error:
                named(error)
                assert error.data == {"key": key, "reason": "bad_response"}


def named(error: McpError) -> None:
    assert error.code == ErrorCode.INVALID_PARAMS
    assert error.message.startswith("Invalid params: ")
    json.dumps(error.to_wire())


TARGET = Target(
    "states",
    check,
    lambda: seeded([TEXT.encode(), TEXT[:-1].encode(), *FIELDS, *PAYLOADS], b"\0\0\0", b"\1\0\0", b"\0\1\1"),
    WORDS,
    longest=1000,
)
