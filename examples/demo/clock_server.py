"""A server in a process of its own, with one tool that works."""

from __future__ import annotations

import time

from greenroom import Server

server = Server("greenroom-demo-clock", version="1")


@server.tool
async def now() -> str:
    """The current time."""
    return time.strftime("%H:%M:%S")


if __name__ == "__main__":
    server.run()
