"""Text of a peer or of a setting in a request's head appears as it is, or is refused: it never becomes another header."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import h11
from hypothesis import example, given
from hypothesis import strategies as st

from greenroom import ConfigError
from greenroom.protocol.jsonrpc import LIMITS
from greenroom.transports.client.event_stream import EventStream
from greenroom.transports.client.http_connection_pool import HttpConnectionPool
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.http_wire import is_valid_session_id, request_headers
from greenroom.transports.http_request import checked_header

URL = "http://127.0.0.1:1/mcp"
SPLITS = [
    "a\r\nx-evil: 1", "a\nx-evil: 1", "a\rx-evil: 1", "a\r\n\r\nGET / HTTP/1.1", "\r\n x-folded: 1", "a\0b",
    "a\x85x-evil: 1", "a\u2028x-evil: 1", "\u560a\u560d x-evil: 1", "a\x0bb", "a\x1b[2J", "a b", " a ", "\t", "\u00e9", "\U0001f600",
]  # fmt: skip
"""Line breaks of all kinds (two of them appear when UTF-16 is cut to bytes), and lookalikes that are none."""
TEXT = st.one_of(
    st.sampled_from(SPLITS), st.text(max_size=20), st.text(alphabet="ab:\r\n\t \0\x85\u560a\u560d", max_size=12)
)


def head(session: str = "", credentials: dict[str, str] | None = None, url: str = URL) -> list[tuple[str, str]]:
    """The headers of a request as an independent parser finds them, without those of every request."""
    address = HttpRoute(url).address
    received: Any = SimpleNamespace(method="POST", address=address, frame=b"{}", mirrored=())
    pool = object.__new__(HttpConnectionPool)
    pool._head = (None, (), "")  # as before the first request
    received.headers = request_headers((), credentials or {}, login=address.login, session=session)
    data = pool._encode(received)
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(data)
    request, body, end = reader.next_event(), reader.next_event(), reader.next_event()
    assert isinstance(request, h11.Request)
    assert isinstance(body, h11.Data)
    assert isinstance(end, h11.EndOfMessage)
    assert bytes(body.data) == b"{}"
    assert reader.trailing_data[0] == b"", "there is a second request"
    usual = {b"host", b"accept", b"content-type", b"content-length"}
    return [(name.decode(), value.decode("latin-1")) for name, value in request.headers if name not in usual]


@given(TEXT)
def test_a_session_id_cannot_inject_a_header(text: str) -> None:
    if is_valid_session_id(text):
        assert head(session=text) == [("mcp-session-id", text)]
    else:
        assert not text.isascii() or not text.isprintable() or " " in text or not text or len(text) > 1024


@given(TEXT)
def test_a_credentials_value_cannot_inject_a_header(text: str) -> None:
    refusal, found = "", [("x-key", text.strip(" \t"))]
    try:
        found = head(credentials={"x-key": text})
    except ValueError as refused:
        refusal = str(refused)
    assert refusal in ("", "invalid header"), "a secret is not repeated"
    assert found == [("x-key", text.strip(" \t"))]


@given(TEXT)
def test_a_credentials_name_cannot_inject_a_header(text: str) -> None:
    try:
        found = head(credentials={text: "v"})
    except ValueError:
        found = []
    assert found in ([], [(text.lower(), "v")])


@given(TEXT.filter(lambda text: "\n" not in text and "\r" not in text))
def test_an_event_id_cannot_inject_a_header(text: str) -> None:
    stream = EventStream(LIMITS)
    stream.feed(b"id: %b\n\n" % text.encode())
    for _, value in stream.resume_header():
        said = text.encode().decode("latin-1").strip(" \t")  # whitespace around a header's value has no meaning
        assert head(credentials={"last-event-id": value}) == [("last-event-id", said)]


@given(TEXT)
@example("/mcp HTTP/1.1\r\nx-evil: 1\r\n")
def test_a_url_path_cannot_inject_a_header(text: str) -> None:
    try:
        found = head(url=URL + "/" + text)
    except (ConfigError, ValueError):
        found = []
    assert found == []


@given(TEXT)
def test_an_authenticator_or_origin_cannot_inject_a_response_header(text: str) -> None:
    try:
        _, value = checked_header("x-a", text)
    except ValueError:
        value = ""
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    reader.send(h11.EndOfMessage())
    reader.receive_data(f"HTTP/1.1 204 No\r\nx-a: {value}\r\n\r\n".encode("latin-1"))
    answer = reader.next_event()
    assert isinstance(answer, h11.Response)
    assert list(answer.headers) == [(b"x-a", value.strip(" \t").encode("latin-1"))]
