"""Ours: two tools that give back what they are given, one `async def`, one `def`, served as `run` does it: over HTTP, or stdio."""

from __future__ import annotations

import sys

from greenroom import Server

server = Server("echo")


@server.tool
async def echo(text: str) -> str:
    """In the loop."""
    return text


@server.tool
def echo_def(text: str) -> str:
    """In a thread."""
    return text


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
        sys.exit()
    if "uvloop" in sys.argv[2:]:
        import uvloop

        uvloop.install()
    server.run("http", port=int(sys.argv[1]))
