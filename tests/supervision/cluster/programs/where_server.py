"""A server that tells where it runs, for tests that start it on another machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from greenroom import Server

server = Server("there")


@server.tool
def where() -> list[int]:
    """Its pid, and that of its parent."""
    return [os.getpid(), os.getppid()]


@server.tool
async def stay(mark: str) -> None:
    """Create that file, and never return."""
    await asyncio.to_thread(Path(mark).write_text, str(os.getpid()), encoding="ascii")
    await asyncio.Event().wait()


if __name__ == "__main__":
    server.run()
