"""The driver of mcp's client; runs in an environment with mcp."""

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from client_load import TEXT, arguments, command, drive, many, print_results
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


async def main() -> None:
    """Run the load."""
    url, crowds, seconds = arguments()
    words = command()

    @asynccontextmanager
    async def opened():  # noqa: ANN202 - what it yields, its library says
        way = (
            streamable_http_client(url)
            if words is None
            else stdio_client(StdioServerParameters(command=words[0], args=words[1:]))
        )
        async with way as streams, ClientSession(streams[0], streams[1]) as session:
            await session.initialize()
            yield session

    async with opened() as session:

        async def call() -> str:
            result = await session.call_tool("echo", {"text": TEXT})
            return result.content[0].text

        found = await drive(call, crowds, seconds)
    print_results(found | await many(opened))


asyncio.run(main())
