"""The driver of mcp's client in the stateless era; runs in an environment with mcp."""

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from client_load import TEXT, arguments, drive, many, print_results
from mcp import Client


async def main() -> None:
    """Run the load."""
    url, crowds, seconds = arguments()

    @asynccontextmanager
    async def opened():  # noqa: ANN202 - what it yields, its library says
        async with Client(url) as client:
            assert client.protocol_version == "2026-07-28", client.protocol_version
            yield client

    async with opened() as client:

        async def call() -> str:
            result = await client.call_tool("echo", {"text": TEXT})
            return result.content[0].text

        found = await drive(call, crowds, seconds)
    print_results(found | await many(opened))


asyncio.run(main())
