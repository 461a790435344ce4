"""The endpoint as an ASGI application: alone, mounted in another application, or behind our own listener with pages beside it.

A request runs in the server's task. Its body is read with a bound and a deadline, and the endpoint always watches for the disconnect, which
ends the wait here and leaves the call running: the call belongs to its session. A peer that does not read its response is given up after
the write timeout; our own listener also cuts the connection, which ASGI cannot express.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from greenroom.supervision.event_bus import bus

from .access_log import log_refusal
from .http_request import (
    EVENTS,
    NO_CONTENT,
    AllowedHosts,
    AllowedOrigins,
    BodyReader,
    Interruption,
    PeerGone,
    body_timeout_error,
    encode_headers,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping

    from .http_engine import HttpEngine
    from .http_request import BodyShare, Headers
    from .interfaces import Peer
    from .quart_door import Quart


if TYPE_CHECKING:
    Scope: TypeAlias = MutableMapping[str, Any]
    Message: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]
    App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

SERVER_HAS_WRITE_TIMEOUT: Final = "greenroom.patient"
"""In a scope's `state`: the server itself cuts peers that do not read, so no write timeout is needed here."""

KNOWN_PEER: Final = "greenroom.peer"
"""In a scope's `state`: the `Peer`, where a component in front has authenticated it."""

WATCH_AFTER: Final = 0.02
"""Seconds after which the endpoint starts to watch for a disconnect; most responses are out before, and save that task."""


