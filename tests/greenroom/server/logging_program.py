"""A program on stdio with an access log of some style."""

from __future__ import annotations

import sys

from greenroom import Server

server = Server("logging")


@server.tool(isolation="process")
def apart() -> str:
    return "done"


if __name__ == "__main__":
    server.run(access_log=sys.argv[1] != "off", log_json=sys.argv[1] == "json")
