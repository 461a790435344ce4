"""The endpoint as an ASGI application, alone, mounted in another application or behind our own listener, with pages beside it.

A request runs in the task that the server gave it. Its body is read with a bound and a deadline, and the endpoint always listens for
the disconnect. That ends the wait here and leaves the call alone: it belongs to its session. A peer that does not read what it is
sent is given up after the write deadline; under our own listener its connection is cut, which ASGI has no word for.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from .access_log import log_refusal
from .http_exchange import EVENTS, NO_CONTENT, Hosts, Incoming, Interruption, PeerGone, encoded, slow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping

    from quart import Quart

    from .http_config import HttpConfig
    from .http_engine import Engine
    from .http_exchange import BodyShare, Headers
    from .interfaces import Peer


if TYPE_CHECKING:
    Scope: TypeAlias = MutableMapping[str, Any]
    Message: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]
    App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

PATIENT: Final = "greenroom.patient"
"""In a scope's `state`: the server cuts peers that do not read by itself."""

KNOWN: Final = "greenroom.peer"
"""In a scope's `state`: the `Peer`, where something in front has found out who it is."""

WATCH_AFTER: Final = 0.02
"""Seconds that an answer may take before the endpoint watches for the peer's disconnect: most are out by then."""


class Endpoint:
    """The ASGI application."""

    def __init__(self, engine: Engine) -> None:
        """One engine behind it."""
        self.engine = engine

    def engine_for(self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]]) -> Engine:  # noqa: ARG002
        """What a request goes to without ASGI in between, from greenroom's own listener."""
        return self.engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
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
                    peer=known(scope),
                )
        finally:
            responder.close()
        await responder.close_quietly()


def known(scope: Scope) -> Peer | None:
    """Who it is, where something in front has found that out."""
    state: Mapping[str, Any] = scope.get("state") or {}
    peer: Peer | None = state.get(KNOWN)
    return peer


async def lifespan(receive: Receive, send: Send) -> None:
    """Answer a server that asks: nothing has to happen, neither before nor after."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def relative_path(scope: Scope) -> str:
    """The path within this application: hosts disagree on whether `path` still has where it is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path or "/"


class AsgiResponder(Incoming):
    """One request and its answer, as a `Responder`."""

    __slots__ = (
        "_alarm",
        "_begun",
        "_late",
        "_patient",
        "_reading",
        "_receive",
        "_send",
        "_watcher",
        "waiting",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, engine: Engine) -> None:
        """Nothing has been read yet."""
        super().__init__(engine.config)
        self._receive = receive
        self._send = send
        self._patient = PATIENT in (scope.get("state") or ())
        self._alarm: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._begun = False
        self._late = False
        self._reading = Interruption()
        self.waiting = Interruption()

    # --- in

    async def body(self, share: BodyShare) -> bytes:
        """All of the body, within its share of the memory for bodies. Raises `Refused` and `PeerGone`."""
        loop = asyncio.get_running_loop()
        self._alarm = loop.call_later(WATCH_AFTER, self._look, loop)
        data = b""
        with self._reading as reading:
            data = await self._gather(share)
        if reading.fired:
            self._rest = False  # a peer that was this slow is not waited for again
            raise slow()
        if self._late:
            self._alarm.cancel()
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

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """It has not been quick: see to it that the body ends, or watch for the peer to leave. Most requests need neither."""
        if self._rest:
            self._alarm = loop.call_later(max(0.0, self._config.body_timeout - WATCH_AFTER), self._reading.interrupt)
            self._late = True
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
        """The request is over."""
        if self._alarm is not None:
            self._alarm.cancel()
        if self._watcher is not None:
            self._watcher.cancel()

    async def close_quietly(self) -> None:
        """Answer a peer that has left before it was answered: some frameworks complain of an application that says nothing."""
        if self.gone and not self._begun and not self._patient:
            with suppress(OSError, RuntimeError):
                await self._send({"type": "http.response.start", "status": 499, "headers": []})
                await self._send({"type": "http.response.body", "body": b""})

    # --- out

    async def reply(self, status: int, headers: Headers, body: bytes) -> None:
        """The whole answer."""
        if self._rest:
            await self._discard()
        lines = list(encoded(headers))
        if status != NO_CONTENT:
            lines.append((b"content-length", b"%d" % len(body)))
        start = {"type": "http.response.start", "status": status, "headers": lines}
        if await self._out(start):
            await self._out({"type": "http.response.body", "body": body, "more_body": False})

    async def stream_start(self, status: int, headers: Headers) -> None:
        """An answer begins whose length is not known."""
        if self._rest:
            await self._discard()
        self._watch()
        await self._out({"type": "http.response.start", "status": status, "headers": list(encoded(headers))})

    async def stream_chunk(self, data: bytes) -> bool:
        """More of it. False when the peer reads no more."""
        return await self._out({"type": "http.response.body", "body": data, "more_body": True})

    async def stream_end(self) -> None:
        """That was all."""
        await self._out({"type": "http.response.body", "body": b"", "more_body": False})

    async def _out(self, message: Message) -> bool:
        if self.gone:
            return False
        self._begun = True
        try:
            if self._patient:
                await self._send(message)
            else:
                async with asyncio.timeout(self._config.write_timeout):
                    await self._send(message)
        except (TimeoutError, OSError, RuntimeError):  # servers differ in how they say that the peer is gone
            self.gone = True
        return not self.gone


