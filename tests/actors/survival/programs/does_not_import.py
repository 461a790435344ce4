"""A server whose module fails in every process but the first."""

from __future__ import annotations

from greenroom import Server

server = Server("does not import")


@server.tool(isolation="process")
def never() -> str:
    """It is never called."""
    return "?"


if __name__ != "__main__":
    raise ImportError("the library for this is not installed here")

server.run()
