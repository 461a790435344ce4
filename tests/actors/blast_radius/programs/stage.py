"""A server for tests that end it, flood it or look at its memory: `PORT GRACE` over HTTP, nothing over standard input."""

from __future__ import annotations

import resource
import sys
import time

from greenroom import Server

server = Server("stage")


@server.tool
def never_returns() -> str:
    """Hold a thread for longer than any test lasts."""
    print("held", file=sys.stderr, flush=True)  # noqa: T201 - the test waits for it
    time.sleep(3600)
    return "never"


@server.tool
async def peak() -> int:
    """The most memory that this process has had, in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("http", port=int(sys.argv[1]), grace=float(sys.argv[2]))
    else:
        server.run()
