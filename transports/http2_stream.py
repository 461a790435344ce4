"""One request on an HTTP/2 connection, and its answer: the side that an ASGI application sees.

What arrives is kept until the application reads it, and no more than the stream's window has room for; the peer gets new room as
it is read. What goes out waits for the peer's window: a peer that gives none for the write timeout loses this stream and no other.
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

from .asgi import PATIENT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .asgi import App, Message, Scope
    from .http2 import Http2

    Header = tuple[bytes, bytes]

log: Final = logging.getLogger("greenroom.http")

_HOP_BY_HOP: Final = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
_BODILESS: Final = frozenset({204, 304})


class StreamGone(OSError):
    """The stream is gone: there is no peer left to answer on it."""


class Stream:
    """One request."""

    def __init__(self, carrier: Http2, id: int, method: str) -> None:
        """Nothing of its body is here yet."""
        self.id = id
        self.method = method
        self.task: asyncio.Task[None] | None = None
        self.ended = False
        """The peer has sent all of it."""
        self.gone = False
        """The stream is no more, whatever is left to say."""
        self.answered = False
        """All of the answer is out."""
        self.opened = asyncio.Event()
        """Set when there may be room again for what goes out."""
        self._carrier = carrier
        self._kept = bytearray()
        self._told_end = False
        self._news = asyncio.Event()
        self._head: tuple[int, list[Header]] | None = None
        self._begun = False
        self._bodiless = method == "HEAD"

    # --- from the connection

    def begin(self, app: App, scope: Scope) -> None:
        """Have the application answer."""
        self.task = asyncio.get_running_loop().create_task(self._run(app, scope), name="greenroom-http2")

    def put(self, data: bytes) -> bool:
        """More of the body came. Whether it is kept: an application that has answered reads no more."""
        if self.answered or self.gone or self.task is None or self.task.done():
            return False
        self._kept += data
        self._news.set()
        return True

    def end(self) -> None:
        """That was all of it."""
        self.ended = True
        self._news.set()

    def leave(self) -> None:
        """The peer is gone, or does not want it any more."""
        self.gone = True
        self._kept.clear()
        self._news.set()
        self.opened.set()

    # --- from the application

    async def _run(self, app: App, scope: Scope) -> None:
        try:
            await app(scope, self.receive, self.send)
        except StreamGone:
            pass
        except Exception:  # noqa: BLE001 - one request's trouble
            tracebacks.log_error(log, "%s %r ended in an error of the server", self.method, scope["path"])
        finally:
            if not self.answered and not self.gone and self._head is None and not self._begun:
                with suppress(StreamGone):
                    self._carrier.head(self, [(b":status", b"500"), (b"content-length", b"0")], end=True)
                    self.answered = True
            self._carrier.done(self)

    async def receive(self) -> Message:
        """What ASGI calls `receive`."""
        while True:
            if self.gone or self.answered:
                return {"type": "http.disconnect"}
            if self._kept:
                data = bytes(self._kept)
                self._kept.clear()
                self._carrier.took(self, len(data))
                self._told_end = self.ended
                return {"type": "http.request", "body": data, "more_body": not self.ended}
            if self.ended and not self._told_end:
                self._told_end = True
                return {"type": "http.request", "body": b"", "more_body": False}
            self._news.clear()
            await self._news.wait()

    async def send(self, message: Message) -> None:
        """What ASGI calls `send`. Raises `StreamGone`."""
        if self.gone:
            raise StreamGone("the peer has left this stream")
        match message["type"]:
            case "http.response.start" if self._head is None and not self._begun:
                self._start(message["status"], message.get("headers", ()))
            case "http.response.body" if (self._begun or self._head is not None) and not self.answered:
                await self._body(message.get("body", b""), more=message.get("more_body", False))
            case other:
                raise RuntimeError(f"{other} makes no sense here")

    def _start(self, status: int, headers: Iterable[Header]) -> None:
        said = [(name.lower(), value) for name, value in headers if name.lower() not in _HOP_BY_HOP]
        self._bodiless = self._bodiless or status in _BODILESS
        self._head = status, said
        if not any(name == b"content-length" for name, _ in said):  # else its body comes at once, and goes with it
            self._say_head(end=False)

    def _say_head(self, *, end: bool) -> None:
        assert self._head is not None
        (status, headers), self._head = self._head, None
        self._begun = True
        self._carrier.head(self, [(b":status", b"%d" % status), *headers], end=end)

    async def _body(self, data: bytes, *, more: bool) -> None:
        if self._bodiless:
            data = b""
        if self._head is not None:
            end = not more and not data
            self._say_head(end=end)
            if end:
                self._answered()
                return
        if data or not more:
            await self._carrier.body(self, data, end=not more)
        if not more:
            self._answered()

    def _answered(self) -> None:
        self.answered = True
        self._kept.clear()
        self._news.set()


class BadRequest(Exception):
    """No request can be made of these headers, though HTTP/2 allows them."""


def scope_of(
    headers: Iterable[Header], client: tuple[str, int] | None, server: tuple[str, int] | None
) -> dict[str, Any]:
    """The request as ASGI has it. Raises `BadRequest`."""
    pseudo: dict[bytes, bytes] = {}
    said: list[Header] = []
    crumbs: list[bytes] = []
    for name, value in headers:
        if name.startswith(b":"):
            pseudo[name] = value
        elif name == b"cookie":
            crumbs.append(value)
        elif name != b"host" or b":authority" not in pseudo:  # they are the same, or it would not be here
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
        raise BadRequest from None
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
        "state": {PATIENT: True},
        "extensions": {},
    }


_dates: dict[int, bytes] = {}


def date() -> bytes:
    """The date, made once a second."""
    now = int(time.time())
    if now not in _dates:
        _dates.clear()
        _dates[now] = formatdate(now, usegmt=True).encode()
    return _dates[now]
