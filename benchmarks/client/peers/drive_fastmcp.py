"""The driver of FastMCP's client; runs in an environment with FastMCP."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from client_load import TEXT, arguments, command, drive, many, print_results
from fastmcp import Client
from fastmcp.client.transports import StdioTransport


async def main() -> None:
    """Run the load."""
    url, crowds, seconds = arguments()
    words = command()

    def opened() -> Client:
        return Client(url if words is None else StdioTransport(words[0], words[1:]))

    async with opened() as client:

        async def call() -> str:
            result = await client.call_tool("echo", {"text": TEXT})
            return result.content[0].text

        found = await drive(call, crowds, seconds)
    print_results(found | await many(opened))


asyncio.run(main())
