"""The outer shell of a server: a Quart application with the endpoint inside, which requests reach before Quart sees them.

Everything that is no MCP is Quart's: the front page here, and whatever routes the owner adds. WebSockets are refused for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from quart import Quart

from .asgi import Endpoint, relative_path
from .http_checks import EVENTS, Hosts

if TYPE_CHECKING:
    from .asgi import App, Receive, Scope, Send
    from .http_engine import Engine


def shell(engine: Engine, *, name: str = "greenroom", endpoint: App | None = None) -> Quart:
    """An application whose front page names the server, and whose endpoint is the engine's, or what is in front of it."""
    config = engine.config
    app = Quart(__name__, static_folder=None, template_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = config.max_body
    app.config["BODY_TIMEOUT"] = config.body_timeout
    app.config["RESPONSE_TIMEOUT"] = None  # Quart would cut a long answer without a word

    @app.get("/")
    async def front() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction] - its route uses it
        """Say what is here, and that it is well."""
        return {"server": name, "status": "ok", "mcp": config.path}

    inner = cast("App", app.asgi_app)
    app.asgi_app = _Dispatch(engine, endpoint or Endpoint(engine), inner)  # type: ignore[method-assign,assignment]
    return app


class _Dispatch:
    """Who gets a request: the endpoint, or Quart."""

    def __init__(self, engine: Engine, endpoint: App, rest: App) -> None:
        self._engine = engine
        self._endpoint = endpoint
        self._rest = rest
        self._path = engine.config.path
        self._hosts = Hosts(engine.config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" or (scope["type"] == "http" and self._is_ours(scope)):
            await self._endpoint(scope, receive, send)
        else:
            await self._rest(scope, receive, send)

    def _is_ours(self, scope: Scope) -> bool:
        path = relative_path(scope)
        if path == self._path:
            return True
        if not self._hosts.allow(_header(scope, b"host")):
            return True  # which refuses it: no page gets at any route by having its own name pointed here
        if not self._engine.owns(path):
            return False
        # At the root, a browser gets the front page, and a client that asks for a stream the endpoint.
        return (
            path != "/" or scope["method"] not in ("GET", "HEAD") or EVENTS in (_header(scope, b"accept") or "").lower()
        )


def _header(scope: Scope, name: bytes) -> str | None:
    """What a header says, if it is there."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name), None)
