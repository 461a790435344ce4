"""The outer shell of a server: the endpoint, and for what is no MCP a Quart application, which is loaded for the first request that needs it.

Loading Quart takes 0.155 s, 282 modules and 14 MB, and most servers are never asked for a page. WebSockets are refused for all.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, cast

from .access_log import log_refusal
from .asgi import Endpoint, relative_path
from .http_answers import EVENTS, Hosts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quart import Quart

    from .asgi import App, Message, Receive, Scope, Send
    from .http_config import HttpConfig
    from .http_engine import Engine

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
