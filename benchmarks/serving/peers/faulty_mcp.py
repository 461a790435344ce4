"""The faulty tools on `mcp` with default settings. `PORT` 0 is stdio."""

import sys
from pathlib import Path

from mcp.server import MCPServer

sys.path.append(str(Path(__file__).parents[1] / "programs"))
from faulty_tools import TOOLS

server = MCPServer("stage")
for tool in TOOLS:
    server.tool()(tool)

if __name__ == "__main__":
    port = int(sys.argv[1])
    server.run("streamable-http", port=port) if port else server.run("stdio")
