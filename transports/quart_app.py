"""The outer shell of a server: a Quart application with the endpoint inside, which requests reach before Quart sees them.

Everything that is no MCP is Quart's: the front page here, and whatever routes the owner adds. WebSockets are refused for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from quart import Quart

from .asgi import Endpoint, relative_path
from .http_checks import EVENTS

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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "websocket" or (kind == "http" and self._is_ours(scope)):
            await self._endpoint(scope, receive, send)
        else:
            await self._rest(scope, receive, send)

    def _is_ours(self, scope: Scope) -> bool:
        path = relative_path(scope)
        if path == self._path:
            return True
        if not self._engine.owns(path):
            return False
        # At the root, a browser gets the front page, and a client that asks for a stream the endpoint.
        return path != "/" or scope["method"] not in ("GET", "HEAD") or _wants_events(scope["headers"])


def _wants_events(headers: Any) -> bool:
    """Whether a client has asked for an event stream by its name: `*/*` is what everybody says."""
    return any(name == b"accept" and EVENTS.encode() in value.lower() for name, value in headers)
