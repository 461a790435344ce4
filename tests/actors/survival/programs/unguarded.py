"""A server as it is often written first: it runs when the file is executed, in whichever process."""

from __future__ import annotations

import os
from dataclasses import dataclass

from greenroom import Context, Server

server = Server("unguarded")


@dataclass
class Box:
    width: int
    height: int


@server.tool(isolation="process")
def area(box: Box) -> int:
    """Its argument is a class of this file."""
    return box.width * box.height


@server.tool(isolation="process")
async def where(ctx: Context) -> str:
    """Who answers, and what this file is called there."""
    await ctx.info("here")
    print("this output is lost")  # noqa: T201 - what it is about
    return f"{os.getpid()} {__name__}"


@server.tool(isolation="process")
def crash() -> None:
    """Take the process down."""
    os.abort()


server.run()
raise SystemExit("a worker never comes here")
