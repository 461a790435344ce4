"""A server on two processes: a tool takes one of them down, and only the sessions that lived there have to begin anew.

Run it: `python examples/workers.py`. It prints

    two sessions on two processes, and a third process that looks after them
    one has taken its process down, and was told so
    the other has noticed nothing
    the one has begun anew, on a process that is there
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import AsyncExitStack

from greenroom import Client, Server
from greenroom.errors import GreenroomError

server = Server("crew")


@server.tool
async def where() -> int:
    """The process that answers."""
    return os.getpid()


@server.tool
async def leave() -> None:
    """What no tool should do."""
    os._exit(1)


async def watch(url: str, program: int) -> None:
    """What clients see. Whichever connection a call takes, it is answered where its session lives."""
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(Client(url))
        first = await one.call("where")
        while True:
            other = await stack.enter_async_context(Client(url))
            second = await other.call("where")
            if second != first:
                break
        assert program not in {first, second}
        print("two sessions on two processes, and a third process that looks after them")
        try:
            await one.call("leave")
        except GreenroomError:  # its call may have been done, so it is not done again
            print("one has taken its process down, and was told so")
        assert await answer(other) == second
        print("the other has noticed nothing")
        assert await answer(one) != first
        print("the one has begun anew, on a process that is there")


async def answer(client: Client) -> int:
    """Where its session lives. A connection that was by way of the process that is gone is followed by another one."""
    while True:
        try:
            return await client.call("where", into=int)
        except GreenroomError:
            await asyncio.sleep(0.05)


def main() -> None:
    """Start it, look at it, and stop it."""
    command = [sys.executable, __file__, "serve"]
    program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603 - this very file
    assert program.stderr is not None
    with program.stderr as said:
        url = said.readline().split()[-1]  # "greenroom: crew serves on http://127.0.0.1:…/mcp"
        try:
            asyncio.run(watch(url, program.pid))
        finally:
            program.terminate()
            said.read()
            program.wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        server.run("http", port=0, workers=2)
    else:
        main()
