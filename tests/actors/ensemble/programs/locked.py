"""A server that opens something which is away: `locked.py`, or, once a file is there, `locked.py file`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from greenroom import Server
from greenroom import multi_worker_server as workers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

server = Server("locked")
KEY = os.environ.setdefault("LOCKED", *sys.argv[1:2] or [""])  # a worker does not get the program's arguments


@server.lifespan
async def database() -> AsyncGenerator[None]:
    """The resource is there as long as the test does not lock it."""
    if not KEY or os.path.exists(KEY):  # noqa: ASYNC240, PTH110 - it takes no time
        raise OSError("the database is away")
    yield


@server.tool
async def where() -> int:
    """The process that answers."""
    return os.getpid()


if __name__ == "__main__":
    setattr(workers, "RESTARTS", 3)  # noqa: B010 - a program has no business with it
    server.run("http", port=0, workers=1 if KEY else 2)
