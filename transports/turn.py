"""One HTTP/1.1 request on a connection, and its answer.

To the engine it is a body to be read and a `Responder`; to an ASGI application, its scope, `receive` and `send`. The head of an answer goes
out with the body where there is one at once, in one write. What the peer sends is taken as it comes, up to a bound; beyond that its
connection is not read until the application has had it.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from .asgi import PATIENT
from .http1 import CONTINUE, Framing, Head, Shape, answer, head, wall
from .http_exchange import NO_CONTENT, Incoming, Interruption, PeerGone, encoded, slow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable
    from typing import Protocol

    from .asgi import Message, Scope
    from .http_config import HttpConfig
    from .http_exchange import BodyShare, Headers

AHEAD: Final = 64 * 1024
"""How many bytes are read that no application has taken yet."""

if TYPE_CHECKING:

    class Line(Protocol):
        """What a turn needs of its connection."""

        peer: tuple[str, int] | None
        here: tuple[str, int] | None
        scheme: str

        @property
        def last(self) -> bool:
            """Whether this is the last request that it takes."""
            ...

        def write(self, data: bytes) -> None:
            """Send it, now or as soon as the kernel takes it."""

        def sent(self) -> Awaitable[None] | None:
            """What to wait for until the kernel has it all; None if it has."""

        def relax(self) -> None:
            """Something was taken: read on, if that was waited for."""


_JOINED: Final = 64 * 1024
"""Up to this size, a body is worth copying behind its head."""
_PIECE: Final = 256 * 1024
"""A longer body goes out in pieces: to copy all of it for the kernel, and again for what that does not take, would hold up the loop."""
_ASGI: Final = {"spec_version": "2.1", "version": "3.0"}
_GONE: Final = "http.disconnect"
_PLAIN: Final = (200, 202)
_OF_THE_CONNECTION: Final = frozenset({b"connection", b"transfer-encoding", b"content-length"})
_EVENTS: Final = b"text/event-stream"


class Turn(Incoming):
    """One request and its answer."""

    __slots__ = (
        "_delivered",
        "_held",
        "_left",
        "_line",
        "_news",
        "_pieces",
        "_shape",
        "_whole",
        "answered",
        "endless",
        "head",
        "unread",
        "waiting",
    )

    def __init__(self, line: Line, head: Head, config: HttpConfig) -> None:
        """Its head has been read, and maybe no more."""
        super().__init__(config)
        self._line = line
        self.head = head
        self._pieces: list[bytes] = []
        self.unread = 0
        """How many bytes of the body wait for the application."""
        self._whole = False
        self._delivered = False
        self._news: asyncio.Event | None = None
        self._shape: Shape | None = None
        self._held = b""
        self._left = 0
        self.answered = False
        self.endless = False
        """Whether the answer is a stream of events that was not asked for anything in particular."""
        self.waiting = Interruption()
        """What ends when the peer leaves."""

    @property
    def silent(self) -> bool:
        """Whether nothing of the answer is out."""
        return not self.answered and (self._shape is None or bool(self._held))

    @property
    def persistent(self) -> bool:
        """Whether another request may follow, as far as head and answer say."""
        return self._shape is None or not self._shape.closing

    def scope(self) -> Scope:
        """What ASGI says of a request."""
        head, line = self.head, self._line
        path, raw, query = parts_of(head.target)
        return {
            "type": "http",
            "http_version": head.version,
            "asgi": _ASGI,
            "method": head.method,
            "scheme": line.scheme,
            "path": path,
            "raw_path": raw,
            "query_string": query,
            "root_path": "",
            "headers": head.headers,
            "client": line.peer,
            "server": line.here,
            "state": {PATIENT: True},
            "extensions": {},
        }

    # --- what the connection says

    def take(self, piece: bytes) -> None:
        """More of the body."""
        if piece:
            self._pieces.append(piece)
            self.unread += len(piece)
            self._wake()

    def end(self) -> None:
        """That was all of it."""
        self._whole = True
        self._wake()

    def leave(self) -> None:
        """The peer is gone."""
        self.gone = True
        self._wake()
        self.waiting.interrupt()

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()

    # --- the body

    def read_within(self, config: HttpConfig) -> None:
        """What bounds the body, from now on."""
        self._config = config

    def taken(self) -> bytes | None:
        """All of a body that came at once with its head, as most do: it is in memory already."""
        if not self._whole or len(self._pieces) != 1:
            return None
        pieces, self._pieces = self._pieces, []
        self._rest, self._delivered, self.unread = False, True, 0
        if len(pieces[0]) > AHEAD:
            self._line.relax()
        return pieces[0]

    async def body(self, share: BodyShare) -> bytes:
        """All of the body, within its share of the memory for bodies. Raises `Refused` and `PeerGone`."""
        try:
            async with asyncio.timeout(self._config.body_timeout):
                return await self._gather(share)
        except TimeoutError:
            self._rest = False  # a peer that was this slow is not waited for again
            raise slow() from None

    async def _chunk(self) -> bytes:
        chunk = await self._more()
        if chunk is None:
            raise PeerGone
        self._rest = not self._delivered
        return chunk

    async def _more(self) -> bytes | None:
        """More of the body, perhaps the empty end of it; None once it has all been had, or the peer is gone."""
        while not (self.gone or self.answered):
            if not self._delivered:
                if self._pieces or self._whole:
                    pieces, self._pieces = self._pieces, []
                    self.unread = 0
                    self._delivered = self._whole
                    self._line.relax()
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
                if self.head.expects and self.silent:
                    self.head.expects = False
                    self._line.write(CONTINUE)
            if self._news is None:
                self._news = asyncio.Event()
            self._news.clear()
            await self._news.wait()
        return None

    # --- what the engine says

    async def reply(self, status: int, headers: Headers, body: bytes) -> None:
        """The whole answer."""
        if self._rest and not self._whole and not self.head.expects:  # a peer that waits to be told sends nothing
            await self._discard()
        if self.gone:
            return
        request, lines = self.head, encoded(headers)
        if (
            status in _PLAIN
            and not any(name in _OF_THE_CONNECTION for name, _ in lines)
            and len(body) <= _JOINED
            and request.method == "POST"
            and request.persistent
            and self._whole
            and not self._line.last
        ):
            data = answer(status, lines, body, wall())
            self.answered = True
            self._line.write(data)
            await self._sent()
        else:
            length = () if status == NO_CONTENT else ((b"content-length", b"%d" % len(body)),)
            await self._start(status, (*lines, *length))
            await self._body(body, more=False)

    async def stream_start(self, status: int, headers: Headers) -> None:
        """An answer begins whose length is not known."""
        if self._rest and not self._whole and not self.head.expects:  # a peer that waits to be told sends nothing
            await self._discard()
        await self._start(status, encoded(headers))

    async def stream_chunk(self, data: bytes) -> bool:
        """More of it. False when it will not be read."""
        await self._body(data, more=True)
        return not self.gone

    async def stream_end(self) -> None:
        """That was all."""
        if self._shape is not None:  # else the peer left before it began
            await self._body(b"", more=False)

    # --- what an ASGI application says

    async def receive(self) -> Message:
        """More of the body; once it has all been had, the disconnect, as soon as there is one."""
        chunk = await self._more()
        if chunk is None:
            return {"type": _GONE}
        return {"type": "http.request", "body": chunk, "more_body": not self._delivered}

    async def send(self, message: Message) -> None:
        """Some of the answer. Raises `RuntimeError` for what makes none."""
        kind = message["type"]
        if kind == "http.response.body" and self._shape is not None and not self.answered:
            await self._body(message.get("body", b""), more=message.get("more_body", False))
        elif kind == "http.response.start" and self._shape is None:
            await self._start(message["status"], message.get("headers", ()))
        else:
            raise RuntimeError(f"{kind} makes no sense at this point of an answer")

    async def _start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        request = self.head
        more = request.persistent and self._whole and not self._line.last
        shape = head(status, headers, method=request.method, version=request.version, persistent=more, now=wall())
        self._shape, self._held, self._left = shape, shape.head, shape.length
        if request.method == "GET" and shape.framing in (Framing.CHUNKS, Framing.CLOSE):
            self.endless = any(name.lower() == b"content-type" and value.startswith(_EVENTS) for name, value in headers)
        if shape.framing not in (Framing.LENGTH, Framing.NONE) and not self.gone:
            self._line.write(self._held)
            self._held = b""
            await self._sent()

    async def _body(self, data: bytes, *, more: bool) -> None:
        if len(data) <= _PIECE:
            await self._piece(data, more=more)
            return
        view: Any = memoryview(data)  # for its receiver it is as good as bytes
        for start in range(0, len(view), _PIECE):
            if start:
                await asyncio.sleep(0)  # a kernel that takes all of it must not keep all others waiting
            if self.gone:
                return
            end = start + _PIECE
            await self._piece(view[start:end], more=more or end < len(view))

    async def _piece(self, data: bytes, *, more: bool) -> None:
        assert self._shape is not None
        framed = self._framed(data, self._shape, more=more)
        held, self._held = self._held, b""
        if self.gone:
            return
        if held and len(framed) > _JOINED:
            self._line.write(held)
        elif held:
            framed = held + framed
        if framed:
            self._line.write(framed)
        await self._sent()

    async def _sent(self) -> None:
        waiting = self._line.sent()
        if waiting is not None:
            await waiting

    def _framed(self, data: bytes, shape: Shape, *, more: bool) -> bytes:
        if shape.framing is Framing.LENGTH:
            self._left -= len(data)
            if self._left < 0 or (self._left and not more):
                self._shape = shape._replace(closing=True)
                raise RuntimeError("the body is not as long as its content-length says")
        elif shape.framing is Framing.CHUNKS:
            if data:
                data = b"%x\r\n%b\r\n" % (len(data), data)
            if not more:
                data = b"%b0\r\n\r\n" % data
        elif shape.framing is Framing.NONE:
            data = b""
        self.answered = not more
        return data


@lru_cache(maxsize=256)
def _known_parts(target: bytes) -> tuple[str, bytes, bytes]:
    raw, _, query = target.partition(b"?")
    return unquote(raw.decode("ascii")), raw, query


def parts_of(target: bytes) -> tuple[str, bytes, bytes]:
    """A request's path, as text and as it was sent, and its query, which is one peer's own and not remembered."""
    if b"?" in target or len(target) > 256:  # noqa: PLR2004 - nor is that
        return _known_parts.__wrapped__(target)
    return _known_parts(target)
