"""A stdio server that echoes its argument."""

from __future__ import annotations

from greenroom import Server

server = Server("echo")


@server.tool
async def echo(text: str) -> str:
    """Echo the argument."""
    return text


if __name__ == "__main__":
    server.run()
