"""One request on a connection and its answer, as an ASGI application sees them: its scope, `receive` and `send`.

The head of an answer goes out with the body where there is one at once, in one write. What the peer sends is taken as it comes, up to a
bound; beyond that its connection is not read until the application has had it.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from .asgi import PATIENT
from .http1_head import CONTINUE, Framing, Shape, head, wall

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Protocol

    from .asgi import Message, Scope
    from .http1 import Head

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
_EVENTS: Final = b"text/event-stream"


class Turn:
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
        "gone",
        "head",
        "unread",
    )

    def __init__(self, line: Line, head: Head) -> None:
        """Its head has been read, and maybe no more."""
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
        self.gone = False
        """Whether there is nobody left to answer."""

    @property
    def silent(self) -> bool:
        """Whether nothing of the answer is out."""
        return self._shape is None or bool(self._held)

    @property
    def persistent(self) -> bool:
        """Whether another request may follow, as far as head and answer say."""
        return self._shape is not None and not self._shape.closing

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

    def _wake(self) -> None:
        if self._news is not None:
            self._news.set()

    # --- what the application says

    async def receive(self) -> Message:
        """More of the body; once it has all been had, the disconnect, as soon as there is one."""
        while True:
            if self.gone or self.answered:
                return {"type": _GONE}
            if not self._delivered:
                if self._pieces or self._whole:
                    return self._next()
                if self.head.expects and self.silent:
                    self.head.expects = False
                    self._line.write(CONTINUE)
            if self._news is None:
                self._news = asyncio.Event()
            self._news.clear()
            await self._news.wait()

    def _next(self) -> dict[str, Any]:
        pieces, self._pieces = self._pieces, []
        self.unread = 0
        self._delivered = self._whole
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._line.relax()
        return {"type": "http.request", "body": body, "more_body": not self._whole}

    async def send(self, message: Message) -> None:
        """Some of the answer. Raises `RuntimeError` for what makes none."""
        body = message.get("body", b"")
        if len(body) <= _PIECE:
            await self._send(message)
            return
        view = memoryview(body)
        for start in range(0, len(view), _PIECE):
            if start:
                await asyncio.sleep(0)  # a kernel that takes all of it must not keep everybody else waiting
            if self.gone:
                return
            end = start + _PIECE
            more = message.get("more_body", False) or end < len(view)
            await self._send({**message, "body": view[start:end], "more_body": more})

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.body" and self._shape is not None and not self.answered:
            data, shape = self._framed(message, self._shape)
            held, self._held = self._held, b""
            if self.gone:
                return
            if held and len(data) > _JOINED:
                self._line.write(held)
            elif held:
                data = held + data
            if data:
                self._line.write(data)
        elif kind == "http.response.start" and self._shape is None:
            shape = self._shape = self._begin(message)
            if shape.framing in (Framing.LENGTH, Framing.NONE) or self.gone:
                return
            self._line.write(self._held)
            self._held = b""
        else:
            raise RuntimeError(f"{kind} makes no sense at this point of an answer")
        waiting = self._line.sent()
        if waiting is not None:
            await waiting

    def _begin(self, message: Message) -> Shape:
        head = self.head
        more = head.persistent and self._whole and not self._line.last
        shape = head_of(message, head, persistent=more)
        self._held = shape.head
        self._left = shape.length
        if head.method == "GET" and shape.framing in (Framing.CHUNKS, Framing.CLOSE):
            self.endless = any(
                name.lower() == b"content-type" and value.startswith(_EVENTS)
                for name, value in message.get("headers", ())
            )
        return shape

    def _framed(self, message: Message, shape: Shape) -> tuple[bytes, Shape]:
        data: bytes = message.get("body", b"")
        more: bool = message.get("more_body", False)
        if shape.framing is Framing.LENGTH:
            self._left -= len(data)
            if self._left < 0 or (self._left and not more):
                self._shape = shape._replace(closing=True)
                raise RuntimeError("the body is not as long as its content-length says")
        elif shape.framing is Framing.CHUNKS:
            if data:
                data = b"%x\r\n%b\r\n" % (len(data), data)
            if not more:
                data += b"0\r\n\r\n"
        elif shape.framing is Framing.NONE:
            data = b""
        self.answered = not more
        return data, shape


def head_of(message: Message, request: Head, *, persistent: bool) -> Shape:
    """The head of the answer that a message begins."""
    return head(
        message["status"],
        message.get("headers", ()),
        method=request.method,
        version=request.version,
        persistent=persistent,
        now=wall(),
    )


@lru_cache(maxsize=256)
def _known_parts(target: bytes) -> tuple[str, bytes, bytes]:
    raw, _, query = target.partition(b"?")
    return unquote(raw.decode("ascii")), raw, query


def parts_of(target: bytes) -> tuple[str, bytes, bytes]:
    """A request's path, as text and as it was sent, and its query, which is one peer's own and not remembered."""
    if b"?" in target or len(target) > 256:  # noqa: PLR2004 - nor is that
        return _known_parts.__wrapped__(target)
    return _known_parts(target)
