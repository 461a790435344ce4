"""A server whose tools must not be done twice: `counting.py NAME [WORKERS]`, over HTTP on a free port with that many workers, or on stdio without the number.

Each tool appends its token to a file as a line before it answers, so that the line survives a kill of the process.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from greenroom import Context, HttpConfig, Server, Settings

server = Server(sys.argv[1] if sys.argv[1:] else "counting", version="1", settings=Settings(max_in_flight=500))


def note(token: str, path: str) -> None:
    """Append a line with a single write, so that it is complete or missing."""
    book = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(book, f"{token}\n".encode())
    finally:
        os.close(book)


@server.tool
async def pid() -> int:
    """The process that serves the call."""
    return os.getpid()


@server.tool
async def book(token: str, path: str) -> str:
    """A tool that answers with one JSON response."""
    note(token, path)
    await asyncio.sleep(0.002)
    return token


@server.tool
async def told(token: str, path: str, ctx: Context) -> str:
    """A tool that answers on an event stream, because it sends progress."""
    await ctx.progress(1, 3)
    note(token, path)
    await ctx.progress(2, 3)
    return token


@server.tool(isolation="process")
def apart(token: str, path: str) -> str:
    """A tool that runs in a process of its own."""
    note(token, path)
    time.sleep(0.002)
    return token


@server.tool(isolation="process")
def pid_apart() -> int:
    """The process of the isolated tools, if they share one."""
    return os.getpid()


if __name__ == "__main__":
    if not sys.argv[2:]:
        server.run()
    elif int(sys.argv[2]) > 1:
        server.run("http", config=HttpConfig(port=0), workers=int(sys.argv[2]))
    else:
        server.run("http", config=HttpConfig(port=0))
