"""The HTTP/1.1 parser: requests in any pieces, refusals, and that it never accepts what a careful other parser (h11) reads differently."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from greenroom.transports.http1_codec import MAX_HEADERS, Malformed, ParserState, RequestHead, RequestParser

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX = 4096


class Read:
    """What was parsed of some input."""

    def __init__(self) -> None:
        self.heads: list[RequestHead] = []
        self.bodies: list[bytes] = []
        self.refused = 0
        self.ends = 0


def read(pieces: Iterable[bytes], *, ahead: int = 100) -> Read:
    """Parse requests, at most so many after the first, each as if the previous one were answered at once."""
    requests, seen = RequestParser(MAX), Read()
    try:
        for piece in pieces:
            requests.feed(piece)
            while (event := requests.next()) is not ParserState.NEED_DATA:
                if isinstance(event, RequestHead):
                    seen.heads.append(event)
                    seen.bodies.append(b"")
                elif isinstance(event, bytes):
                    seen.bodies[-1] += event
                else:
                    seen.ends += 1
                    assert requests.complete
                    if seen.ends <= ahead:
                        requests.start_next()
    except Malformed as error:
        seen.refused = error.status
    return seen


def one(data: bytes) -> tuple[RequestHead, bytes]:
    seen = read([data])
    assert (seen.refused, seen.ends) == (0, 1)
    return seen.heads[0], seen.bodies[0]


def in_pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


PLAIN = b"POST /mcp?x=1 HTTP/1.1\r\nHost: localhost\r\nX-Y: a  b\t\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST / HTTP/1.1\r\nhost: localhost\r\nTransfer-Encoding: Chunked\r\n\r\n"
    b"3\r\nhel\r\n2;more=yes\r\nlo\r\n0\r\nx-trailer: 1\r\n\r\n"
)


def test_a_whole_request_is_parsed() -> None:
    head, body = one(PLAIN)
    assert (head.method, head.target, head.version, body) == ("POST", b"/mcp?x=1", "1.1", b"hello")
    assert head.headers == [(b"host", b"localhost"), (b"x-y", b"a  b"), (b"content-length", b"5")]
    assert head.persistent
    head, body = one(CHUNKED)
    assert (head.target, body) == (b"/", b"hello")


@given(st.sampled_from([PLAIN, CHUNKED, PLAIN + CHUNKED + PLAIN]), st.lists(st.integers(0, 1000), max_size=40))
def test_a_request_in_any_pieces_is_parsed(data: bytes, cuts: list[int]) -> None:
    whole, cut = read([data]), read(in_pieces(data, cuts))
    assert cut.bodies == whole.bodies
    assert [head.headers for head in cut.heads] == [head.headers for head in whole.heads]
    assert (cut.ends, cut.refused) == (whole.ends, 0)


def test_one_request_is_read_at_a_time() -> None:
    seen = read([PLAIN + PLAIN], ahead=0)
    assert (len(seen.heads), seen.ends) == (1, 1)
    requests = RequestParser(MAX)
    requests.feed(PLAIN + PLAIN)
    while requests.next() is not ParserState.MESSAGE_END:
        pass
    assert requests.next() is ParserState.NEED_DATA
    assert requests.buffered == len(PLAIN)


@pytest.mark.parametrize(
    ("head", "persistent", "expects"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n", True, False),
        (b"GET / HTTP/1.1\r\nhost: x\r\nconnection: keep-alive, Close\r\n", False, False),
        (b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n", False, False),
        (b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-Continue\r\n", True, True),
        (b"POST / HTTP/1.0\r\nexpect: 100-continue\r\n", False, False),
        (b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\nConnection: keep-alive\r\n", False, False),
        (b"GET / HTTP/1.1\r\nhost: x\r\nconnection: ,,\t close ,x\r\n", False, False),
        (b"GET / HTTP/1.1\r\nhost: x\r\nconnection: closed, not-close\r\n", True, False),
        (b"CONNECT a:1 HTTP/1.1\r\nhost: a:1\r\n", False, False),
    ],
)
def test_framing_and_persistence_follow_from_the_head(head: bytes, persistent: bool, expects: bool) -> None:  # noqa: FBT001
    found, _ = one(head + b"\r\n")
    assert (found.persistent, found.expects_continue) == (persistent, expects)


HOST = b"host: localhost\r\n"


def post(*lines: bytes, body: bytes = b"") -> bytes:
    return b"".join((b"POST / HTTP/1.1\r\n", HOST, *(line + b"\r\n" for line in lines), b"\r\n", body))


def chunks(body: bytes) -> bytes:
    return post(b"transfer-encoding: chunked", body=body)


@pytest.mark.row("ST-27")
@pytest.mark.parametrize(
    ("data", "status"),
    [
        # two lengths of one body
        (post(b"content-length: 5", b"transfer-encoding: chunked", body=b"0\r\n\r\n"), 400),
        (post(b"transfer-encoding: chunked", b"content-length: 5", body=b"0\r\n\r\n"), 400),
        (post(b"content-length: 5", b"content-length: 5", body=b"hello"), 400),
        (post(b"content-length: 5", b"content-length: 6", body=b"hello"), 400),
        (post(b"content-length: 5, 5", body=b"hello"), 400),
        (post(b"transfer-encoding: chunked", b"transfer-encoding: chunked"), 400),
        (post(b"transfer-encoding: identity"), 501),
        (post(b"transfer-encoding: gzip, chunked"), 501),
        (post(b"transfer-encoding: xchunked"), 501),
        (b"POST / HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        # invalid lengths
        *(
            (post(b"content-length: " + said), 400)
            for said in (b"+5", b"-1", b"0x5", b"5 ,", b"", b"1e3", b"\xb2", b"9" * 19)
        ),
        # duplicate headers, and invalid ones
        (post(b" folded: x"), 400),
        (post(b"x: y", b" folded"), 400),
        (post(b"x: y", b"\tfolded"), 400),
        (post(b"content-length : 5", body=b"hello"), 400),
        (post(b"content-length\t: 5", body=b"hello"), 400),
        (post(b": x"), 400),
        (post(b"x"), 400),
        (post(b"x\0: y"), 400),
        (post(b"x: a\0b"), 400),
        (post(b"x: a\rb"), 400),
        (post(b"x: a\nb: c"), 400),
        (post(b"x: a\x0bb"), 400),
        (post(b"x: \x7f"), 400),
        (post(b"x(y): z"), 400),
        (post(b"x: y\r"), 400),
        # other line ends
        (b"GET / HTTP/1.1\nhost: x\n\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\n\n", 400),
        (b"\r\nGET / HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        # invalid request lines
        (b"GET  / HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1 \r\nhost: x\r\n\r\n", 400),
        (b"GET /\xe9 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET /a b HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET\t/ HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET / http/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET / HTTP/11\r\nhost: x\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nhost: x\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET / HTTP/0.9\r\n\r\n", 505),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", 400),
        # hosts
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        # chunks
        *(
            (chunks(said), 400)
            for said in (
                b"5\nhello\r\n0\r\n\r\n",
                b"5\r\nhello0\r\n\r\n",
                b"5\r\nhelloX\r\n0\r\n\r\n",
                b"5\r\nhello\n0\r\n\r\n",
                b"4\r\nhello\r\n0\r\n\r\n",
                b"0x5\r\nhello\r\n0\r\n\r\n",
                b"+5\r\nhello\r\n0\r\n\r\n",
                b" 5\r\nhello\r\n0\r\n\r\n",
                b"-1\r\nhello\r\n",
                b"\r\nhello\r\n",
                b"g\r\n",
                b"5_0\r\n",
                b"f" * 16 + b"\r\n",
                b"5;\x00\r\nhello\r\n",
                b"0\r\nbad trailer\r\n\r\n",
                b"0\r\n folded\r\n\r\n",
            )
        ),
        # over the limits
        (post(b"x: " + b"a" * MAX), 431),
        (b"POST / HTTP/1.1\r\nx: " + b"a" * MAX, 431),
        (post(*(b"x: y" for _ in range(MAX_HEADERS + 1))), 431),
        (chunks(b"5;" + b"x" * 2000 + b"\r\nhello\r\n0\r\n\r\n"), 400),
        (chunks(b"5;" + b"x" * 2000), 400),
        (chunks(b"0\r\n" + b"x: y\r\n" * MAX), 431),
    ],
)
def test_ambiguous_and_invalid_requests_are_refused(data: bytes, status: int) -> None:
    assert read([data]).refused == status
    assert read(data[place : place + 1] for place in range(len(data))).refused == status


def test_a_thousand_tiny_chunks_cost_linear_time() -> None:
    body = b"1\r\na\r\n" * 40_000 + b"0\r\n\r\n"
    assert one(chunks(body))[1] == b"a" * 40_000


# --- compared with h11


def by_h11(data: bytes) -> tuple[list[h11.Request], list[bytes], bool]:
    """The requests that h11 parses, their bodies, and whether it refused something."""
    heads: list[h11.Request] = []
    bodies: list[bytes] = []
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX)
    connection.receive_data(data)
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                heads.append(event)
                bodies.append(b"")
            elif isinstance(event, h11.Data):
                bodies[-1] += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                connection.send(h11.Response(status_code=204, headers=[]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is h11.MUST_CLOSE:
                    return heads, bodies, False
                connection.start_next_cycle()
            else:
                return heads, bodies, False
    except h11.RemoteProtocolError:
        return heads, bodies, True


TOKENS = st.text("abcXYZ019!#$%&'*+.^_`|~-", min_size=1, max_size=12).map(str.encode)
VALUES = st.text('ab z,;="()<>@[]{}?\\/\t\xe9\xff:1', max_size=20).map(lambda text: text.encode("latin-1").strip())
PLAIN_HEADERS = st.lists(st.tuples(TOKENS.map(lambda name: b"x-" + name), VALUES), max_size=6)


@st.composite
def right(draw: st.DrawFn) -> bytes:
    """A valid request."""
    body = draw(st.binary(max_size=60))
    lines = [
        b"host: localhost",
        *(name + b":" + draw(st.sampled_from([b"", b" ", b"\t "])) + value for name, value in draw(PLAIN_HEADERS)),
    ]
    if draw(st.booleans()):
        cuts = in_pieces(body, draw(st.lists(st.integers(0, 60), max_size=4)))
        body = b"".join(b"%x\r\n%b\r\n" % (len(cut), cut) for cut in cuts if cut) + b"0\r\n\r\n"
        lines.append(b"transfer-encoding: chunked")
    elif body or draw(st.booleans()):
        lines.append(b"content-length: %d" % len(body))
    lines = draw(st.permutations(lines))
    first = b"%b /%b HTTP/1.1" % (draw(st.sampled_from([b"GET", b"POST", b"X"])), draw(TOKENS))
    return b"\r\n".join([first, *lines, b"", b""]) + body


@given(st.lists(right(), min_size=1, max_size=3))
def test_valid_requests_are_parsed_as_by_h11(messages: list[bytes]) -> None:
    data = b"".join(messages)
    heads, bodies, refused = by_h11(data)
    seen = read([data])
    assert not refused
    assert (seen.refused, seen.bodies) == (0, bodies)
    for ours, theirs in zip(seen.heads, heads, strict=True):
        assert (ours.method.encode(), ours.target) == (theirs.method, theirs.target)
        assert ours.headers == list(theirs.headers)


SPOILS = [
    b"\n", b"\r", b"\r\n", b" ", b"\t", b"\0", b":", b"content-length: 3\r\n", b"Content-Length: 0\r\n", b"transfer-encoding: chunked\r\n",
    b"transfer-encoding: identity\r\n", b"host: b\r\n", b"1", b"0\r\n\r\n", b";", b"\x0b", b"\x80", b"HTTP/1.0", b"GET / HTTP/1.1\r\nhost: c\r\n\r\n",
]  # fmt: skip


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """A valid request after something was inserted or removed."""
    data = b"".join(draw(st.lists(right(), min_size=1, max_size=2)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        taken = draw(st.integers(0, 3))
        data = data[:place] + draw(st.sampled_from([b"", *SPOILS])) + data[place + taken :]
    return data


@given(spoiled())
@example(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n\r\nGET / HTTP/1.1\r\nhost: a\r\n\r\n")
def test_no_request_is_parsed_that_h11_parses_differently(data: bytes) -> None:
    heads, bodies, _ = by_h11(data)
    seen = read([data])
    for number, ours in enumerate(seen.heads[: seen.ends]):
        if number and not seen.heads[number - 1].persistent:
            break  # neither goes on after the end; `read` just does not look
        assert number < len(heads), f"h11 has refused {ours.headers}"
        theirs = heads[number]
        assert (ours.method.encode(), ours.target) == (theirs.method, theirs.target)
        assert ours.headers == list(theirs.headers)
        assert seen.bodies[number] == bodies[number]


# --- heads equal to the previous one


def after(first: bytes, second: bytes) -> tuple[RequestHead, RequestHead]:
    """Both heads, the second one parsed after the first."""
    seen = read([first, second])
    assert (seen.refused, seen.ends) == (0, 2), second
    return seen.heads[0], seen.heads[1]


def parts(head: RequestHead) -> dict[str, object]:
    own = {name: getattr(head, name) for name in RequestHead.__slots__ if name not in ("previous", "fields")}
    return {**own, "folded": head.folded()}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (post(b"Content-Length: 5", b"x: y", body=b"hello"), post(b"Content-Length: 12", b"x: y", body=b"hello, world")),
        (post(b"content-length: 5", body=b"hello"), post(b"content-length: 0")),
        (post(b"content-length: 005", body=b"hello"), post(b"content-length: 2", body=b"he")),
        (post(b"content-length: 5", body=b"hello"), post(b"content-length:05", body=b"hello")),
        (post(b"x: y"), post(b"x: y")),
        (post(b"x: y"), post(b"x: z")),
        (post(b"x: y"), post(b"x: y", b"z: a")),
        (post(b"x: content-length: 5"), post(b"x: content-length: 6")),
        (post(b"expect: 100-continue", b"content-length: 1", body=b"a"), post(b"expect: 100-continue", b"content-length: 1", body=b"b")),
        (chunks(b"1\r\na\r\n0\r\n\r\n"), chunks(b"0\r\n\r\n")),
        (post(b"upgrade: websocket"), post(b"upgrade: websocket")),
    ],
)  # fmt: skip
def test_a_repeated_head_is_parsed_as_by_a_new_parser(first: bytes, second: bytes) -> None:
    assert parts(after(first, second)[1]) == parts(one(second)[0])


@pytest.mark.parametrize(
    "second",
    [
        *(post(b"content-length: " + digits, body=b"hello") for digits in (b"", b"+5", b"5 5", b"0x5", b"9" * 19, b"5,5", b"\xb2")),
        post(b"content-length: 5\n", body=b"hello"),
        post(b"content-length: 5", b"content-length: 5", body=b"hello"),
        post(b"content-length: 5", b"transfer-encoding: chunked", body=b"hello"),
    ],
)  # fmt: skip
def test_an_invalid_length_in_a_repeated_head_is_refused(second: bytes) -> None:
    seen = read([post(b"content-length: 5", body=b"hello"), second])
    assert (seen.refused, seen.ends) == (400, 1)


def test_an_application_that_changes_headers_does_not_affect_later_requests() -> None:
    requests, data = RequestParser(MAX), post(b"expect: 100-continue")
    for _ in range(3):
        requests.feed(data)
        head = requests.next()
        assert isinstance(head, RequestHead)
        assert (head.headers, head.expects_continue) == ([(b"host", b"localhost"), (b"expect", b"100-continue")], True)
        head.headers.clear()
        head.expects_continue = False
        assert requests.next() is ParserState.MESSAGE_END
        requests.start_next()


def test_a_long_head_is_not_kept_and_is_parsed_again() -> None:
    requests, long = RequestParser(1 << 16), post(b"x: " + b"a" * 5000)
    for _ in range(2):
        requests.feed(long)
        assert isinstance(requests.next(), RequestHead)
        assert requests._previous is None
        assert requests.next() is ParserState.MESSAGE_END
        requests.start_next()


@given(
    st.lists(right(), min_size=1, max_size=2), st.integers(0, 400), st.sampled_from([b"", *SPOILS]), st.integers(0, 3)
)
def test_an_earlier_request_does_not_affect_the_next(messages: list[bytes], place: int, put: bytes, taken: int) -> None:
    """The same request again with something inserted or removed: parsed or refused as by a new parser."""
    data = messages[-1]
    changed = data[:place] + put + data[place + taken :]
    known, new = read([*messages, changed]), read([changed])
    assert known.refused == new.refused
    if all(head.persistent for head in known.heads):
        assert [parts(head) for head in known.heads[len(messages) :]] == [parts(head) for head in new.heads]
        assert known.bodies[len(messages) :] == new.bodies
