"""``python -m packed.server``: it imports relatively, which a file alone could not."""

from __future__ import annotations

import os

from greenroom import Server

from .numbers import ANSWER

server = Server("packed")


@server.tool(isolation="process")
def where() -> str:
    """Who answers, and what this module is called there."""
    return f"{os.getpid()} {__name__} {ANSWER}"


server.run()
