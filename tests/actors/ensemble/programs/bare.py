"""A script that serves at its end, with nothing around that: its workers import it as it is."""

from __future__ import annotations

import os

from greenroom import Server

server = Server("bare")


@server.tool
async def where() -> int:
    """The process that answers."""
    return os.getpid()


server.run("http", port=0, workers=2)
