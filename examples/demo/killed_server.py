"""A server in a process of its own that kills itself with SIGKILL every few seconds, in the middle of its work."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

from greenroom import Server

LIFE = 3.0
"""Seconds until it kills itself."""

server = Server("greenroom-demo-shaky", version="1")


@server.tool
async def count(to: int = 3) -> str:
    """Counts one number per second; it is usually killed before the end."""
    for number in range(min(to, 60)):
        await asyncio.sleep(1)
        if number + 1 == to:
            break
    return f"{to}, and still alive"


def die() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    end = threading.Timer(LIFE, die)
    end.daemon = True
    end.start()
    server.run()
