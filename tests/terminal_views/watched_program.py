"""The program that the referee watches: a server with a tool that crashes and a tool that waits, and a host with one server run by a command behind it.

``python -m tests.terminal_views.watched_program PORT`` serves it, ``… upstream`` is the server behind it.
"""

from __future__ import annotations

import asyncio
import os
import sys

from greenroom import Command, Host, Server

NAME = "watched"


def upstream() -> Server:
    """The server behind the program."""
    server = Server("behind")

    @server.tool
    def behind() -> int:
        """The process of this server."""
        sys.stderr.write("a line on standard error\n")
        sys.stderr.flush()
        return os.getpid()

    return server


def crash() -> None:
    """End the process in which it runs."""
    os._exit(3)


def program() -> Server:
    """The program itself."""
    server = Server(NAME)
    server.mount(Host({"up": Command(sys.executable, "-m", "tests.terminal_views.watched_program", "upstream")}))

    server.tool(isolation="process")(crash)

    @server.tool
    async def wait() -> None:
        """Wait until the call is cancelled."""
        await asyncio.Event().wait()

    @server.tool(description="\x1b[2J[bold]a hostile text[/bold]")
    def add(a: int, b: int) -> int:
        return a + b

    return server


if __name__ == "__main__":
    if sys.argv[1] == "upstream":
        upstream().run()
    else:
        program().run("http", port=int(sys.argv[1]), inspect="acts", access_log=False)
