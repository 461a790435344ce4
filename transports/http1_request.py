"""One HTTP/1.1 request on a connection and the response to it.

For the engine it is a body to read and a `Responder`; for an ASGI application it provides scope, `receive` and `send`. When the body of a response is available
at once, head and body go out in one write. Input is buffered up to a bound; beyond that the connection is not read until the application has consumed some.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from .asgi import SERVER_HAS_WRITE_TIMEOUT
from .http1_codec import CONTINUE, EncodedHead, Framing, RequestHead, encode_head, encode_response, wall_clock
from .http_request import NO_CONTENT, BodyReader, Interruption, PeerGone, body_timeout_error, encode_headers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable
    from typing import Protocol

    from .asgi import Message, Scope
    from .http_config import HttpConfig
    from .http_request import BodyShare, Headers

UNREAD_LIMIT: Final = 64 * 1024
"""How many bytes of a body are buffered before the connection stops reading."""

if TYPE_CHECKING:

    class RequestConnection(Protocol):
        """The methods of a connection that a request needs."""

        peer: tuple[str, int] | None
        here: tuple[str, int] | None
        scheme: str

        @property
        def is_last(self) -> bool:
            """Whether no further request is served on this connection."""
            ...

        def write(self, data: bytes) -> None:
            """Send bytes, now or as soon as the kernel accepts them."""

        def wait_sent(self) -> Awaitable[None] | None:
            """An awaitable until the kernel has accepted all bytes; None if it has."""

        def update_reading(self) -> None:
            """Resume reading if input was paused and the buffer has room again."""


_COPY_LIMIT: Final = 64 * 1024
"""Up to this size a body is copied behind its head, so that both go out in one write."""
_WRITE_SIZE: Final = 256 * 1024
"""A longer body is written in slices: copying all of it for the kernel, and again what the kernel refuses, would hold up the loop."""
_ASGI: Final = {"spec_version": "2.1", "version": "3.0"}
_DISCONNECT: Final = "http.disconnect"
_FAST_STATUSES: Final = (200, 202)
_CONNECTION_HEADERS: Final = frozenset({b"connection", b"transfer-encoding", b"content-length"})
_EVENTS: Final = b"text/event-stream"


class Http1Request(BodyReader):
    """One HTTP/1.1 request and its response."""

    around = None
    __slots__ = (
        "_body_complete",
        "_changed",
        "_connection",
        "_delivered",
        "_encoded_head",
        "_held_head",
        "_length_left",
        "_pieces",
        "head",
        "is_answered",
        "is_endless",
        "unread",
        "waiting",
    )

    def __init__(self, connection: RequestConnection, head: RequestHead, config: HttpConfig) -> None:
        super().__init__(config)
        self._connection = connection
        self.head = head
        self._pieces: list[bytes] = []
        self.unread = 0
        """How many bytes of the body the application has not read yet."""
        self._body_complete = False
        self._delivered = False
        self._changed: asyncio.Event | None = None
        self._encoded_head: EncodedHead | None = None
        self._held_head = b""
        self._length_left = 0
        self.is_answered = False
        self.is_endless = False
        """Whether the response is an event stream that ends when the peer sends no more, since it would go on for a peer that has gone."""
        self.waiting = Interruption()
        """Interrupts the handler when the peer disconnects."""

    @property
    def http_version(self) -> str:
        """The version of HTTP."""
        return self.head.version

    @property
    def is_unanswered(self) -> bool:
        """Whether no byte of the response has been sent."""
        return not self.is_answered and (self._encoded_head is None or bool(self._held_head))

    @property
    def keeps_alive(self) -> bool:
        """Whether the heads of request and response allow another request on the connection."""
        return self._encoded_head is None or not self._encoded_head.closing

    def scope(self) -> Scope:
        """The request's ASGI scope."""
        head, connection = self.head, self._connection
        path, raw, query = parts_of(head.target)
        return {
            "type": "http",
            "http_version": head.version,
            "asgi": _ASGI,
            "method": head.method,
            "scheme": connection.scheme,
            "path": path,
            "raw_path": raw,
            "query_string": query,
            "root_path": "",
            "headers": head.headers,
            "client": connection.peer,
            "server": connection.here,
            "state": {SERVER_HAS_WRITE_TIMEOUT: True},
            "extensions": {},
        }

    # --- called by the connection

    def feed(self, piece: bytes) -> None:
        """Add a piece of the body."""
        if piece:
            self._pieces.append(piece)
            self.unread += len(piece)
            self._wake()

    def feed_end(self) -> None:
        """The body is complete."""
        self._body_complete = True
        self._wake()

    def disconnect(self) -> None:
        """The peer has disconnected."""
        self.gone = True
        self._wake()
        self.waiting.interrupt()

    def _wake(self) -> None:
        if self._changed is not None:
            self._changed.set()

    # --- the body

    def use_limits_of(self, config: HttpConfig) -> None:
        """Apply that configuration's limits to the body from now on."""
        self._config = config

    def whole_body(self) -> bytes | None:
        """A body that arrived whole together with its head, as most do; None otherwise, and then `body` reads it."""
        if not self._body_complete or len(self._pieces) != 1:
            return None
        pieces, self._pieces = self._pieces, []
        self._rest, self._delivered, self.unread = False, True, 0
        if len(pieces[0]) > UNREAD_LIMIT:
            self._connection.update_reading()
        return pieces[0]

    async def body(self, share: BodyShare) -> bytes:
        """Read the whole body within its share of the memory budget. Raises `HttpRequestRefused` and `PeerGone`."""
        try:
            async with asyncio.timeout(self._config.body_timeout):
                return await self._gather(share)
        except TimeoutError:
            self._rest = False  # do not wait for the rest of a slow body again
            raise body_timeout_error() from None

    async def _chunk(self) -> bytes:
        chunk = await self._more()
        if chunk is None:
            raise PeerGone
        self._rest = not self._delivered
        return chunk

    async def _more(self) -> bytes | None:
        """More of the body, possibly empty at its end; None once all was delivered or the peer is gone."""
        while not (self.gone or self.is_answered):
            if not self._delivered:
                if self._pieces or self._body_complete:
                    pieces, self._pieces = self._pieces, []
                    self.unread = 0
                    self._delivered = self._body_complete
                    self._connection.update_reading()
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
                if self.head.expects_continue and self.is_unanswered:
                    self.head.expects_continue = False
                    self._connection.write(CONTINUE)
            if self._changed is None:
                self._changed = asyncio.Event()
            self._changed.clear()
            await self._changed.wait()
        return None

    # --- the responder, for the engine

    async def reply(self, status: int, headers: Headers, body: bytes) -> None:
        if (
            self._rest and not self._body_complete and not self.head.expects_continue
        ):  # a peer that expects 100-continue has sent no body yet
            await self._discard()
        if self.gone:
            return
        request, lines = self.head, encode_headers(headers)
        if (
            status in _FAST_STATUSES
            and not any(name in _CONNECTION_HEADERS for name, _ in lines)
            and len(body) <= _COPY_LIMIT
            and request.method == "POST"
            and request.persistent
            and self._body_complete
            and not self._connection.is_last
        ):
            data = encode_response(status, lines, body, wall_clock())
            self.is_answered = True
            self._connection.write(data)
            await self._wait_sent()
        else:
            length = () if status == NO_CONTENT else ((b"content-length", b"%d" % len(body)),)
            await self._start(status, (*lines, *length))
            await self._body(body, more=False)

    async def stream_start(self, status: int, headers: Headers, *, until_eof: bool = False) -> None:
        self.is_endless = until_eof
        if (
            self._rest and not self._body_complete and not self.head.expects_continue
        ):  # a peer that expects 100-continue has sent no body yet
            await self._discard()
        await self._start(status, encode_headers(headers))

    async def stream_chunk(self, data: bytes) -> bool:
        await self._body(data, more=True)
        return not self.gone

    async def stream_end(self) -> None:
        if self._encoded_head is not None:  # otherwise the peer left before the response began
            await self._body(b"", more=False)

    # --- ASGI

    async def receive(self) -> Message:
        """More of the body; after all of it, the disconnect as soon as it happens."""
        chunk = await self._more()
        if chunk is None:
            return {"type": _DISCONNECT}
        return {"type": "http.request", "body": chunk, "more_body": not self._delivered}

    async def send(self, message: Message) -> None:
        """Send a part of the response. Raises `RuntimeError` for a message that is not valid at this point."""
        kind = message["type"]
        if kind == "http.response.body" and self._encoded_head is not None and not self.is_answered:
            await self._body(message.get("body", b""), more=message.get("more_body", False))
        elif kind == "http.response.start" and self._encoded_head is None:
            await self._start(message["status"], message.get("headers", ()))
        else:
            raise RuntimeError(f"{kind} is not valid at this point of a response")

    async def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        request = self.head
        more = request.persistent and self._body_complete and not self._connection.is_last
        encoded_head = encode_head(
            status, headers, method=request.method, version=request.version, persistent=more, now=wall_clock()
        )
        self._encoded_head, self._held_head, self._length_left = encoded_head, encoded_head.head, encoded_head.length
        if request.method == "GET" and encoded_head.framing in (Framing.CHUNKS, Framing.CLOSE):
            self.is_endless = any(
                name.lower() == b"content-type" and value.startswith(_EVENTS) for name, value in headers
            )
        if encoded_head.framing not in (Framing.LENGTH, Framing.NONE) and not self.gone:
            self._connection.write(self._held_head)
            self._held_head = b""
            await self._wait_sent()

    async def _body(self, data: bytes, *, more: bool) -> None:
        if len(data) <= _WRITE_SIZE:
            await self._piece(data, more=more)
            return
        view: Any = memoryview(data)  # the transport accepts a memoryview like bytes, and slicing one copies nothing
        for start in range(0, len(view), _WRITE_SIZE):
            if start:
                await asyncio.sleep(0)  # other tasks get a turn, even if the kernel accepts everything
            if self.gone:
                return
            end = start + _WRITE_SIZE
            await self._piece(view[start:end], more=more or end < len(view))

    async def _piece(self, data: bytes, *, more: bool) -> None:
        assert self._encoded_head is not None
        framed = self._framed(data, self._encoded_head, more=more)
        held, self._held_head = self._held_head, b""
        if self.gone:
            return
        if held and len(framed) > _COPY_LIMIT:
            self._connection.write(held)
        elif held:
            framed = held + framed
        if framed:
            self._connection.write(framed)
        await self._wait_sent()

    async def _wait_sent(self) -> None:
        waiting = self._connection.wait_sent()
        if waiting is not None:
            await waiting

    def _framed(self, data: bytes, encoded_head: EncodedHead, *, more: bool) -> bytes:
        if encoded_head.framing is Framing.LENGTH:
            self._length_left -= len(data)
            if self._length_left < 0 or (self._length_left and not more):
                self._encoded_head = encoded_head._replace(closing=True)
                raise RuntimeError("the body's size differs from its content-length")
        elif encoded_head.framing is Framing.CHUNKS:
            if data:
                data = b"%x\r\n%b\r\n" % (len(data), data)
            if not more:
                data = b"%b0\r\n\r\n" % data
        elif encoded_head.framing is Framing.NONE:
            data = b""
        self.is_answered = not more
        return data


@lru_cache(maxsize=256)
def _known_parts(target: bytes) -> tuple[str, bytes, bytes]:
    raw, _, query = target.partition(b"?")
    return unquote(raw.decode("ascii")), raw, query


def parts_of(target: bytes) -> tuple[str, bytes, bytes]:
    """The request's path as text and as sent, and its query. Only paths are cached, since queries belong to one peer."""
    if b"?" in target or len(target) > 256:  # noqa: PLR2004 - nor is that
        return _known_parts.__wrapped__(target)
    return _known_parts(target)
