"""A program that registers a part of its server where no worker comes by."""

from __future__ import annotations

from greenroom import Server

server = Server("guarded")


@server.tool
def above() -> str:
    return "above"


if __name__ == "__main__":

    @server.tool
    def below() -> str:
        return "below"

    server.run("http", port=0, workers=2)
