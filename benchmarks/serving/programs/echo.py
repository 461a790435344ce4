"""Our echo server: one `async def` and one `def` tool, served by `run` over HTTP or stdio."""

from __future__ import annotations

import sys

from greenroom import Server

server = Server("echo")


@server.tool
async def echo(text: str) -> str:
    """Runs in the loop."""
    return text


@server.tool
def echo_def(text: str) -> str:
    """Runs in a thread."""
    return text


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
        sys.exit()
    if "uvloop" in sys.argv[2:]:
        import uvloop

        uvloop.install()
    server.run("http", port=int(sys.argv[1]))