# --- The outer shell of a listener: the endpoint, and for what is no MCP a Quart application, which is loaded for the first request that needs it.
# Loading Quart takes 0.155 s, 282 modules and 14 MB, and most servers are never asked for a page. WebSockets are refused for all.


_REFUSED: Final = frozenset((HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED))


def pages(name: str, config: HttpConfig) -> Quart:
    """The application for what is no MCP: a front page that names the server. Loads Quart."""
    from quart import Quart  # noqa: PLC0415 - see above

    app = Quart(__name__, static_folder=None, template_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = config.max_body
    app.config["BODY_TIMEOUT"] = config.body_timeout
    app.config["RESPONSE_TIMEOUT"] = None  # Quart would cut a long answer without a word

    @app.get("/")
    async def front() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction] - its route uses it
        """Say what is here, and that it is well."""
        return {"server": name, "status": "ok", "mcp": config.path}

    return app


class Shell:
    """The ASGI application of a listener: requests for the engine go to its endpoint, all others to Quart."""

    def __init__(self, engine: Engine, *, name: str = "greenroom") -> None:
        """`name` is what the front page calls the server."""
        self._engine = engine
        self._name = name
        self._endpoint = Endpoint(engine)
        self._path = engine.config.path
        self._hosts = Hosts(engine.config)
        self._pages: App | None = None

    def engine_for(self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]]) -> Engine | None:
        """What a request of greenroom's own listener goes to without ASGI in between; None for a page."""
        return self._engine if self._is_ours(method, path, headers) else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or self._is_ours(scope["method"], relative_path(scope), scope["headers"]):
            await self._endpoint(scope, receive, send)
        else:
            await (await self._loaded())(scope, receive, _watched(scope, send))

    async def _loaded(self) -> App:
        """Quart's application. It is made in a thread, so calls go on meanwhile; two requests that come at once may make it twice."""
        if self._pages is None:
            self._pages = cast("App", await asyncio.to_thread(pages, self._name, self._engine.config))
        return self._pages

    def _is_ours(self, method: str, path: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        if path == self._path:
            return True
        if not self._hosts.allow(_header(headers, b"host")):
            return True  # which refuses it: no page gets at any route by having its own name pointed here
        if not self._engine.owns(path):
            return False
        # At the root, a browser gets the front page, and a client that asks for a stream the endpoint.
        return path != "/" or method not in ("GET", "HEAD") or EVENTS in (_header(headers, b"accept") or "").lower()


def _watched(scope: Scope, send: Send) -> Send:
    """`send`, which takes note of a path that is not there."""

    async def watch(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] in _REFUSED:
            client = scope.get("client")
            address = f"{client[0]}:{client[1]}" if client else ""
            why = "No endpoint is at this path" if message["status"] == HTTPStatus.NOT_FOUND else "Method not allowed"
            log_refusal(why, status=message["status"], address=address, method=scope["method"], path=scope["path"])
        await send(message)

    return watch


def _header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """What a header says, if it is there."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), None)
