"""Arguments that are packed for another node are the same when they are unpacked."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.errors import PeerError, RemoteProtocolError, Unacceptable
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse
from greenroom.transports.client.errors import ConnectionLost, HttpError, ProcessDied, ResponseTooLarge, Unauthorized
from greenroom.transports.client.interfaces import InvalidMessage, StreamGap, UnansweredRequest
from greenroom.transports.client.remote_wire import pack, unpack

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 90), 1 << 90) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECT = st.dictionaries(st.text(), JSON, max_size=4)
ID = st.text() | st.integers(-(1 << 90), 1 << 90)
MESSAGE = st.one_of(
    st.builds(JsonRpcResponse, ID, OBJECT),
    st.builds(JsonRpcNotification, st.text(), OBJECT),
    st.builds(JsonRpcRequest, ID, st.text(), OBJECT),
    st.builds(JsonRpcError, ID | st.none(), st.builds(PeerError, st.integers(), st.text(), JSON)),
)


def there_and_back(*heard: Any) -> list[Any]:
    data, plain = pack(heard)
    return unpack(data, plain=plain)


@given(st.lists(MESSAGE, max_size=4))
def test_messages(heard: list[Any]) -> None:
    assert there_and_back(*heard) == heard


@pytest.mark.parametrize(
    "error",
    [
        ConnectionLost("it hung up"),
        ProcessDied("a command", -9, "its last words"),
        HttpError(503, "busy", "a place"),
        Unauthorized(401, "", "a place", 'Bearer realm="x"'),
        ResponseTooLarge(5, 4),
    ],
    ids=lambda error: type(error).__name__,
)
def test_losses(error: Any) -> None:
    (lost,) = there_and_back(UnansweredRequest(7, error, resend=True, ending=True))
    assert lost[0] == 7
    assert lost[2:] == (True, True)
    assert type(lost.error) is type(error)
    assert vars(lost.error) == vars(error)
    assert str(lost.error) == str(error)


@pytest.mark.parametrize("kind", [RemoteProtocolError, Unacceptable])
def test_invalid_handshake_messages_are_refused(kind: type[RemoteProtocolError]) -> None:
    error = kind(-32600, "no message", {"why": 1 << 70}, "a", 413)
    error.response_to = 12
    (broken,) = there_and_back(InvalidMessage(error, "sample"))
    assert type(broken.error) is kind
    assert vars(broken.error) == vars(error)
    assert broken.sample == "sample"


def test_a_gap() -> None:
    assert there_and_back(StreamGap("why")) == [StreamGap("why")]
