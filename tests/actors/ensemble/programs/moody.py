"""A program that can be imported once: a worker cannot."""

from __future__ import annotations

from greenroom import Server

if __name__ != "__main__":
    raise OSError("the database is away")

server = Server("moody")
server.run("http", port=0, workers=2)
