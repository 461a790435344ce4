"""ASGI middleware for authentication, for programs that mount the server in an application of their own.

`Protected(app, provider)` admits callers that the provider identifies, serves the provider's public document at its well-known paths, and passes the
identity on to the application. `WellKnownDocument(provider)` serves only the document: an application mounted at ``/mcp`` never gets requests for
``/.well-known/…``, so the document belongs at the root of the outer application.

"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from greenroom.errors import ConfigError
from greenroom.transports.access_log import log_refusal
from greenroom.transports.asgi import KNOWN_PEER, relative_path
from greenroom.transports.http_request import DuplicateHeader, checked_headers, encode_headers, headers_by_name
from greenroom.transports.interfaces import HttpRefusal, Peer

from .auth_gate import AuthGate, auth_request

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from greenroom.transports.asgi import App, Receive, Scope, Send

    from .auth_info import AuthProvider, PublicDocument

WELL_KNOWN: Final = "/.well-known"


class Protected:
    """An ASGI application behind a provider. With the provider None, every request is passed on."""

    def __init__(self, app: App, provider: AuthProvider | None, *, required_scopes: Collection[str] = ()) -> None:
        """The caller starts the provider's processes, if it has some: `provider.children()`."""
        self._app = app
        self._gate = None if provider is None else AuthGate(provider, required_scopes=required_scopes)
        self._documents = None if self._gate is None else self._gate.public_documents
        # A greenroom server behind this one creates the sessions, and its clients accept refusals of that process alone: they carry its instance header.
        # Other applications know no such header; with it, their clients would reject the 401.
        self._instance: Sequence[tuple[str, str]] = getattr(app, "instance", ())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._gate is None or scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "there are no WebSockets here"})
            return
        method, path, target = scope["method"], relative_path(scope), target_path(scope)
        try:
            headers = headers_by_name(scope["headers"])
        except DuplicateHeader as twice:
            why = f"{twice} came twice"
            log_refusal(why, status=400, method=method, path=path)
            await send_response(HttpRefusal(400, (("content-type", "text/plain"), *self._instance), why.encode()), send)
            return
        client = scope.get("client")
        peer = Peer("http", f"{client[0]}:{client[1]}" if client else "")
        if self._documents is not None and path in self._documents.paths:
            await send_response(await self._documents.respond(method, target, headers, peer), send)
            return
        # A CORS preflight carries no credentials; the application decides about it.
        admitted = peer if method == "OPTIONS" else await self._gate.authenticate(method, target, headers, peer)
        if isinstance(admitted, HttpRefusal):
            log_refusal(admitted.why, status=admitted.status, peer=peer, method=method, path=path)
            await send_response(admitted._replace(headers=(*admitted.headers, *self._instance)), send)
            return
        state: dict[str, Any] = {**(scope.get("state") or {}), KNOWN_PEER: admitted}
        await self._app({**scope, "state": state}, receive, send)


class WellKnownDocument:
    """A provider's public document alone, for the root of another application: as a route, or mounted at ``/.well-known``."""

    def __init__(self, provider: Any) -> None:
        """Raises `ConfigError` for a provider without a public document."""
        document: PublicDocument | None = getattr(provider, "public_document", None)
        if document is None:
            raise ConfigError(f"{provider!r} has no public metadata document")
        self._document = document

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        places = {path, f"{WELL_KNOWN}{relative_path(scope)}"}  # frameworks differ in how much of the path they strip
        if not places & set(self._document.paths):
            await send_response(HttpRefusal(404, (("content-type", "text/plain"),), b"Not Found"), send)
            return
        client = scope.get("client")
        peer = Peer("http", f"{client[0]}:{client[1]}" if client else "")
        request = auth_request(scope["method"], target_path(scope), headers_by_name(scope["headers"]), peer)
        await send_response(await self._document.read(request), send)


def target_path(scope: Scope) -> str:
    """The path within the application, with its query."""
    query: bytes = scope.get("query_string") or b""
    return f"{relative_path(scope)}?{query.decode('latin-1')}" if query else relative_path(scope)


async def send_response(refusal: HttpRefusal, send: Send) -> None:
    """Send a complete response."""
    headers = list(encode_headers(checked_headers(refusal)))
    if refusal.status != 204:  # noqa: PLR2004 - it has no body, and so no length
        headers.append((b"content-length", b"%d" % len(refusal.body)))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.body, "more_body": False})
