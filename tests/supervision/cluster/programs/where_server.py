"""A server that says where it runs, for tests that have it started on another machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from greenroom import Server

server = Server("there")


@server.tool
def where() -> list[int]:
    """Its process, and the one that has started it."""
    return [os.getpid(), os.getppid()]


@server.tool
async def stay(mark: str) -> None:
    """Say in that file that it runs, and never come back."""
    await asyncio.to_thread(Path(mark).write_text, str(os.getpid()), encoding="ascii")
    await asyncio.Event().wait()


if __name__ == "__main__":
    server.run()
