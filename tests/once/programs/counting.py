"""A server whose tools must not be done twice: `counting.py NAME [WORKERS]`, over HTTP on a free port, or on stdio where there is no number.

Each tool writes the token that it is called with into a file, as a line, before the caller hears of it; what is written outlives every kill.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from greenroom import Context, HttpConfig, Server, Settings

server = Server(sys.argv[1] if sys.argv[1:] else "counting", version="1", settings=Settings(max_in_flight=500))


def note(token: str, path: str) -> None:
    """One write of one line, which is whole or not there."""
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
    """Answered with one JSON text."""
    note(token, path)
    await asyncio.sleep(0.002)
    return token


@server.tool
async def told(token: str, path: str, ctx: Context) -> str:
    """Answered on a stream of events."""
    await ctx.progress(1, 3)
    note(token, path)
    await ctx.progress(2, 3)
    return token


@server.tool(isolation="process")
def apart(token: str, path: str) -> str:
    """In a process of its own."""
    note(token, path)
    time.sleep(0.002)
    return token


@server.tool(isolation="process")
def pid_apart() -> int:
    """The process of the tools that are apart, if they share one."""
    return os.getpid()


if __name__ == "__main__":
    if not sys.argv[2:]:
        server.run()
    elif int(sys.argv[2]) > 1:
        server.run("http", config=HttpConfig(port=0), workers=int(sys.argv[2]))
    else:
        server.run("http", config=HttpConfig(port=0))
