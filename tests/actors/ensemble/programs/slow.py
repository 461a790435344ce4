"""A program that takes its time to be imported by a worker."""

from __future__ import annotations

import time

from greenroom import Server

server = Server("slow")

if __name__ == "__main__":
    server.run("http", port=0, workers=2)
time.sleep(60)
