"""The faulty tools on greenroom with default settings. `PORT` 0 is stdio."""

from __future__ import annotations

import sys

from greenroom import Server

from . import faulty_tools

server = Server("stage")
for tool in faulty_tools.TOOLS:
    server.tool(tool)
server.tool("block_apart", isolation="thread")(faulty_tools.block)

if __name__ == "__main__":
    port = int(sys.argv[1])
    if port:
        server.run("http", port=port)
    else:
        server.run()