class AsgiEndpoint:
    """The endpoint as an ASGI application."""

    def __init__(self, engine: HttpEngine) -> None:
        self.engine = engine

    def engine_for(self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]]) -> HttpEngine:  # noqa: ARG002
        """The engine for a request of greenroom's own listener, which needs no ASGI in between."""
        return self.engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "websocket":
            await receive()
            log_refusal("WebSockets are not served", status=403, path=scope["path"])
            await send({"type": "websocket.close", "code": 1008, "reason": "there are no WebSockets here"})
        elif kind == "lifespan":
            await lifespan(receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        responder = AsgiResponder(scope, receive, send, self.engine)
        client = scope.get("client")
        address = f"{client[0]}:{client[1]}" if client else ""
        try:
            with responder.waiting:
                path = relative_path(scope)
                if query := scope.get("query_string"):
                    path = f"{path}?{query.decode('latin-1')}"
                await self.engine.handle(
                    scope["method"],
                    path,
                    scope["headers"],
                    responder.body,
                    responder,
                    address=address,
                    peer=known_peer(scope),
                )
        finally:
            responder.close()
        await responder.close_quietly()


def known_peer(scope: Scope) -> Peer | None:
    """The peer, where a component in front has authenticated it."""
    state: Mapping[str, Any] = scope.get("state") or {}
    peer: Peer | None = state.get(KNOWN_PEER)
    return peer


async def lifespan(receive: Receive, send: Send) -> None:
    """Answer the ASGI lifespan protocol; nothing has to be done."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def relative_path(scope: Scope) -> str:
    """The path within this application: servers differ in whether `path` includes the mount point."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path or "/"


class AsgiResponder(BodyReader):
    """One ASGI request and its response, as a `Responder`."""

    __slots__ = (
        "_has_replied",
        "_is_late",
        "_reading",
        "_receive",
        "_send",
        "_server_cuts",
        "_timer",
        "_watcher",
        "around",
        "http_version",
        "waiting",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, engine: HttpEngine) -> None:
        super().__init__(engine.config)
        self._receive = receive
        self._send = send
        self._server_cuts = SERVER_HAS_WRITE_TIMEOUT in (scope.get("state") or ())
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._has_replied = False
        self._is_late = False
        self._reading = Interruption()
        self.waiting = Interruption()
        self.http_version = str(scope.get("http_version", ""))
        # A server of our own runs the request in the context in which it was started, where a span has nothing to do with the request.
        self.around = None if bus.tracer is None or self._server_cuts else dict(bus.tracer.carrier(0))

    # --- input

    async def body(self, share: BodyShare) -> bytes:
        """Read the whole body within its share of the memory budget. Raises `HttpRequestRefused` and `PeerGone`."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(WATCH_AFTER, self._on_timer, loop)
        data = b""
        with self._reading as reading:
            data = await self._gather(share)
        if reading.fired:
            self._rest = False  # do not wait for the rest of a slow body again
            raise body_timeout_error()
        if self._is_late:
            self._timer.cancel()
            self._watch()
        return data

    async def _chunk(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.gone = True
            raise PeerGone
        self._rest = message.get("more_body", False)
        chunk: bytes = message.get("body", b"")
        return chunk

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called when a request takes longer than most: set the body's deadline, or watch for a disconnect."""
        if self._rest:
            self._timer = loop.call_later(max(0.0, self._config.body_timeout - WATCH_AFTER), self._reading.interrupt)
            self._is_late = True
        else:
            self._watch()

    def _watch(self) -> None:
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._until_gone(), name="greenroom-http-watcher")

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self.waiting.interrupt()

    def close(self) -> None:
        """Release the timer and the watcher."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    async def close_quietly(self) -> None:
        """Send a response to a peer that left before one: some frameworks report an error if an application sends none."""
        if self.gone and not self._has_replied and not self._server_cuts:
            with suppress(OSError, RuntimeError):
                await self._send({"type": "http.response.start", "status": 499, "headers": []})
                await self._send({"type": "http.response.body", "body": b""})

    # --- output

    async def reply(self, status: int, headers: Headers, body: bytes) -> None:
        if self._rest:
            await self._discard()
        lines = list(encode_headers(headers))
        if status != NO_CONTENT:
            lines.append((b"content-length", b"%d" % len(body)))
        start = {"type": "http.response.start", "status": status, "headers": lines}
        if await self._send_message(start):
            await self._send_message({"type": "http.response.body", "body": body, "more_body": False})

    async def stream_start(self, status: int, headers: Headers, *, until_eof: bool = False) -> None:  # noqa: ARG002 - the server tells of it
        if self._rest:
            await self._discard()
        self._watch()
        await self._send_message(
            {"type": "http.response.start", "status": status, "headers": list(encode_headers(headers))}
        )

    async def stream_chunk(self, data: bytes) -> bool:
        return await self._send_message({"type": "http.response.body", "body": data, "more_body": True})

    async def stream_end(self) -> None:
        await self._send_message({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_message(self, message: Message) -> bool:
        if self.gone:
            return False
        self._has_replied = True
        try:
            if self._server_cuts:
                await self._send(message)
            else:
                async with asyncio.timeout(self._config.write_timeout):
                    await self._send(message)
        except (TimeoutError, OSError, RuntimeError):  # servers report a disconnect by different exceptions
            self.gone = True
        return not self.gone


# --- The application of a listener: the endpoint, and a Quart application for other pages, loaded on the first request for one.
# Loading Quart takes 0.155 s, 282 modules and 14 MB, and most servers are never asked for a page. WebSockets are refused.


_REFUSED: Final = frozenset((HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED))


class AsgiRouter:
    """The ASGI application of a listener: routes requests for the engine to its endpoint, all others to Quart."""

    def __init__(
        self,
        engine: HttpEngine,
        *,
        name: str = "greenroom",
        own_pages: Callable[[], Quart | None] = lambda: None,
        is_mounted: bool = False,
    ) -> None:
        """`name` is the server's name on the front page; `own_pages` returns the server's own application, if it has one.

        A mounted endpoint has the root of its mount point for itself, and no front page.
        """
        self.engine = engine
        self._name = name
        self._own_pages = own_pages
        self._is_mounted = is_mounted
        self._endpoint = AsgiEndpoint(engine)
        self._path = engine.config.path
        self._hosts = AllowedHosts(engine.config)
        self._origins = AllowedOrigins(engine.config)
        self._pages: App | None = None

    def engine_for(self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]]) -> HttpEngine | None:
        """The engine for a request of greenroom's own listener; None for a page, which is served by ASGI."""
        return self.engine if self._is_for_engine(method, path, headers) else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_for_engine(scope["method"], relative_path(scope), scope["headers"]):
            await self._endpoint(scope, receive, send)
        elif self._is_forged(scope["method"], scope["headers"]):
            await _refuse_page(scope, send)
        else:
            await (await self._load_pages())(scope, receive, _logging_refusals(scope, send))

    async def _load_pages(self) -> App:
        """Load the Quart application in a thread, so that calls go on meanwhile; two first requests at once may create it twice."""
        if self._pages is None:
            self._pages = await asyncio.to_thread(self._make_pages)
        return self._pages

    def _make_pages(self) -> App:
        from .quart_door import make_pages  # noqa: PLC0415 - see above

        return cast("App", make_pages(self._name, self.engine.config, self._own_pages()))

    def _is_for_engine(self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        if path == self._path or (self._is_mounted and (self._own_pages() is None or self.engine.owns(path))):
            return True
        if not self._hosts.allow(_header(headers, b"host")):
            return True  # the endpoint refuses it: a page with its own name for this address (DNS rebinding) reaches no route
        if not self.engine.owns(path):
            return False
        # At the root, a browser gets the front page, and a client that asks for an event stream gets the endpoint.
        return path != "/" or method not in ("GET", "HEAD") or EVENTS in (_header(headers, b"accept") or "").lower()

    def _is_forged(self, method: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a page of an origin that may not call sends something that may change a state."""
        origin, site = _header(headers, b"origin"), _header(headers, b"sec-fetch-site")
        return method not in ("GET", "HEAD", "OPTIONS") and not self._origins.allow(origin, site)


async def _refuse_page(scope: Scope, send: Send) -> None:
    why = "Pages of this Origin may not call; if they should, say so in allowed_origins"
    log_refusal(why, status=403, method=scope["method"], path=scope["path"], setting="allowed_origins")
    text = why.encode()
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": text, "more_body": False})


def _logging_refusals(scope: Scope, send: Send) -> Send:
    """Wrap `send` to log responses for unknown paths."""

    async def watch(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] in _REFUSED:
            client = scope.get("client")
            address = f"{client[0]}:{client[1]}" if client else ""
            why = "No endpoint is at this path" if message["status"] == HTTPStatus.NOT_FOUND else "Method not allowed"
            log_refusal(why, status=message["status"], address=address, method=scope["method"], path=scope["path"])
        await send(message)

    return watch


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """The value of a header; None if it is missing."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), None)
