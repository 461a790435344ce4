"""Secrets in messages are hidden wherever they are, and whatever is sent is shown within bounds."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.observe.secret_masks import (
    HIDDEN,
    LEFT_OUT,
    is_secret_name,
    masked,
    masked_body,
    masked_part,
    masked_text,
)

SECRET = "hunter2-Zq9xKw81"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "API_KEY",
        "x-api-key",
        "Authorization",
        "accessToken",
        "client_secret",
        "requestState",
        "Cookie",
        "pin",
        "otp",
        "DPoP-Signature",
        "DB_PASS",
        "ENCRYPTION_KEY",
        "mcp-session-id",
        "code_verifier",
    ],
)
def test_a_value_with_the_name_of_a_secret_is_hidden(name: str) -> None:
    if name != "x-api-key":  # its parts are "x" and "apikey"
        assert is_secret_name(name)
    shown = json.dumps(masked({"a": [{name: SECRET, "b": {name: [SECRET]}}]}))
    assert SECRET not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize("name", ["progressToken", "maxTokens", "city", "name", "description", "monkey"])
def test_a_value_with_another_name_is_shown(name: str) -> None:
    assert masked({name: "Oslo"}) == {name: "Oslo"}


def test_the_code_of_an_error_is_shown_and_the_code_of_a_sign_in_is_hidden() -> None:
    assert masked({"code": -32603, "message": "no"}) == {"code": -32603, "message": "no"}
    assert masked({"code": "4/0AX4XfWh"}) == {"code": HIDDEN}


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"basic {SECRET}==",
        f"https://user:{SECRET}@example.org/",
        f"redis://:{SECRET}@example.org/0",
        f"postgres://user:p@{SECRET}@example.org/",
        f"https://{SECRET}@example.org/",
        f"-----BEGIN RSA PRIVATE KEY-----\\nMII{SECRET}\\n-----END RSA PRIVATE KEY-----",
        f"run --api-key {SECRET} now",
        f"DB_PASS={SECRET}",
        f"https://example.org/cb?code={SECRET}&state=1",
        f"https://example.org/#access_token={SECRET}",
        f"the key is sk-proj-{SECRET}",
        f"ghp_{SECRET}{SECRET}",
        f"eyJhbGciOiJIUzI1NiJ9.{SECRET}.{SECRET}",
        f"refused: api_key={SECRET}, try again",
        f"DB_PASSWORD: {SECRET}",
        f"the server said {{'token': '{SECRET}', \"x\": 1}}",
        f'{{"client_secret":"{SECRET}"}}',
        f"X-Auth-Token:{SECRET}",
        f"Authorization: Token {SECRET}",
    ],
)
def test_credentials_in_a_text_are_hidden(text: str) -> None:
    assert SECRET not in masked_text(text)
    assert SECRET not in json.dumps(masked([text]))


@pytest.mark.parametrize(
    "text",
    [
        'see http://127.0.0.1:80","mail":"a@b',
        "passengers: twenty of them",
        "git clone ssh://git@example.org/a",
        "sun in Oslo",
        "https://example.org/a?page=2",
        "risk-free",
        "a basic idea",
        "task-management",
        "the token: gone",
        "state: starting",
        "max_tokens=100000",
        "12:30:00 key:value",
    ],
)
def test_harmless_texts_are_left_as_they_are(text: str) -> None:
    assert masked_text(text) == text


@given(JSON, st.sampled_from(["password", "token", "secret", "requestState"]))
@settings(max_examples=examples(200))
def test_a_secret_anywhere_in_a_value_is_hidden(value: Any, name: str) -> None:
    wrapped = {"params": [value, {"deeper": [{name: SECRET}, value]}], name: {"inner": SECRET}}
    assert SECRET not in json.dumps(masked(wrapped))
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": wrapped})
    for is_captured in (True, False):
        assert SECRET not in masked_body(body, is_captured=is_captured)


@given(JSON)
def test_a_harmless_value_that_is_small_is_shown_whole(value: Any) -> None:
    shown = masked(value)
    assert json.loads(json.dumps(shown)) == shown
    assert type(shown) is type(value)


def test_without_capture_neither_params_nor_results_are_shown() -> None:
    request = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","arguments":{"a":"private"}}}'
    shown = json.loads(masked_body(request, is_captured=False))
    assert shown == {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "add", "…": LEFT_OUT}}
    reply = b'{"jsonrpc":"2.0","id":7,"result":{"content":"private"}}'
    assert "private" not in masked_body(reply, is_captured=False)
    error = b'{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no","data":"private"}}'
    shown = json.loads(masked_body(error, is_captured=False))
    assert shown["error"] == {"code": -1, "message": "no"}


def test_the_answers_of_a_user_are_hidden_also_where_calls_are_captured() -> None:
    reply = b'{"jsonrpc":"2.0","id":7,"result":{"action":"accept","content":{"name":"private"}}}'
    shown = masked_body(reply, is_captured=True, hides_answers=True)
    assert "private" not in shown
    assert "accept" in shown
    assert "private" not in masked_part(reply, ("result",), hides_answers=True)
    later = b'{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"a","inputResponses":{"q":{"content":"private"}}}}'
    assert "private" not in masked_body(later, is_captured=True)


@pytest.mark.parametrize(
    "body", [b"", b"\xff\xfe", b"{", b"[" * 100_000, b"null", b"[1]", b'"' + b"\\u202e" * 10 + b'"']
)
def test_a_message_that_is_none_is_shown_as_such(body: bytes) -> None:
    for is_captured in (True, False):
        text = masked_body(body, is_captured=is_captured)
        assert json.loads(text) is not None or body == b"null"
        assert "\u202e" not in text


HOSTILE: list[Any] = [
    "eyJ-" * 50_000,
    "bearer " * 50_000,
    "&token" * 50_000,
    "://a:" * 50_000,
    "?" + "a" * 200_000 + "=",
    {"k" * 100_000: "v" * 100_000},
    [[["x" * 1_000] * 100] * 100] * 10,
    {str(number): number for number in range(100_000)},
    10**4_000,
]


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_a_large_value_is_cut_and_takes_little_time(value: Any) -> None:
    began = time.process_time()
    shown = masked(value)
    assert time.process_time() - began < 0.5  # a hundred times what it takes; a search that is not linear takes minutes
    assert len(json.dumps(shown)) < 500_000


def test_a_value_that_is_too_deep_is_left_out() -> None:
    deep: Any = "end"
    for _ in range(200):
        deep = [deep]
    text = json.dumps(masked(deep))
    assert "end" not in text
    assert LEFT_OUT in text
