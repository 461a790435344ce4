"""A server in a process of its own that is killed every few seconds, in the middle of whatever it is doing: `kill -9`, by its own hand."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

from greenroom import Server

LIFE = 3.0
"""Seconds that it has."""

server = Server("greenroom-demo-shaky", version="1")


@server.tool
async def count(to: int = 3) -> str:
    """Counts, one number a second. Whether it gets there is another question."""
    for number in range(min(to, 60)):
        await asyncio.sleep(1)
        if number + 1 == to:
            break
    return f"{to}, and still alive"


def die() -> None:
    """Now."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    end = threading.Timer(LIFE, die)
    end.daemon = True
    end.start()
    server.run()
