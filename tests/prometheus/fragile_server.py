"""The program that Prometheus watches: a server with a part that dies when it is hit. Started with the ports of its endpoint and of its admin listener."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from greenroom import Server
from greenroom.observe import Admin
from greenroom.supervision import GenServer, Ref, Supervisor, child, start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

server = Server("watched")


class Fragile(GenServer):
    """Dies when it is hit."""

    def break_down(self) -> None:
        """Raise."""
        raise ValueError("hit")


@server.lifespan
async def parts() -> AsyncIterator[None]:
    """Its supervisor brings it back as often as it takes."""
    await start(Supervisor, [child(Fragile).but(name="fragile")], intensity=1000)
    yield


@server.tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@server.tool
async def slow() -> str:
    """Take 150 ms."""
    await asyncio.sleep(0.15)
    return "done"


@server.tool
async def hit() -> str:
    """Crash the part."""
    Ref[Fragile]("fragile").cast(Fragile.break_down)
    return "hit"


if __name__ == "__main__":
    server.run("http", admin=Admin(port=int(sys.argv[1])), port=int(sys.argv[2]))
