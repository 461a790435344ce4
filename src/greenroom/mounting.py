"""The server as an ASGI application in somebody else's program: it starts with the first request, and needs nothing from its host.

A host that tells of its lifespan is listened to: the company is then ready before the first request, and stops in order. Most
hosts that mount an application do not pass that on, and nothing is missing without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from greenroom.transports.asgi import App, Receive, Scope, Send

    from .hosting import Hosting


class Mounted:
    """The application."""

    def __init__(self, hosting: Hosting, endpoint: App) -> None:
        """`endpoint` serves requests once the company runs."""
        self._hosting = hosting
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or a lifespan."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        await self._hosting.ensure()
        await self._endpoint(scope, receive, send)

    async def close(self) -> None:
        """Stop it in this loop, for hosts without a lifespan that want an end in order."""
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
            else:
                await self._hosting.close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
