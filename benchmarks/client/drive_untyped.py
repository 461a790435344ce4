"""The driver of our untyped connection, as federations and gateways use it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.connections import start_connection

from greenroom.supervision import Node
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.server_command import Command

from .client_load import TEXT, arguments, command, drive, many, print_results

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.actors.client.connection_line import ConnectionLine


async def main() -> None:
    """Run the load."""
    url, crowds, seconds = arguments()
    words = command()
    async with Node():

        @asynccontextmanager
        async def opened() -> AsyncGenerator[ConnectionLine]:
            line = await start_connection(HttpRoute(url) if words is None else Command(*words))
            await line.ready()
            yield line
            await line.close()

        async with opened() as line:

            async def call() -> str:
                result = await line.request("tools/call", {"name": "echo", "arguments": {"text": TEXT}})
                return str(result["content"][0]["text"])

            found = await drive(call, crowds, seconds)
        print_results(found | await many(opened))


if __name__ == "__main__":
    asyncio.run(main())
