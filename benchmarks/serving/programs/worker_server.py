"""A server on several processes: `worker_server.py PORT [WORKERS]`; without a number, in the program's own process."""

from __future__ import annotations

import os
import sys

from greenroom import Server

server = Server("crew")


@server.tool
async def where() -> str:
    """The id of the answering process."""
    return str(os.getpid())


@server.tool
async def echo(text: str) -> str:
    """Echo the text."""
    return text


@server.tool
async def work(count: int) -> int:
    """Compute: ten thousand rounds take about half a millisecond."""
    return sum(number * number % 7 for number in range(count))


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]), workers=int(sys.argv[2]) if len(sys.argv) > 2 else None)  # noqa: PLR2004
