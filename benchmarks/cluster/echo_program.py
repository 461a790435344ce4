"""A server on standard input and output that gives back what it is told."""

from __future__ import annotations

from greenroom import Server

server = Server("echo")


@server.tool
async def echo(text: str) -> str:
    """Give it back."""
    return text


if __name__ == "__main__":
    server.run()
