"""The three upstream servers of the demonstration: one in a process of its own, one in this program, and one that keeps dying."""

from __future__ import annotations

import sys
from pathlib import Path

from greenroom import Host, Server
from greenroom.transports.client.server_command import Command

HERE = Path(__file__).parent

library = Server("greenroom-demo-library", version="1")
_BOOKS = {
    "Programming Erlang": "shelf 1",
    "Designing for Scalability with Erlang/OTP": "shelf 1",
    "Moby-Dick": "shelf 7",
}


@library.tool
async def find(title: str) -> str:
    """Finds the shelf of a book."""
    found = next((f"{each}: {shelf}" for each, shelf in _BOOKS.items() if title.lower() in each.lower()), None)
    return found or f"there is no book called {title!r} here"


host = Host(
    {
        "clock": Command(sys.executable, "-P", str(HERE / "clock_server.py")),
        "library": library,
        "shaky": Command(sys.executable, "-P", str(HERE / "killed_server.py")),
    },
    name="greenroom-demo-host",
)
