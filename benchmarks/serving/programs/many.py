"""Our server with 500 tools, and one that adds a tool, of which every open stream is notified."""

from __future__ import annotations

import sys
from itertools import count

from greenroom import Server
from greenroom.actors.settings import Settings

COUNT = 500

server = Server("many", settings=Settings(name="many", page_size=COUNT + 1000, max_sessions=100_000))
numbers = count()


def answer(text: str, times: int = 1) -> str:
    """Repeats the text."""
    return text * times


for number in range(COUNT):
    server.tool(f"tool_{number:03}")(answer)


@server.tool
async def more() -> str:
    """Register another tool."""
    server.tool(f"more_{next(numbers)}")(answer)
    return "done"


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]))
