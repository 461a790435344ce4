"""The echo server with one tool more, `mark`, which ends one count of instructions and begins the next: see `benchmarks.instructions`."""

from __future__ import annotations

import os
import sys

from benchmarks.instruction_marks import unwatched, without_watchdog

from .echo import server


@server.tool
async def mark() -> str:
    """End a count."""
    return os.ctermid()  # Callgrind is told to write its count and begin anew when this C function is entered


if __name__ == "__main__":
    without_watchdog()
    if sys.argv[1] == "stdio":
        server.run()
    else:
        unwatched()
        server.run("http", port=int(sys.argv[1]))
