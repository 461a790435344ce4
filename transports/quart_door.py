"""Quart: the pages of a listener, a server's own pages beside the protocol, and the admin listener. Only this module imports Quart.

Loading it takes 0.155 s, 282 modules and 14 MB, so it is imported where a page is asked for and not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quart import Blueprint, Quart, Response, abort, make_response, redirect, render_template, request, url_for

if TYPE_CHECKING:
    from .http_config import HttpConfig

__all__ = [
    "Blueprint",
    "Quart",
    "Response",
    "abort",
    "bound_requests",
    "make_application",
    "make_pages",
    "make_response",
    "redirect",
    "render_template",
    "request",
    "url_for",
]


def make_application() -> Quart:
    """A Quart application without folders of its own."""
    return Quart(__name__, static_folder=None, template_folder=None)


def bound_requests(app: Quart, config: HttpConfig) -> None:
    """Give the application the bounds of the listener that it stands behind."""
    app.config["MAX_CONTENT_LENGTH"] = config.max_body
    app.config["BODY_TIMEOUT"] = config.body_timeout
    app.config["RESPONSE_TIMEOUT"] = None  # Quart would abort a long response without notice


def make_pages(name: str, config: HttpConfig, own: Quart | None = None) -> Quart:
    """The application of a listener's pages: the server's own ones, and unless they have one a front page that names the server."""
    app = make_application() if own is None else own
    bound_requests(app, config)
    if all(rule.rule != "/" for rule in app.url_map.iter_rules()):

        @app.get("/")
        async def front() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction] - its route uses it
            """Report the server's name and status."""
            return {"server": name, "status": "ok", "mcp": config.path}

    return app
