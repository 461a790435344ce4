"""Our HTTP client, whose instructions are counted: `python -m benchmarks.client.counted MODE URL CALLS…`, see `benchmarks.instructions`."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from benchmarks.instruction_marks import without_watchdog
from greenroom import Client

from .client_load import TEXT


async def main(mode: str, url: str, counts: list[int]) -> None:
    """Make the calls of each window, and end the count of instructions after each."""
    async with Client(url, mode=mode) as client:
        for count in counts:
            for _ in range(count):
                result: Any = await client.call_tool("echo", {"text": TEXT})
                assert result.content[0].text == TEXT, result
            os.ctermid()  # Callgrind is configured to dump and reset its count when this C function is entered.


if __name__ == "__main__":
    without_watchdog()
    asyncio.run(main(sys.argv[1], sys.argv[2], [int(each) for each in sys.argv[3:]]))
