"""500 tools on `mcp` with default settings."""

import sys

from mcp.server import MCPServer

server = MCPServer("many")


def answer(text: str, times: int = 1) -> str:
    """Repeats the text."""
    return text * times


for number in range(500):
    server.add_tool(answer, name=f"tool_{number:03}")

if __name__ == "__main__":
    server.run("streamable-http", port=int(sys.argv[1]))
