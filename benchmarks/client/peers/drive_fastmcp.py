"""FastMCP's client, driven; run in an environment that has it."""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from driving import TEXT, arguments, drive, told
from fastmcp import Client


async def main() -> None:
    """Call for as long as is asked."""
    url, crowds, seconds = arguments()
    async with Client(url) as client:

        async def call() -> str:
            result = await client.call_tool("echo", {"text": TEXT})
            return result.content[0].text

        told(await drive(call, crowds, seconds))


asyncio.run(main())
