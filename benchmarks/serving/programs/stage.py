"""The faulty tools on greenroom with default settings. `PORT` 0 is stdio."""

from __future__ import annotations

import sys

from benchmarks.serving.programs import wicked
from greenroom import Server

server = Server("stage")
for tool in wicked.TOOLS:
    server.tool(tool)
server.tool("block_apart", isolation="thread")(wicked.block)

if __name__ == "__main__":
    port = int(sys.argv[1])
    if port:
        server.run("http", port=port)
    else:
        server.run()
