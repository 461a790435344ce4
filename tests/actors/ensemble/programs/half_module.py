"""The server, and one of its tools."""

from __future__ import annotations

from greenroom import Server

server = Server("halved")


@server.tool
def here() -> str:
    return "here"
