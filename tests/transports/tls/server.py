"""The test server for SDK clients over TLS, with HTTP/2 for clients that want it: `server.py CERTFILE KEYFILE PORT`."""

from __future__ import annotations

import sys

from tests.interop.server import server

from greenroom import HttpConfig


@server.tool
async def tell_all(number: int) -> int:
    """Send a number to all listening sessions, and return it."""
    await server.broadcast("notifications/told", {"number": number})
    return number


if __name__ == "__main__":
    certfile, keyfile, port = sys.argv[1:]
    config = HttpConfig(port=int(port), certfile=certfile, keyfile=keyfile, http2=True, heartbeat=0.1)
    server.run("http", config=config)
