"""The driver of our client."""

from __future__ import annotations

import asyncio
from typing import Any

from greenroom import Client

from .client_load import TEXT, arguments, command, drive, many, print_results


async def main(mode: str | None = None) -> None:
    """Run the load in this mode."""
    url, crowds, seconds = arguments()
    async with Client(command() or url, mode=mode) as client:

        async def call() -> str:
            result: Any = await client.call_tool("echo", {"text": TEXT})
            return str(result.content[0].text)

        found = await drive(call, crowds, seconds)
    print_results(found | await many(lambda: Client(command() or url, mode=mode)))


if __name__ == "__main__":
    asyncio.run(main())
