"""The echo server with an additional tool, `mark`, which ends a count of instructions: see `benchmarks.instructions`."""

from __future__ import annotations

import os
import sys

from benchmarks.instruction_marks import unwatched, without_watchdog

from .echo import server


@server.tool
async def mark() -> str:
    """End a count."""
    return os.ctermid()  # Callgrind is configured to dump and reset its count when this C function is entered.


if __name__ == "__main__":
    without_watchdog()
    if sys.argv[1] == "stdio":
        server.run()
    else:
        unwatched()
        server.run("http", port=int(sys.argv[1]))
