"""A server whose isolated tools crash their processes in various ways, while another tool keeps answering.

Run it: `python examples/crash_on_purpose.py`. It prints

    segfault: Tool execution failed: its process was ended by signal 11 (SIGSEGV); its memory limit is 200 MiB, and C code that gets no memory may end so
    leave: Tool execution failed: its process exited with code 7
    hoard: Tool execution failed: it needed more than the 200 MiB of memory that its process may have
    spin: Tool execution failed: its process was ended by signal 24 (SIGXCPU): it used more CPU time than its limit
    add was called all the time, and no call was lost
    the server's own process was never the one that died
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os

from greenroom import Client, Pool, Server

logging.disable(logging.CRITICAL)  # the log would repeat all of this, with stacks
server = Server("crash on purpose")
alone = Pool(size=2, memory=200 * 1024 * 1024, cpu=1)


@server.tool
async def add(a: int, b: int) -> int:
    """Runs in the server's own process."""
    return a + b


@server.tool(isolation=alone)
def segfault() -> str:
    """Read address zero, as a broken C extension might."""
    return str(ctypes.string_at(0))


@server.tool(isolation=alone)
def leave() -> None:
    """Exit the process at once, without an exception."""
    os._exit(7)


@server.tool(isolation=alone)
def hoard() -> None:
    """Allocate memory without end."""
    taken: list[bytearray] = []
    while True:
        taken.append(bytearray(10_000_000))


@server.tool(isolation=alone)
def spin() -> None:
    """Compute without end."""
    while True:
        pass


@server.tool(isolation=alone)
def who() -> int:
    """The process id of the server itself."""
    return os.getpid()


async def main() -> None:
    """Call the crashing tools one after the other, and `add` all the time."""
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
            print("add was called all the time, and no call was lost")
        if os.getpid() not in workers and len(workers) > 3:
            print("the server's own process was never the one that died")


asyncio.run(main())
