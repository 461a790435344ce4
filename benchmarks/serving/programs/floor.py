"""The floor: Hypercorn with a minimal ASGI application that echoes each POST."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from hypercorn.asyncio import serve  # pyright: ignore[reportUnknownVariableType]
from hypercorn.config import Config

if TYPE_CHECKING:
    from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope


async def application(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """Echo the request."""
    if scope["type"] != "http":
        return
    body = b""
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return
        body += event["body"]
        if not event["more_body"]:
            break
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": False})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def main(port: str) -> None:
    """Serve until the process ends."""
    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.keep_alive_max_requests = sys.maxsize
    await serve(application, config)


if __name__ == "__main__":
    if "uvloop" in sys.argv[2:]:
        import uvloop

        uvloop.run(main(sys.argv[1]))
    else:
        asyncio.run(main(sys.argv[1]))
