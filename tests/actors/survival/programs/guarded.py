"""The same behind a guard."""

from __future__ import annotations

import os

from greenroom import Server

server = Server("guarded")


@server.tool(isolation="process")
def where() -> str:
    """Who answers, and what this file is called there."""
    return f"{os.getpid()} {__name__}"


if __name__ == "__main__":
    server.run()
