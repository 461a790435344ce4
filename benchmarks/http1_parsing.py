"""Parsing the heads of HTTP/1.1 requests, against h11."""

from __future__ import annotations

import h11

from greenroom.transports.http1_codec import ParserState, RequestParser

from .benchmark_types import Run, benchmark

LINES = (
    b"POST /mcp HTTP/1.1",
    b"host: 127.0.0.1:8000",
    b"accept: application/json, text/event-stream",
    b"accept-encoding: gzip, deflate",
    b"connection: keep-alive",
    b"user-agent: python-httpx/0.28.1",
    b"content-type: application/json",
    b"mcp-protocol-version: 2025-11-25",
    b"mcp-session-id: 0123456789abcdef0123456789abcdef",
)


def _messages(count: int, *, own: bool) -> list[bytes]:
    """Requests with bodies of different lengths; with a header that is each one's own, if asked for."""
    made: list[bytes] = []
    for number in range(count):
        length = 100 + number % 40
        traced = (b"traceparent: 00-%032x-%016x-01" % (number, number),) if own else ()
        lines = (*LINES, *traced, b"content-length: %d" % length, b"", b"")
        made.append(b"\r\n".join(lines) + b"x" * length)
    return made


def _read(run: Run, messages: list[bytes]) -> None:
    requests = RequestParser(32 * 1024)
    with run.measured():
        for message in messages:
            requests.feed(message)
            while requests.next() is not ParserState.MESSAGE_END:
                pass
            requests.start_next()


@benchmark("h11, an HTTP head", count=5_000)
def by_h11(run: Run) -> None:
    """A request with ten headers and a body, read by h11 on a new connection of its own."""
    messages = _messages(run.count, own=False)
    with run.measured():
        for message in messages:
            connection = h11.Connection(h11.SERVER)
            connection.receive_data(message)
            while type(connection.next_event()) is not h11.EndOfMessage:
                pass


@benchmark("greenroom, an HTTP head like the one before", count=20_000, floor=by_h11, target=0.25)
def like_the_one_before(run: Run) -> None:
    """The same requests on one connection, which differ in their lengths."""
    _read(run, _messages(run.count, own=False))


@benchmark("greenroom, an HTTP head of its own", count=20_000, floor=by_h11, target=0.5)
def of_its_own(run: Run) -> None:
    """The same with one more header, which says something else each time."""
    _read(run, _messages(run.count, own=True))
