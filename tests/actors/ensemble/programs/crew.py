"""A server with workers, that does what tests want to see: `crew.py [workers [hung [restarts]]]`, with the patience of the program lowered."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from greenroom import Context, Server
from greenroom import multi_worker_server as workers

server = Server("crew")


@server.tool
async def where() -> int:
    """The process that answers."""
    return os.getpid()


@server.tool
async def steps(ctx: Context, count: int, pause: float = 0.02) -> str:
    """Send this many log messages, with pauses."""
    for step in range(count):
        await ctx.progress(step, count)
        await asyncio.sleep(pause)
    return f"done by {os.getpid()}"


@server.tool
async def rest(seconds: float) -> str:
    """Compute silently for so long."""
    await asyncio.sleep(seconds)
    return f"rested in {os.getpid()}"


@server.tool
async def hold(path: str) -> str:
    """Make a file, and say nothing until there is another."""
    Path(path).with_suffix(".begun").touch()
    while not await asyncio.to_thread(os.path.exists, path):  # noqa: ASYNC110 - another program tells of itself with a file
        await asyncio.sleep(0.01)
    return f"held by {os.getpid()}"


@server.tool
async def end_with(code: int) -> None:
    """Kill the process."""
    os._exit(code)


@server.tool
async def publish() -> int:
    """Announce a changed resource."""
    server.notify_resource_updated("crew://news")
    return os.getpid()


@server.tool
async def say(text: str) -> str:
    """Print it."""
    print(text)  # noqa: T201 - that is what it is for
    return text


@server.tool(isolation="process")
def apart() -> int:
    """The pid of a process of its own, which the call runs in."""
    return os.getpid()


@server.resource("crew://news")
async def news() -> str:
    """What it is about."""
    return "none"


if __name__ == "__main__":
    count, hung, restarts = [*map(int, sys.argv[1:]), *(2, workers.HUNG, workers.RESTARTS)[len(sys.argv) - 1 :]]
    for name, value in (("HUNG", hung), ("RESTARTS", restarts)):
        setattr(workers, name, value)
    server.run("http", port=0, workers=count, inspect="CREW_SEEN" in os.environ)
