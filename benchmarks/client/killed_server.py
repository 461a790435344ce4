"""The server that is killed: `killed_server.py [PORT]`, on standard input and output without a port."""

from __future__ import annotations

import asyncio
import os
import sys

from greenroom import HttpConfig, Server

server = Server("target", version="1")


@server.tool
async def where() -> str:
    """The id of the serving process."""
    return str(os.getpid())


@server.tool
async def echo(text: str) -> str:
    """Echoes its argument."""
    return text


@server.tool
async def hang() -> str:
    """Never returns."""
    await asyncio.Event().wait()
    return "never"


if __name__ == "__main__":
    if sys.argv[1:]:
        server.run("http", config=HttpConfig(port=int(sys.argv[1])))
    else:
        server.run()
