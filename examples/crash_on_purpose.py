"""A server whose tools take their process down, each in its own way, while another goes on answering.

Run it: `python examples/crash_on_purpose.py`. It prints

    segfault: Tool execution failed: its process was ended by signal 11 (SIGSEGV); its memory limit is 200 MiB, and C code that gets no memory may end so
    leave: Tool execution failed: its process exited with code 7
    hoard: Tool execution failed: it needed more than the 200 MiB of memory that its process may have
    spin: Tool execution failed: its process was ended by signal 24 (SIGXCPU): it used more CPU time than its limit
    add was called all the while, and not one call was lost
    every process that died was somebody else
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os

from greenroom import Client, Pool, Server

logging.disable(logging.CRITICAL)  # the reports say all of this too, with stacks
server = Server("crash on purpose")
alone = Pool(size=2, memory=200 * 1024 * 1024, cpu=1)


@server.tool
async def add(a: int, b: int) -> int:
    """Runs in the server's own process, among all others."""
    return a + b


@server.tool(isolation=alone)
def segfault() -> str:
    """Read what is at address zero, as a broken extension does."""
    return str(ctypes.string_at(0))


@server.tool(isolation=alone)
def leave() -> None:
    """Go without a word: not even an exception."""
    os._exit(7)


@server.tool(isolation=alone)
def hoard() -> None:
    """Take memory for ever."""
    taken: list[bytearray] = []
    while True:
        taken.append(bytearray(10_000_000))


@server.tool(isolation=alone)
def spin() -> None:
    """Compute for ever."""
    while True:
        pass


@server.tool(isolation=alone)
def who() -> int:
    """Which process it is that runs these."""
    return os.getpid()


async def main() -> None:
    """Break one after the other, and look who notices."""
    async with Client(server) as client:
        answered = 0

        async def go_on() -> None:
            nonlocal answered
            while True:
                assert await client.call("add", a=40, b=2) == 42
                answered += 1
                await asyncio.sleep(0.001)

        neighbour = asyncio.create_task(go_on())
        workers = {await client.call("who")}
        for tool in ("segfault", "leave", "hoard", "spin"):
            reply = await client.call_tool(tool)
            print(f"{tool}: {reply.text}")
            workers.add(await client.call("who"))
        neighbour.cancel()
        await asyncio.wait([neighbour])
        if answered > 100 and neighbour.cancelled():
            print("add was called all the while, and not one call was lost")
        if os.getpid() not in workers and len(workers) > 3:
            print("every process that died was somebody else")


asyncio.run(main())
