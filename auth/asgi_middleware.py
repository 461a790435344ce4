"""Authentication as a stage of its own, in front of an ASGI application: for programs that mount the server somewhere, or have more to protect.

`Protected(app, provider)` lets in callers that the provider knows, and shows the provider's document at its well-known places; the server behind it
sees who they are. `WellKnownDocument(provider)` is only the document: what is mounted at ``/mcp`` of another application never sees requests for
``/.well-known/…``, so it belongs at that application's root.
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
    """The application, behind a provider. With None for it, every request is let through."""

    def __init__(self, app: App, provider: AuthProvider | None, *, required_scopes: Collection[str] = ()) -> None:
        """The provider's processes, where it needs some, are yours to start: `provider.children()`."""
        self._app = app
        self._gate = None if provider is None else AuthGate(provider, required_scopes=required_scopes)
        self._documents = None if self._gate is None else self._gate.public_documents
        # A server of ours behind it gives out the sessions, and its clients believe refusals of that process alone. In front of any other
        # application a word of our own would be one that they do not know: they would not even believe the 401.
        self._instance: Sequence[tuple[str, str]] = getattr(app, "instance", ())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
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
        # A browser asks without credentials whether it may; what it may is the application's to say.
        admitted = peer if method == "OPTIONS" else await self._gate.authenticate(method, target, headers, peer)
        if isinstance(admitted, HttpRefusal):
            log_refusal(admitted.why, status=admitted.status, peer=peer, method=method, path=path)
            await send_response(admitted._replace(headers=(*admitted.headers, *self._instance)), send)
            return
        state: dict[str, Any] = {**(scope.get("state") or {}), KNOWN_PEER: admitted}
        await self._app({**scope, "state": state}, receive, send)


class WellKnownDocument:
    """A provider's document alone, for the root of another application: as a route, or mounted at ``/.well-known``."""

    def __init__(self, provider: Any) -> None:
        """Raises `ConfigError` for a provider that has none."""
        document: PublicDocument | None = getattr(provider, "public_document", None)
        if document is None:
            raise ConfigError(f"{provider!r} has no metadata that anybody could read")
        self._document = document

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - as ASGI has it
        """Serve one request."""
        if scope["type"] != "http":
            return
        path: str = scope["path"]
        places = {path, f"{WELL_KNOWN}{relative_path(scope)}"}  # hosts differ in what they leave of it
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
    """Send one answer."""
    headers = list(encode_headers(checked_headers(refusal)))
    if refusal.status != 204:  # noqa: PLR2004 - which has no body, and so no length either
        headers.append((b"content-length", b"%d" % len(refusal.body)))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.body, "more_body": False})
