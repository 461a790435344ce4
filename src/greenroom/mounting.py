"""The server as an ASGI application inside another program: it starts with the first request, and ends with the lifespan of its host.

A host that passes its lifespan on has the company ready before the first request, and stopped in order. Most hosts that mount an application do not
pass it on, so `Mounted.lifespan` can be theirs: `FastAPI(lifespan=mcp.lifespan)`. Without either, what the server has opened is closed when the
loop ends, and a warning says what to write.
"""

from __future__ import annotations

import inspect
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from greenroom.auth.info import AuthInfo
from greenroom.transports.asgi import KNOWN
from greenroom.transports.seam import Peer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from typing import TypeAlias

    from greenroom.transports.asgi import Endpoint, Receive, Scope, Send

    from .hosting import Hosting

    Caller: TypeAlias = Callable[[Scope], "AuthInfo | Awaitable[AuthInfo | None] | None"]

log: Final = logging.getLogger("greenroom.http")


class Mounted:
    """The application."""

    def __init__(
        self, hosting: Hosting, endpoint: Endpoint, caller: Caller | None = None, *, opens: Callable[[], bool] = bool
    ) -> None:
        """`endpoint` serves requests once the company runs. `caller` finds in a scope who calls, and `opens` says whether something is to be closed."""
        self._hosting = hosting
        self._endpoint = endpoint
        self._caller = starlette_user if caller is None else caller
        self._opens = opens
        self._held = 0
        self._warned = False
        self.instance = endpoint.engine.instance
        """The header by which clients know that this process has refused a request: for a stage in front of it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or a lifespan."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if not self._held and not self._warned and self._opens():
            self._warned = True
            log.warning(
                "the server is mounted, and its host passes no lifespan on: what @server.lifespan has opened is closed at the end of the loop, and not in "
                "order. Give the host lifespan=app.lifespan, where app is what server.asgi() has returned, or await app.close() when it stops"
            )
        await self._hosting.ensure()
        state: Mapping[str, Any] = scope.get("state") or {}
        if scope["type"] == "http" and KNOWN not in state:
            found = self._caller(scope)
            info = await found if inspect.isawaitable(found) else found
            if info is not None:
                client = scope.get("client")
                peer = Peer("http", f"{client[0]}:{client[1]}" if client else "", info.principal, info)
                scope = {**scope, "state": {**state, KNOWN: peer}}
        await self._endpoint(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncGenerator[None]:  # noqa: ARG002 - hosts give themselves
        """Run the company for as long as the block lasts, for a host: ``FastAPI(lifespan=mcp.lifespan)``, or inside a lifespan of your own."""
        await self._hosting.hold()
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            await self._hosting.let_go()

    async def close(self) -> None:
        """Stop it in this loop, for hosts that call a function when they stop."""
        await self._hosting.close()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._hosting.ensure()
                except Exception as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    raise
                self._held += 1
            else:
                self._held -= 1
                await self._hosting.close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return


def starlette_user(scope: Scope) -> AuthInfo | None:
    """The caller that Starlette's `AuthenticationMiddleware` has found, which FastAPI has, too: `request.user.identity` and `request.auth.scopes`."""
    user, granted = scope.get("user"), scope.get("auth")
    if user is None or not getattr(user, "is_authenticated", False):
        return None
    try:
        subject = user.identity
    except (AttributeError, NotImplementedError):
        subject = None  # a name for people may be the name of two: then sessions alone tell them apart
    scopes = getattr(granted, "scopes", None)
    return AuthInfo(None if subject is None else str(subject), scopes=None if scopes is None else frozenset(scopes))
