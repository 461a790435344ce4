"""A client of a server program: the program is started, called, killed during a call, and called again.

Run it: `python examples/echo_client.py`. It prints

    tools: echo, fall_over
    hello
    lost: exit_status
    hello again
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from greenroom import Client, Command, RequestLost, Server

server = Server("echo")


@server.tool
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
def fall_over() -> None:
    """End the whole program."""
    os._exit(3)


async def main() -> None:
    """Call the server."""
    async with Client(Command(sys.executable, __file__, "serve"), name="echo") as client:
        print("tools:", ", ".join(tool.name for tool in await client.list_tools()))
        print(await client.call("echo", text="hello"))
        try:
            await client.call("fall_over")
        except RequestLost as error:
            print("lost:", getattr(error.cause, "reason", error.cause))
        print(await client.call("echo", text="hello again"))  # answered by a new process, which the client has started


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        server.run()
    else:
        logging.disable(logging.WARNING)  # that it has died and is started again would be said there
        asyncio.run(main())
