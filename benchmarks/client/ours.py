"""Our client, driven."""

from __future__ import annotations

import asyncio
from typing import Any

from greenroom import Client

from .driving import TEXT, arguments, drive, told


async def main() -> None:
    """Call for as long as is asked."""
    url, crowds, seconds = arguments()
    async with Client(url) as client:

        async def call() -> str:
            result: Any = await client.call_tool("echo", {"text": TEXT})
            return str(result.content[0].text)

        told(await drive(call, crowds, seconds))


if __name__ == "__main__":
    asyncio.run(main())
