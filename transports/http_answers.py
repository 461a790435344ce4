"""What goes back over HTTP: error bodies, headers, and the frames of an event stream. Pure.

A header that comes from outside this file (an origin, a session's id, what a gatekeeper says) passes through `field`, so nobody
can put a line break into an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from greenroom.protocol import sse
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.messages import encode_error
from greenroom.supervision.kernel.spelling import visible as shown

from .http_checks import EVENTS, JSON, field

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from greenroom.protocol.messages import RequestId

    from .seam import Event

    Headers: TypeAlias = Sequence[tuple[str, str]]

SESSION_HEADER: Final = "mcp-session-id"
INSTANCE_HEADER: Final = "greenroom-instance"
"""Which process has answered: with `initialize`, and with each refusal of a request that was not acted upon. A client that hears the same one twice
knows that no load balancer has given its request to another server first, and sends it again; it could not tell otherwise."""
KEEP_ALIVE: Final = sse.KEEP_ALIVE
PIECE: Final = 16 * 1024
"""How many bytes of a stream are on their way at once, unless one event has more: the rest waits where it is kept anyway."""
PREFLIGHT_AGE: Final = "600"

SESSION_LOST: Final = "The session has ended before it answered. Send initialize to begin a new one."
STOPPED: Final = "The server stopped before this was answered; it may have been done or not"
JSON_HEADERS: Final = (("content-type", JSON),)
STREAM_HEADERS: Final = (
    ("content-type", EVENTS),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),
)
EXPOSED: Final = "WWW-Authenticate, Mcp-Session-Id, MCP-Protocol-Version"
ALLOWED: Final = ("Content-Type", "Accept", "Mcp-Session-Id", "MCP-Protocol-Version", "Last-Event-ID")


_SEEN: Final = 100
"""How much of a value that is not allowed is told."""


class Refused(Exception):
    """A request gets no further than this answer."""

    def __init__(  # noqa: PLR0913 - what the peer and the log are told
        self,
        status: int,
        headers: Headers = (),
        body: bytes = b"",
        *,
        why: str = "",
        seen: str | None = None,
        setting: str = "",
        maybe_done: bool = False,
    ) -> None:
        """The answer, whole, and what the access log says of it: why, the value that was wrong, and the setting that would allow it.

        `maybe_done`: a session may have heard of the request before it ended.
        """
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body
        self.why = why
        self.seen = seen
        self.setting = setting
        self.maybe_done = maybe_done


def invalid(
    status: int,
    message: str,
    id: RequestId | None = None,
    headers: Headers = (),
    *,
    seen: str | None = None,
    setting: str = "",
) -> Refused:
    """A refusal as a JSON-RPC error, for the request of that id where one was read: whatever the verb, a peer can read it."""
    told = message if seen is None else f"{message} (it says {shown(seen, _SEEN)!r})"
    body = encode_error(id, McpError(ErrorCode.INVALID_REQUEST, told))
    return Refused(status, (*JSON_HEADERS, *headers), body, why=message, seen=seen, setting=setting)


def lost(id: RequestId | None) -> bytes:
    """The answer to a request that a session was at when it ended."""
    return encode_error(id, McpError(ErrorCode.INTERNAL_ERROR, SESSION_LOST))


def stopped(id: RequestId | None) -> bytes:
    """The answer to a request that was still being worked on when the server's grace was over."""
    return encode_error(id, McpError(ErrorCode.INTERNAL_ERROR, STOPPED))


def stream_headers(session_id: str) -> Headers:
    """The headers of an event stream; without an id, of one outside of any session."""
    return (*STREAM_HEADERS, field(SESSION_HEADER, session_id)) if session_id else STREAM_HEADERS


def visible(origin: str) -> Headers:
    """What lets a page of this origin, which has been looked at, read the answer."""
    return (
        field("access-control-allow-origin", origin),
        ("access-control-expose-headers", EXPOSED),
        ("vary", "Origin"),
    )


def preflight(methods: Sequence[str], more: Sequence[str], *, crossing: bool) -> Headers:
    """What a browser asks before it sends the real thing. `more` are the headers that the gatekeeper reads."""
    verbs = ", ".join(methods)
    if not crossing:
        return (("allow", verbs),)
    return (
        ("allow", verbs),
        ("access-control-allow-methods", verbs),
        field("access-control-allow-headers", ", ".join((*ALLOWED, *more))),
        ("access-control-max-age", PREFLIGHT_AGE),
    )


def frame(event: Event, retry: int | None = None) -> bytes:
    """One event, which may itself say when to come back."""
    return sse.event(event.id, event.data, retry=event.retry if event.retry is not None else retry)


def frames(events: Sequence[Event], retry: int | None = None) -> Iterator[bytes]:
    """Several of them, in as few pieces as there may be. `retry` goes with the first."""
    piece: list[bytes] = []
    size = 0
    for event in events:
        one = frame(event, retry)
        retry = None
        if size and size + len(one) > PIECE:
            yield b"".join(piece)
            piece.clear()
            size = 0
        piece.append(one)
        size += len(one)
    yield piece[0] if len(piece) == 1 else b"".join(piece)
