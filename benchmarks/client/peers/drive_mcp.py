"""mcp's client, driven; run in an environment that has it."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from driving import TEXT, arguments, drive, told
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def main() -> None:
    """Call for as long as is asked."""
    url, crowds, seconds = arguments()
    async with streamable_http_client(url) as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()

        async def call() -> str:
            result = await session.call_tool("echo", {"text": TEXT})
            return result.content[0].text

        told(await drive(call, crowds, seconds))


asyncio.run(main())
