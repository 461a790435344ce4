"""One request on an HTTP/2 connection and its response: the side that an ASGI application sees.

Input is buffered until the application reads it, up to the stream's flow-control window; the window is replenished as the application
reads. Output waits for the peer's window: a peer that opens none until the write timeout loses this stream and no other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from greenroom.supervision import tracebacks

from .asgi import SERVER_HAS_WRITE_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .asgi import App, Message, Scope
    from .http2_connection import Http2Connection

    Header = tuple[bytes, bytes]

log: Final = logging.getLogger("greenroom.http")

_HOP_BY_HOP: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_BODILESS: Final = frozenset({204, 304})


class StreamGone(OSError):
    """The stream was reset or its connection closed: no response can be sent."""


class Http2Stream:
    """One HTTP/2 request and its response."""

    def __init__(self, connection: Http2Connection, id: int, method: str) -> None:
        self.id = id
        self.method = method
        self.task: asyncio.Task[None] | None = None
        self.body_complete = False
        """Whether the whole request body was received."""
        self.gone = False
        """Whether the stream is closed."""
        self.is_answered = False
        """Whether the whole response was sent."""
        self.window_opened = asyncio.Event()
        """Set when the peer may have opened the window again."""
        self._connection = connection
        self._body_data = bytearray()
        self._end_delivered = False
        self._changed = asyncio.Event()
        self._head: tuple[int, list[Header]] | None = None
        self._head_sent = False
        self._bodiless = method == "HEAD"

    # --- called by the connection

    def begin(self, app: App, scope: Scope) -> None:
        """Start the application's task."""
        self.task = asyncio.get_running_loop().create_task(self._run(app, scope), name="greenroom-http2")

    def feed(self, data: bytes) -> bool:
        """Add a piece of the body; returns whether it is kept. An application that has answered reads no more."""
        if self.is_answered or self.gone or self.task is None or self.task.done():
            return False
        self._body_data += data
        self._changed.set()
        return True

    def feed_end(self) -> None:
        """The body is complete."""
        self.body_complete = True
        self._changed.set()

    def disconnect(self) -> None:
        """The peer has reset the stream or disconnected."""
        self.gone = True
        self._body_data.clear()
        self._changed.set()
        self.window_opened.set()

    # --- ASGI

    async def _run(self, app: App, scope: Scope) -> None:
        try:
            await app(scope, self.receive, self.send)
        except StreamGone:
            pass
        except Exception:  # noqa: BLE001 - one request's trouble
            tracebacks.log_error(log, "%s %r ended in an error of the server", self.method, scope["path"])
        finally:
            if not self.is_answered and not self.gone and self._head is None and not self._head_sent:
                with suppress(StreamGone):
                    self._connection.send_head(self, [(b":status", b"500"), (b"content-length", b"0")], end=True)
                    self.is_answered = True
            self._connection.on_application_done(self)

    async def receive(self) -> Message:
        """ASGI `receive`."""
        while True:
            if self.gone or self.is_answered:
                return {"type": "http.disconnect"}
            if self._body_data:
                data = bytes(self._body_data)
                self._body_data.clear()
                self._connection.consumed(self, len(data))
                self._end_delivered = self.body_complete
                return {"type": "http.request", "body": data, "more_body": not self.body_complete}
            if self.body_complete and not self._end_delivered:
                self._end_delivered = True
                return {"type": "http.request", "body": b"", "more_body": False}
            self._changed.clear()
            await self._changed.wait()

    async def send(self, message: Message) -> None:
        """ASGI `send`. Raises `StreamGone`."""
        if self.gone:
            raise StreamGone("the peer has left this stream")
        match message["type"]:
            case "http.response.start" if self._head is None and not self._head_sent:
                self._start(message["status"], message.get("headers", ()))
            case "http.response.body" if (self._head_sent or self._head is not None) and not self.is_answered:
                await self._body(message.get("body", b""), more=message.get("more_body", False))
            case other:
                raise RuntimeError(f"{other} is not valid here")

    def _start(self, status: int, headers: Iterable[Header]) -> None:
        said = [(name.lower(), value) for name, value in headers if name.lower() not in _HOP_BY_HOP]
        self._bodiless = self._bodiless or status in _BODILESS
        self._head = status, said
        if not any(
            name == b"content-length" for name, _ in said
        ):  # with a known length the body follows at once, and goes out together with the head
            self._send_head(end=False)

    def _send_head(self, *, end: bool) -> None:
        assert self._head is not None
        (status, headers), self._head = self._head, None
        self._head_sent = True
        self._connection.send_head(self, [(b":status", b"%d" % status), *headers], end=end)

    async def _body(self, data: bytes, *, more: bool) -> None:
        if self._bodiless:
            data = b""
        if self._head is not None:
            end = not more and not data
            self._send_head(end=end)
            if end:
                self._on_answered()
                return
        if data or not more:
            await self._connection.send_body(self, data, end=not more)
        if not more:
            self._on_answered()

    def _on_answered(self) -> None:
        self.is_answered = True
        self._body_data.clear()
        self._changed.set()


class InvalidPseudoHeaders(Exception):
    """These headers are no request, though HTTP/2 allows them."""


def scope_of(
    headers: Iterable[Header], client: tuple[str, int] | None, server: tuple[str, int] | None
) -> dict[str, Any]:
    """The request's ASGI scope. Raises `InvalidPseudoHeaders`."""
    pseudo: dict[bytes, bytes] = {}
    said: list[Header] = []
    crumbs: list[bytes] = []
    for name, value in headers:
        if name.startswith(b":"):
            pseudo[name] = value
        elif name == b"cookie":
            crumbs.append(value)
        elif name != b"host" or b":authority" not in pseudo:  # h2 has checked that both are equal
            said.append((bytes(name), bytes(value)))
    if b":authority" in pseudo:
        said.insert(0, (b"host", bytes(pseudo[b":authority"])))
    if crumbs:
        said.append((b"cookie", b"; ".join(crumbs)))
    try:
        method = pseudo[b":method"].decode("ascii")
        raw, _, query = bytes(pseudo[b":path"]).partition(b"?")
        path = unquote(raw.decode("ascii"))
    except (KeyError, UnicodeDecodeError):
        raise InvalidPseudoHeaders from None
    return {
        "type": "http",
        "http_version": "2",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "method": method,
        "scheme": "https",
        "path": path,
        "raw_path": raw,
        "query_string": query,
        "root_path": "",
        "headers": said,
        "client": client,
        "server": server,
        "state": {SERVER_HAS_WRITE_TIMEOUT: True},
        "extensions": {},
    }


_dates: dict[int, bytes] = {}


def http_date() -> bytes:
    """The current date for `Date` headers, formatted once a second."""
    now = int(time.time())
    if now not in _dates:
        _dates.clear()
        _dates[now] = formatdate(now, usegmt=True).encode()
    return _dates[now]
