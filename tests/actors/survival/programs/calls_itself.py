"""A script that is its own client, without a guard."""

from __future__ import annotations

import asyncio
import os

from greenroom import Client, Server

server = Server("calls itself")


@server.tool(isolation="process")
def where() -> str:
    """Who answers."""
    return f"{os.getpid()} {__name__}"


async def main() -> None:
    async with Client(server) as client:
        print(os.getpid(), await client.call("where"))  # noqa: T201 - what its caller reads


asyncio.run(main())
