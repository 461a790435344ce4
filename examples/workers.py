"""A server on two worker processes: a tool ends one of them, and only the sessions in that process have to start again.

Run it: `python examples/workers.py`. It prints

    two sessions in two processes, and a third process that supervises them
    the first session has ended its process, and its call has failed
    the second session is not affected
    the first session has started again in another process
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
    """The id of the process that answers."""
    return os.getpid()


@server.tool
async def leave() -> None:
    """End the process, which no tool should do."""
    os._exit(1)


async def watch(url: str, program: int) -> None:
    """Use two clients. A call is answered in its session's process, whichever connection it takes."""
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(Client(url))
        first = await one.call("where")
        while True:
            other = await stack.enter_async_context(Client(url))
            second = await other.call("where")
            if second != first:
                break
        assert program not in {first, second}
        print("two sessions in two processes, and a third process that supervises them")
        try:
            await one.call("leave")
        except GreenroomError:  # the call may have been executed, so the client does not repeat it
            print("the first session has ended its process, and its call has failed")
        assert await answer(other) == second
        print("the second session is not affected")
        assert await answer(one) != first
        print("the first session has started again in another process")


async def answer(client: Client) -> int:
    """The process of the client's session. A lost connection is replaced by a new one."""
    while True:
        try:
            return await client.call("where", into=int)
        except GreenroomError:
            await asyncio.sleep(0.05)


def main() -> None:
    """Start the server, use it, and stop it."""
    command = [sys.executable, __file__, "serve"]
    program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603 - this file
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
