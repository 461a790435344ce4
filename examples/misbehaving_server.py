"""A server for tests of clients: over stdio, it echoes, fails, is slow, hangs, dies and floods.

With `--serve` it is the server, and with `--hang-at-start` one that never answers `initialize`:
`greenroom call echo text=hello -- python examples/misbehaving_server.py --serve`.

Run it: `python examples/misbehaving_server.py`. It prints

    echo says hello
    fail says on purpose
    slow took its time
    die: the server is gone, and comes back
    flood says 3 lines
    a server that hangs at its start is given up on
"""

import asyncio
import logging
import os
import sys
import time

from greenroom import Client, ClientSettings, Command, Context, GreenroomError, Server, ToolError

server = Server("troublesome", instructions="For tests only.")


@server.tool
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
def fail(why: str = "on purpose") -> str:
    """Fail with an error."""
    raise ToolError(why)


@server.tool
async def slow(ctx: Context, seconds: float = 30.0) -> str:
    """Take some time and report progress. The call can be cancelled."""
    for step in range(10):
        await ctx.progress(step, 10)
        await asyncio.sleep(seconds / 10)
    return "took its time"


@server.tool
def die(status: int = 3) -> str:
    """End the whole process during the call."""
    os._exit(status)


@server.tool
async def flood(ctx: Context, lines: int = 1000) -> str:
    """Log many lines before the answer."""
    for line in range(lines):
        await ctx.info(f"line {line}")
    return f"{lines} lines"


async def main() -> None:
    """Call each tool."""
    logging.getLogger("greenroom").setLevel(logging.ERROR)  # it would warn about the deaths shown here
    itself = [sys.executable, __file__, "--serve"]
    async with Client(Command(*itself)) as client:
        print("echo says", await client.call("echo", text="hello"))
        try:
            await client.call("fail")
        except ToolError as error:
            print("fail says", str(error).removeprefix("fail: "))
        print("slow", await client.call("slow", seconds=0.01))
        try:
            await client.call("die")
        except GreenroomError:
            print("die: the server is gone, and comes back")
        print("flood says", await client.call("flood", lines=3))
    hanging = Command(*itself, "--hang-at-start")
    try:
        async with Client(hanging, settings=ClientSettings(init_timeout=0.5)):
            pass
    except GreenroomError:
        print("a server that hangs at its start is given up on")


if __name__ == "__main__":
    if "--hang-at-start" in sys.argv:
        time.sleep(3600)
    elif "--serve" in sys.argv:
        server.run()
    else:
        asyncio.run(main())
