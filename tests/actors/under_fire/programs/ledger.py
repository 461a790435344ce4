"""A server whose calls can be counted from outside, whatever becomes of it: `ledger.py FILE [PORT]`, over HTTP where there is a port.

What was done is a line in the file, which is there before any caller hears of it.
"""

from __future__ import annotations

import asyncio
import os
import sys

from greenroom import Context, HttpConfig, Server

server = Server("ledger", version="1")
BOOK = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@server.tool
async def where() -> int:
    """Who serves."""
    return os.getpid()


@server.tool
async def book(what: str) -> str:
    """Must not happen twice."""
    os.write(BOOK, f"{what}\n".encode())
    await asyncio.sleep(0.005)
    return what


@server.resource("note://last")
async def last() -> str:
    """What was noted last."""
    return "see the book"


@server.tool
async def note(what: str) -> str:
    """The same, and followers of the last note hear of it."""
    os.write(BOOK, f"{what}\n".encode())
    server.notify_resource_updated("note://last")
    return what


@server.tool
async def hang(ctx: Context) -> str:
    """Says that it has begun, and does not return."""
    await ctx.progress(1, 2)
    await asyncio.Event().wait()
    return "never"


if __name__ == "__main__":
    if sys.argv[2:]:
        server.run("http", config=HttpConfig(port=int(sys.argv[2])))
    else:
        server.run()
