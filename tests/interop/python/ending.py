"""How a server on stdio that stops ends a listen, to the Python SDK 2.x: `ending.py COMMAND ARGUMENT… FILE`, where the program writes its id into FILE."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import play
from mcp import Client
from mcp.client.stdio import StdioServerParameters

REVISION = "2026-07-28"


def stop(program: str) -> None:
    """Tell the program to stop whose id is the last in this file."""
    os.kill(int(Path(program).read_text(encoding="ascii").split()[-1]), signal.SIGTERM)


async def ending(where: list[str]) -> None:
    """Each listen ends in order: `SubscriptionLost` would say that changes may have been missed."""
    server = StdioServerParameters(command=where[0], args=where[1:])
    async with Client(server, mode=REVISION) as client, client.listen(tools_list_changed=True) as listening:
        stop(where[-1])
        play.same("nothing more", [event async for event in listening], [])


async def main(where: list[str]) -> bool:
    """`COMMAND ARGUMENT… FILE`."""

    async def ends(_: object) -> None:
        await ending(where)

    ends.__name__ = "ending"
    return await play.perform(None, [ends])


if __name__ == "__main__":
    sys.exit(play.run(main))
