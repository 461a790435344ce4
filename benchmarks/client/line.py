"""Our connection without its typed face: what a federation or a gateway calls through."""

from __future__ import annotations

import asyncio

from greenroom.actors.client.line import start_connection
from greenroom.supervision import Node
from greenroom.transports.client.http_route import HttpRoute

from .driving import TEXT, arguments, drive, told


async def main() -> None:
    """Call for as long as is asked."""
    url, crowds, seconds = arguments()
    async with Node():
        line = await start_connection(HttpRoute(url))
        await line.ready()

        async def call() -> str:
            result = await line.request("tools/call", {"name": "echo", "arguments": {"text": TEXT}})
            return str(result["content"][0]["text"])

        told(await drive(call, crowds, seconds))
        await line.close()


if __name__ == "__main__":
    asyncio.run(main())
