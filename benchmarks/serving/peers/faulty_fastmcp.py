"""The faulty tools on FastMCP with default settings. `PORT` 0 is stdio."""

import sys
from pathlib import Path

from fastmcp import FastMCP

sys.path.append(str(Path(__file__).parents[1] / "programs"))
from faulty_tools import TOOLS

server = FastMCP("stage")
for tool in TOOLS:
    server.tool(tool)

if __name__ == "__main__":
    port = int(sys.argv[1])
    server.run("http", port=port) if port else server.run("stdio", show_banner=False)
