"""Quart: the pages of a listener, a server's own pages beside the protocol, and the admin listener. Only this module imports Quart.

Loading it takes 0.155 s, 282 modules and 14 MB, so it is imported where a page is asked for and not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quart import (
    Blueprint,
    Quart,
    Response,
    abort,
    make_response,
    redirect,
    render_template,
    request,
    send_from_directory,
    url_for,
)

if TYPE_CHECKING:
    from .http_config import HttpConfig

__all__ = [
    "Blueprint",
    "Quart",
    "Response",
    "abort",
    "make_application",
    "make_pages",
    "make_response",
    "redirect",
    "render_template",
    "request",
    "send_from_directory",
    "url_for",
]


def make_application(name: str, *, max_body: int, body_timeout: float) -> Quart:
    """A Quart application without folders of its own, with these bounds for requests; `name` is the module that it belongs to."""
    app = Quart(name, static_folder=None, template_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = max_body
    app.config["BODY_TIMEOUT"] = body_timeout
    app.config["RESPONSE_TIMEOUT"] = None  # Quart would abort a long response without notice
    return app


def make_pages(name: str, config: HttpConfig) -> Quart:
    """The application of a listener's pages: a front page that names the server."""
    app = make_application(__name__, max_body=config.max_body, body_timeout=config.body_timeout)

    @app.get("/")
    async def front() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction] - its route uses it
        """Report the server's name and status."""
        return {"server": name, "status": "ok", "mcp": config.path}

    return app
