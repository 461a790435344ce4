"""A program that is started where nothing can be written: a tool in a process of its own, a task, and workers when it is asked for them."""

from __future__ import annotations

import asyncio
import sys

from greenroom import Client, Server

server = Server("read-only")


@server.tool(isolation="process")
def apart() -> str:
    return "apart"


@server.tool(long_running=True)
async def work() -> str:
    return "worked"


async def main() -> None:
    async with Client(server) as client:
        sys.stdout.write(f"{(await client.call_tool('apart')).text}\n")
        task = (await client.call_tool("work", task=True)).task
        assert task is not None
        sys.stdout.write(f"{(await client.tasks_result(task)).text}\n")


if __name__ == "__main__":
    if sys.argv[1:] == ["here"]:
        asyncio.run(main())
    else:
        server.run("http", port=0, workers=1, inspect="inspect" in sys.argv)
